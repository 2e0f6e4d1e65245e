"""The step time of a run, with and without the profiler."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.builders import kernel, make_run, step
from tracekit.analysis import analyze
from tracekit.runs.meta import Timings
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
    assert profiled_step_time(run) == StepTime.of([101, 99, 100, 100, 103])
    assert profiled_step_time(run).mean_ns == 101
    summary = analyze(run, "steps").tables["summary"]
    own = summary[summary["measure"].str.startswith("own")]
    assert own["median_ns"].tolist() == [100, 119]


def test_without_steps_there_is_none(tmp_path: Path) -> None:
    run = make_run(tmp_path, device_intervals=[kernel(0, 10)])
    assert profiled_step_time(run) is None
    assert unprofiled_step_time(run.meta.timings) is None
    assert STEP_TIME not in of_run(run)


def test_every_nth_step_that_takes_longer_raises_the_mean_and_has_its_period() -> None:
    """As of a loader, evaluation or logging every 10 steps: the median does not see it at all."""
    times = [1_000 + place % 3 for place in range(60)]
    times[::10] = [9_000 + place for place in range(6)]
    summary = StepTime.of(times)
    assert (summary.median_ns, summary.period, summary.is_uneven) == (1_001, 10, True)
    assert summary.mean_ns == round(sum(times) / 60)
    assert (summary.p90_ns, summary.p99_ns) == (1_002, 9_005)
    even = StepTime.of([1_000, 1_100, 1_050, 1_020])
    assert (even.mean_ns, even.period, even.is_uneven) == (1_042, 0, False)
    times = [1_000 + place * 37 % 400 for place in range(60)]
    times[3::10] = [30_000, 9_000, 21_000, 8_000, 40_000, 9_500]
    assert StepTime.of(times).period == 10, "slow steps need not be alike, nor the others as alike as above"
    times[20] = 25_000
    assert StepTime.of(times).period == 10, "another program took the core once"
    times[37] = 25_000
    assert StepTime.of(times).period == 0
    spoiled = [1_000] * 60
    spoiled[7] = spoiled[30] = 9_000
    assert StepTime.of(spoiled).period == 0, "two slow steps are no period, however alike the others are"
    irregular = StepTime.of([1_000] * 11 + [9_000] + [1_000] * 5 + [9_000])
    assert (irregular.is_uneven, irregular.period) == (True, 0)


def test_a_period_is_seen_although_steps_are_missing_in_the_middle() -> None:
    """Where 35 steps were profiled or left out, the fourths before and after them are of other phases."""
    cycle = [120, 20, 20, 20]
    timings = Timings(
        step_ns=cycle * 10 + cycle[3:] + cycle * 8, warmup_ns=[], clock="perf_counter", later=33
    )
    for of in (timings, replace(timings, step_ns=[*timings.step_ns[40:], *timings.step_ns[:40]], later=40)):
        time = unprofiled_step_time(of)
        assert time is not None
        assert time.period == 4
    assert StepTime.of([120, 20], later=3).period == 0  # more than there are, of which the first were skipped
