"""Idle time by cause, from whatever the analysis of gaps says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

from tests.builders import device, host, kernel, make_run, memcpy, step
from tracekit import registry
from tracekit.analysis import Result
from tracekit.diff import compared_steps, diff, step_time_breakdown
from tracekit.errors import PluginError
from tracekit.schema import C, DeviceKind

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run

GAPS = [
    (60, 20, "launch_bound"),
    (85, 10, "sync"),
    (100, 50, "dataload"),  # half of it is after the step
    (5, 3, "kernel_to_kernel"),
]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A step of 125 ns of which 20 are busy."""
    work = [kernel(0, 5, step=1), kernel(8, 18, step=1), kernel(80, 85, step=1)]
    return make_run(
        tmp_path, steps=[step(1, 0, 125)], device_intervals=work, host_intervals=[host("x", 0, 9)]
    )


def _gaps(_run: Run, _name: str) -> Result:
    columns = [C.START_NS, C.DUR_NS, "cause"]
    frame = pd.DataFrame(GAPS, columns=columns).assign(**{C.RANK: 0, C.DEVICE: 0, "op": "aten::mm"})
    return Result({"gaps": frame})


def test_graphs_compute_and_of_devices_the_busiest_stands_for_its_rank(tmp_path: Path) -> None:
    work = [
        kernel(0, 30, step=1),
        device(DeviceKind.GRAPH, 40, 60, step=1),
        memcpy(60, 70, step=1),
        kernel(0, 55, step=1, device=1),
    ]
    run = make_run(tmp_path, steps=[step(1, 0, 100)], device_intervals=work)
    (steps, _) = compared_steps.select_steps(run, run)
    parts = step_time_breakdown.divide_device_time(run, steps, None).parts
    assert parts == {
        "compute only": 50,
        "overlapped": 0,
        "exposed communication": 0,
        "exposed copies": 10,
        "idle": 40,
    }


def with_itself(run: Run) -> tuple[dict[str, int], str]:
    """The lines of a comparison of a run with itself, and its warnings."""
    found = diff([run], [run])
    assert found.wall is not None
    return {line.name: line.a_ns for line in found.wall.lines if line.a_ns}, " ".join(found.warnings)


def test_causes_are_cut_to_the_steps_and_sum_to_the_idle_time(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_time_breakdown, "analyze", _gaps)
    assert with_itself(run)[0] == {
        "compute only": 20,
        "launch-bound idle": 20,
        "synchronization idle": 10,
        "data loading idle": 25,
        "other idle": 50,
    }


def test_a_part_names_the_op_whose_time_in_it_changed_most(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_run(
        tmp_path / "other",
        steps=[step(1, 0, 125)],
        device_intervals=[kernel(0, 5, step=1), kernel(8, 18, step=1), kernel(80, 100, step=1)],
    )

    def shorter(one: Run, name: str) -> Result:
        found = _gaps(one, name)
        frame = found.tables["gaps"]
        return found if one.path == run.path else Result({"gaps": frame[frame["cause"] == "dataload"]})

    monkeypatch.setattr(step_time_breakdown, "analyze", shorter)
    found = diff([run], [other])
    assert found.wall is not None
    changed = {line.name: (line.changed, line.changed_ns) for line in found.wall.lines}
    assert changed["launch-bound idle"] == ("aten::mm", -20)
    assert changed["data loading idle"] == ("", 0)
    assert changed["compute only"] == ("kernel (no op recorded)", 15)


def test_without_the_analysis_idle_time_is_one_line_and_that_is_said(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [name for name in registry.names(registry.ANALYSES) if name != step_time_breakdown.ANALYSIS]
    monkeypatch.setattr(step_time_breakdown.registry, "names", lambda _group: known)
    lines, warnings = with_itself(run)
    assert lines == {"compute only": 20, "idle": 105}
    assert "idle time is one line" in warnings


def test_an_analysis_that_fails_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_run: Run, _name: str) -> Result:
        raise PluginError("it broke", hint="")

    monkeypatch.setattr(step_time_breakdown, "analyze", broken)
    lines, warnings = with_itself(run)
    assert lines == {"compute only": 20, "idle": 105}
    assert "it broke" in warnings
