"""The step time of a run, with and without the profiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.builders import kernel, make_run, step
from tracekit.analysis import analyze
from tracekit.runs.metrics import STEP_TIME, of_run
from tracekit.runs.step_times import StepTime, profiled_step_time, unprofiled_step_time

if TYPE_CHECKING:
    from pathlib import Path

LENGTHS = ((190, 101, 100, 99, 100, 103), (120, 121, 119, 118, 117, 122))


def test_warm_up_is_left_out_and_the_rank_of_the_median_counts(tmp_path: Path) -> None:
    steps, start = [], 0
    for rank, lengths in enumerate(LENGTHS):
        for number, length in enumerate(lengths):
            steps.append(step(number, start, start + length, rank=rank))
            start += length
    run = make_run(tmp_path, steps=steps, device_intervals=[kernel(0, 10)])
    assert profiled_step_time(run) == StepTime(steps=5, median_ns=100)
    summary = analyze(run, "steps").tables["summary"]
    own = summary[summary["measure"].str.startswith("own")]
    assert own["median_ns"].tolist() == [100, 119]


def test_without_steps_there_is_none(tmp_path: Path) -> None:
    run = make_run(tmp_path, device_intervals=[kernel(0, 10)])
    assert profiled_step_time(run) is None
    assert unprofiled_step_time(run.meta.timings) is None
    assert STEP_TIME not in of_run(run)
