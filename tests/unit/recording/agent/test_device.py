"""The clock of an accelerator other than CUDA: `torch.xpu`, or one that has only torch's generic calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.fake_cuda import Event, FakeCuda
from tracekit.recording.agent.device import DeviceClock, summary

MS = 1_000_000


def generic(device: FakeCuda) -> Any:
    """A torch whose out-of-tree device has neither events nor a synchronize of its own."""

    def event(*, device: str, enable_timing: bool) -> Event:
        return Event(accelerator, enable_timing=enable_timing)

    accelerator = device
    synchronize = SimpleNamespace(synchronize=lambda: device.wait("accelerator.synchronize"))
    return SimpleNamespace(openreg=SimpleNamespace(), Event=event, accelerator=synchronize)


def own(device: FakeCuda) -> Any:
    """A torch whose device has the interface of `torch.cuda`."""
    module = SimpleNamespace(
        Event=lambda **options: Event(device, **options), synchronize=lambda: device.wait("xpu.synchronize")
    )
    return SimpleNamespace(xpu=module)


@pytest.mark.parametrize(("make", "name"), [(own, "xpu"), (generic, "openreg")])
def test_steps_are_timed_on_any_accelerator(make: Any, name: str) -> None:
    device = FakeCuda()
    clock = DeviceClock(make(device), name)
    pairs = []
    for _ in range(3):
        start = clock.now()
        device.launch(20 * MS)
        pairs.append((start, clock.now()))
    assert [call for call in device.calls if call.endswith("synchronize")] == []
    durations, reason = clock.elapsed_ns(pairs)
    assert reason == ""
    assert [round(duration / MS) for duration in durations] == [20] * 3
    assert device.calls[-1].endswith("synchronize")


def test_events_of_a_device_that_failed_cannot_be_read() -> None:
    device = FakeCuda()
    clock = DeviceClock(own(device), "xpu")
    pair = (clock.now(), clock.now())
    device.broken = "\nXPU error: lost\nadvice"
    assert clock.elapsed_ns([pair]) == ([], "XPU error: lost")


def test_an_error_without_a_message_is_named_by_its_type() -> None:
    assert summary(MemoryError()) == "MemoryError"
