"""The recording of one kernel in a child process, with a torch that fails there as a real one may."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.runs.test_gpus import Cuda, device, torch_of
from tracekit.recording import cupti, doctor

if TYPE_CHECKING:
    from pathlib import Path

TORCH = """
import contextlib, os, sys, time, types
def _module(name, **members):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)
class cuda:
    synchronize = staticmethod(lambda: None)
def ones(size, device):
    {ones}
    return types.SimpleNamespace(add_=lambda other: None)
@contextlib.contextmanager
def _profile(activities):
    {profile}
    names = {recorded}
    yield types.SimpleNamespace(events=lambda: [
        types.SimpleNamespace(name=name, device_type=kind) for name, kind in names])
_module("torch.autograd", DeviceType=types.SimpleNamespace(CUDA="cuda"))
_module("torch.profiler", ProfilerActivity=types.SimpleNamespace(CPU=0, CUDA=1), profile=_profile)
"""
KERNEL = [("aten::add_", "cpu"), ("vectorized_elementwise_kernel", "cuda")]
BUSY = "init.cpp:155] failed with error CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)"
SAYS = f"print({BUSY!r}, file=sys.stderr)"
USABLE = torch_of(Cuda(device("a")))


def check(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    ones: str = "pass",
    profile: str = "pass",
    recorded: list[tuple[str, str]] = KERNEL,
    limit_s: float = 60.0,
) -> doctor.Check:
    (folder / "torch.py").write_text(TORCH.format(ones=ones, profile=profile, recorded=recorded))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return doctor._kernel(USABLE, limit_s=limit_s)


def test_a_recorded_kernel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = check(tmp_path, monkeypatch)
    assert (found.status, found.detail) == ("ok", "one kernel was recorded: vectorized_elementwise_kernel")


def test_a_kernel_that_is_not_recorded_is_explained_by_cupti(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = check(tmp_path, monkeypatch, profile=SAYS, recorded=KERNEL[:1])
    assert found.status == "warn"
    assert found.detail.startswith(
        "failed with error CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39): another"
    )
    assert check(tmp_path, monkeypatch, recorded=[]).detail == (
        "torch.profiler recorded no kernel, and gave no reason"
    )


def test_a_warning_beside_a_kernel_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = check(tmp_path, monkeypatch, profile=SAYS)
    assert (found.status, found.detail[:43]) == ("warn", "one kernel was recorded, but failed with er")


@pytest.mark.parametrize(
    ("ones", "said"),
    [
        (
            'raise RuntimeError("CUDA error: no kernel image is available")',
            "code 1: RuntimeError: CUDA error: no",
        ),
        ("os.abort()", "failed with exit code -6: no message"),
        ('sys.exit("driver gone")', "failed with exit code 1: driver gone"),
    ],
)
def test_a_child_that_fails_does_not_end_doctor(
    ones: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = check(tmp_path, monkeypatch, ones=ones)
    assert found.status == "warn"
    assert said in found.detail


def test_a_child_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = check(tmp_path, monkeypatch, ones="time.sleep(600)", limit_s=0.2)
    assert (found.status, found.detail) == ("warn", "recording one kernel did not end within 0.2 s")


def test_a_child_that_cannot_be_started_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupti, "COMMAND", ("/none",))
    assert doctor._kernel(USABLE).detail == "no process could be started: No such file or directory"


def test_without_a_usable_gpu_nothing_is_tried() -> None:
    for torch in (None, torch_of(built=None), torch_of(Cuda(init_error="No CUDA GPUs are available"))):
        assert doctor._kernel(torch).status == "missing"
