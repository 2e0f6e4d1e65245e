"""A program that profiles itself comes first, wherever in its schedule the window of the recording begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracekit.recording.agent.program_profilers import _find_warming
from tracekit.recording.agent.recorder import TorchRecorder
from tracekit.recording.agent.window import Window

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch")
STEPS = 10


def profiled(window: Window, *, wait: int, warmup: int, active: int) -> list[int]:
    """Run a program that profiles itself beside a window; returns the numbers of ops of its own traces."""
    found: list[int] = []
    profiler = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=1),
        on_trace_ready=lambda done: found.append(sum(one.count for one in done.key_averages())),
    )
    window.begin()
    with profiler:
        for _ in range(STEPS):
            torch.ones(4).sum()
            window.end_step()
            profiler.step()
    return found


@pytest.mark.parametrize("start", range(7))
@pytest.mark.parametrize(("wait", "warmup", "active"), [(2, 1, 3), (0, 3, 5), (1, 1, 2)])
def test_its_profiler_records_what_it_would_alone(
    wait: int, warmup: int, active: int, start: int, tmp_path: Path
) -> None:
    never = TorchRecorder(torch, stacks=False)
    alone = profiled(Window(STEPS + 1, 1, never), wait=wait, warmup=warmup, active=active)
    recorder = TorchRecorder(torch, stacks=False)
    recorder.trace_path = lambda: tmp_path / "trace.json"
    window = Window(start, 2, recorder)
    recorder.on_conflict = window.close
    assert profiled(window, wait=wait, warmup=warmup, active=active) == alone
    is_before, is_after = start + 2 <= wait, start > wait + warmup + active
    assert bool(recorder.notes) == (not is_before and not is_after)
    assert {code for code, _ in recorder.notes} <= {"other_profiler"}


def test_a_profiler_that_warmed_up_before_is_found() -> None:
    every = torch.profiler.schedule(wait=0, warmup=2, active=1, repeat=1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=every) as profiler:
        assert _find_warming(torch) == [profiler.profiler]
        profiler.step()
        profiler.step()
        assert _find_warming(torch) == []
    assert _find_warming(torch) == []


def test_steps_under_a_profiler_of_the_program_are_not_timed(tmp_path: Path) -> None:
    recorder = TorchRecorder(torch, stacks=False)
    recorder.trace_path = lambda: tmp_path / "trace.json"
    window = Window(0, 1, recorder)
    window.begin()
    window.end_step()
    recorder._settled_ns = 0
    for _ in range(3):
        window.end_step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        for _ in range(3):
            window.end_step()
    window.end_step()
    assert window.state == "done"
    assert len(recorder.later_timings()[0]) == 2
    assert recorder.notes == []
