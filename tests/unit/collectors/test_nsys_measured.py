"""NVTX ranges of the measured process of the nsys collector, by what this torch and environment have."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from tracekit.collectors.nsys import measured

from tests.nsys_runtime import Ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

torch = pytest.importorskip("torch")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the process does, instead of the functions of CUDA that a torch for the CPU lacks."""
    seen: list[str] = []
    cuda = torch.cuda
    monkeypatch.setattr(cuda, "synchronize", lambda: seen.append("synchronize"))
    monkeypatch.setattr(cuda.profiler, "start", lambda: seen.append("start"))
    monkeypatch.setattr(cuda.profiler, "stop", lambda: seen.append("stop"))
    return seen


@pytest.fixture
def _no_nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave torch without NVTX, as one for the CPU is."""

    def fail(_name: str) -> None:
        raise RuntimeError("NVTX functions not installed")

    monkeypatch.setattr(torch.cuda.nvtx, "_nvtx", SimpleNamespace(markA=fail))


def test_the_recording_begins_and_ends_with_an_idle_device(events: list[str]) -> None:
    with measured._window("cuda"):
        events.append("steps")
    assert events == ["synchronize", "start", "steps", "synchronize", "stop"]


def test_a_step_that_fails_ends_the_recording(events: list[str]) -> None:
    with pytest.raises(ValueError, match="no step"), measured._window("cuda"):
        raise ValueError("no step")
    assert events == ["synchronize", "start", "stop"]


def test_without_a_gpu_there_is_no_capture_range(events: list[str]) -> None:
    with measured._window("cpu"):
        pass
    assert events == []


def test_ranges_are_those_of_torch_if_it_has_nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda.nvtx, "_nvtx", Ranges())
    notes: list[tuple[str, str]] = []
    assert measured._range_maker(notes) is torch.cuda.nvtx.range
    assert notes == []


@pytest.mark.usefixtures("_no_nvtx")
def test_ranges_are_those_of_the_package_nvtx_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("nvtx")
    names: list[str] = []

    @contextmanager
    def annotate(name: str) -> Iterator[None]:
        names.append(name)
        yield

    package.annotate = annotate  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvtx", package)
    notes: list[tuple[str, str]] = []
    with measured._range_maker(notes)("ProfilerStep#1"):
        pass
    assert names == ["ProfilerStep#1"]
    assert notes == []


@pytest.mark.usefixtures("_no_nvtx")
def test_without_nvtx_a_note_says_that_there_are_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    notes: list[tuple[str, str]] = []
    with measured._range_maker(notes)("ProfilerStep#1"):
        pass
    assert [code for code, _ in notes] == ["no_nvtx_steps"]
