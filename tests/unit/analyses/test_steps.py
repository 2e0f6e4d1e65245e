from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from tracekit.analyses.shared.common import NO_DEVICE, NO_STEPS
from tracekit.analyses.steps import ELSEWHERE, NO_TIMINGS, NOT_SEEN, OVERLAPPING

from tests.builders import host, kernel, make_run, step
from tracekit.analysis import Severity, analyze
from tracekit.runs.meta import CpuLoad, Timings
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from pathlib import Path

    from tests.shared_runs import SharedRuns
    from tests.thresholds import Make
    from tracekit.analysis import Finding
    from tracekit.runs.run import Run


def test_warm_up_is_left_out_and_overhead_is_against_plain_steps(tmp_path: Path) -> None:
    durations = [900, 100, 102, 98, 100]
    starts = [sum(durations[:number]) for number in range(len(durations))]
    run = make_run(
        tmp_path,
        meta={"timings": Timings([79, 80, 81], [], "perf_counter")},
        steps=[step(n, at, at + long) for n, (at, long) in enumerate(zip(starts, durations, strict=True))],
        device_intervals=[
            kernel(1190, 1215, **{C.STEP: 4}),
            kernel(1205, 1310, **{C.STEP: 4}),
        ],
    )
    tables = analyze(run, "steps").tables
    assert tables["steps"]["warmup_outlier"].tolist() == [True, False, False, False, False]
    last = tables["steps"].iloc[-1]
    assert last[["host_ns", "window_ns", "device_span_ns", "device_busy_ns"]].tolist() == [100, 110, 120, 120]
    assert tables["steps"]["device_busy_ns"].isna().tolist() == [True, True, True, True, False]
    host = tables["summary"].iloc[0]
    assert host.to_dict() == {
        "rank": 0,
        "measure": "host",
        "steps": 4,
        "mean_ns": 100,
        "median_ns": 100,
        "p05_ns": 98,
        "p95_ns": 102,
        "min_ns": 98,
        "max_ns": 102,
        "spread": 0.04,
    }
    (overhead,) = tables["overhead"].to_dict("records")
    assert overhead["overhead_ns"] == 20
    assert overhead["overhead_share"] == 0.25


def test_few_steps_have_no_outlier_and_absent_inputs_are_named(tmp_path: Path) -> None:
    result = analyze(make_run(tmp_path, steps=[step(0, 0, 900), step(1, 900, 910)]), "steps")
    assert result.tables["steps"]["warmup_outlier"].tolist() == [False, False]
    assert result.tables["steps"]["device_span_ns"].isna().all()
    assert "device" not in " ".join(result.tables["summary"]["measure"])
    assert result.notes == (NO_DEVICE, NO_TIMINGS)


def test_no_steps_says_so(tmp_path: Path) -> None:
    result = analyze(make_run(tmp_path), "steps")
    assert (result.tables, result.notes) == ({}, (NO_STEPS,))


def test_ranks_are_told_apart(tmp_path: Path) -> None:
    run = make_run(tmp_path, steps=[step(0, 0, 10), step(0, 0, 30, **{C.RANK: 1})])
    summary = analyze(run, "steps").tables["summary"]
    assert isinstance(summary, pd.DataFrame)
    assert summary.loc[summary["measure"] == "host", ["rank", "median_ns"]].to_numpy().tolist() == [
        [0, 10],
        [1, 30],
    ]


def test_times_far_from_zero_stay_exact_where_a_step_launched_nothing(tmp_path: Path) -> None:
    far = 1_700_000_000_000_000_000
    run = make_run(
        tmp_path,
        steps=[step(0, far, far + 90), step(1, far + 100, far + 190)],
        device_intervals=[kernel(far + 5, far + 155, **{C.STEP: 0})],
    )
    steps = analyze(run, "steps").tables["steps"]
    assert steps["window_ns"].tolist() == [155, 90]
    assert steps["device_span_ns"].tolist() == [150, pd.NA]


def ahead(path: Path, ends: list[int], *, clock: str = "cuda_event", lasting: int = 100) -> Run:
    """A host that enqueues a step every 10 ns, and the ends of what each does on the device."""
    return make_run(
        path,
        meta={"timings": Timings([lasting] * 3, [], clock)},
        steps=[step(number, number * 10, number * 10 + 9) for number in range(len(ends))],
        host_intervals=[
            host("cudaLaunchKernel", number * 10 + 1, number * 10 + 2, kind=HostKind.RUNTIME)
            for number in range(len(ends))
        ],
        device_intervals=[
            kernel(number * 10 + 5, end, launch_row=number, **{C.STEP: number})
            for number, end in enumerate(ends)
        ],
    )


def overhead_check(run: Run) -> tuple[str, float]:
    checks = analyze(run, "integrity").tables["checks"].set_index("check")
    return tuple(checks.loc["profiler_overhead", ["level", "share"]])


def test_a_host_that_runs_ahead_is_no_overhead(tmp_path: Path) -> None:
    run = ahead(tmp_path, [104, 204, 304, 404, 504, 604])
    tables = analyze(run, "steps").tables
    assert tables["steps"]["window_ns"].tolist() == [104, 194, 284, 374, 464, 554]
    assert tables["steps"]["own_ns"].tolist() == [104, 100, 100, 100, 100, 100]
    assert not tables["steps"]["warmup_outlier"].any()
    assert tables["overhead"][["profiled_ns", "overhead_ns"]].to_numpy().tolist() == [[100, 0]]
    assert overhead_check(run) == ("ok", 0.0)


def test_overhead_of_a_host_that_runs_ahead_is_that_of_the_device(tmp_path: Path) -> None:
    run = ahead(tmp_path, [150, 300, 450, 600], lasting=100)
    assert analyze(run, "steps").tables["overhead"]["overhead_share"].tolist() == [0.5]
    assert overhead_check(run) == ("warn", 0.5)


def test_the_first_step_may_hold_a_queue_from_before_the_capture(tmp_path: Path) -> None:
    run = ahead(tmp_path, [900, 1000, 1100])
    assert analyze(run, "steps").tables["overhead"]["overhead_ns"].tolist() == [0]
    short = ahead(tmp_path / "short", [100, 1000])  # it is left out whatever it holds
    assert analyze(short, "steps").tables["overhead"]["profiled_ns"].tolist() == [900]
    alone = ahead(tmp_path / "alone", [120])
    assert analyze(alone, "steps").tables["overhead"]["profiled_ns"].tolist() == [120]


def test_warm_up_is_told_by_own_times_and_not_by_growing_windows(tmp_path: Path) -> None:
    ends = [500, 600, 700, 800, 900]
    steps = analyze(ahead(tmp_path, ends), "steps").tables["steps"]
    assert steps["window_ns"].tolist() == [500, 590, 680, 770, 860]
    assert steps["warmup_outlier"].tolist() == [True, False, False, False, False]


def test_a_clock_of_the_host_is_compared_with_the_host(tmp_path: Path) -> None:
    run = ahead(tmp_path, [104, 204, 304, 404], clock="perf_counter", lasting=9)
    assert analyze(run, "steps").tables["overhead"]["overhead_ns"].tolist() == [0]


def test_idle_time_between_steps_belongs_to_none(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        meta={"timings": Timings([30], [], "cuda_event")},
        steps=[step(0, 0, 20), step(1, 100, 120), step(2, 200, 220)],
        device_intervals=[kernel(at + 5, at + 30, **{C.STEP: at // 100}) for at in (0, 100, 200)],
    )
    tables = analyze(run, "steps").tables
    assert tables["steps"]["own_ns"].tolist() == [30, 30, 30]
    assert tables["overhead"]["overhead_ns"].tolist() == [0]


def test_steps_that_end_out_of_order_have_an_unknown_overhead(tmp_path: Path) -> None:
    run = ahead(tmp_path, [104, 304, 204, 404])
    result = analyze(run, "steps")
    assert result.tables["steps"]["own_ns"].tolist() == [104, 200, pd.NA, 100]
    assert "overhead" not in result.tables
    assert result.notes == (OVERLAPPING,)
    level, share = overhead_check(run)
    assert level == "info"
    assert pd.isna(share)


def test_device_work_outside_of_steps_is_not_an_absent_device(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        meta={"timings": Timings([100], [], "cuda_event")},
        steps=[step(0, 0, 10), step(1, 10, 20)],
        device_intervals=[kernel(50, 60)],
    )
    result = analyze(run, "steps")
    assert "overhead" not in result.tables
    assert result.notes == (ELSEWHERE, NOT_SEEN)


def test_own_times_are_of_one_rank_and_exact_far_from_zero(tmp_path: Path) -> None:
    far = 1_700_000_000_000_000_001
    rows = [
        step(number, far + number * 10, far + number * 10 + 9, **{C.RANK: rank})
        for rank in (0, 1)
        for number in (0, 1)
    ]
    late = [kernel(far + 5, far + 23, **{C.STEP: 0, C.RANK: 0})]
    steps = analyze(make_run(tmp_path, steps=rows, device_intervals=late), "steps").tables["steps"]
    assert steps[[C.RANK, "own_ns"]].to_numpy().tolist() == [[0, 23], [0, pd.NA], [1, 9], [1, 9]]


def own_times(path: Path, *own: int) -> list[Finding]:
    """Findings on steps that follow each other and take so long."""
    starts = [0, *accumulate(own)]
    rows = [step(number, starts[number], starts[number] + length) for number, length in enumerate(own)]
    return list(analyze(make_run(path, steps=rows), "steps").findings)


def test_warmup_is_named_and_left_out_of_what_is_unsteady(tmp_path: Path) -> None:
    assert own_times(tmp_path / "a", *[1_000] * 8) == []
    (warm,) = own_times(tmp_path / "b", 9_000, *[1_000] * 8)
    assert (warm.code, warm.saving_ns_per_step) == ("warmup_steps", None)
    assert warm.title == "1 warm-up step of rank 0 took 9.00 µs; the median of the others is 1.00 µs"
    assert warm.advice.startswith("Exclude step 0")


def test_steps_that_differ_by_far_are_unsteady_and_what_they_cost_is_told(tmp_path: Path) -> None:
    (found,) = own_times(tmp_path / "a", *[1_000, 1_000, 1_000, 2_000] * 2, *[2_000, 1_000, 1_000, 1_000] * 2)
    assert (found.code, found.saving_ns_per_step, found.severity) == ("unsteady_steps", 250, Severity.HIGH)
    assert "(3, 7, 8)" in found.advice
    assert own_times(tmp_path / "b", *[1_000, 1_000, 1_000, 2_000]) == []  # too few to tell


def test_steps_without_the_profiler_tell_where_few_are_profiled(tmp_path: Path) -> None:
    def of(folder: str, profiled: int, *step_ns: int) -> list[Finding]:
        rows = [step(number, 1_000 * number, 1_000 * number + 1_000) for number in range(profiled)]
        meta = {"timings": Timings([*step_ns], [], "perf_counter")}
        return list(analyze(make_run(tmp_path / folder, meta=meta, steps=rows), "steps").findings)

    uneven = [1_000, 1_000, 2_000, 1_000, 1_000, 1_000, 2_000, 2_000, 1_000, 1_000]
    (found,) = of("a", 5, *uneven)
    assert (found.code, found.saving_ns_per_step, found.severity) == ("unsteady_steps", None, Severity.INFO)
    assert found.title == "Steps without the profiler take from 1.00 µs (p05) to 2.00 µs (p95)"
    assert "`host_breakdown.per_step`" in found.advice
    (recurring,) = of("b", 5, *[1_000, 1_000, 1_000, 2_000] * 4)
    assert "recurs every 4 steps" in recurring.title
    assert of("c", 5, *[1_000] * 10) == of("d", 5, *uneven[:7]) == of("e", 8, *uneven) == []


def test_long_steps_at_a_fixed_period_may_be_meant_and_have_no_saving(tmp_path: Path) -> None:
    (found,) = own_times(tmp_path / "a", *[1_000, 1_000, 1_000, 2_000] * 4)  # accumulated gradients
    assert (found.code, found.saving_ns_per_step, found.severity) == ("unsteady_steps", None, Severity.INFO)
    assert "recurs every 4 steps" in found.title


SLOWING = [100, 110, 120, 130] * 2 + [125, 140] * 4 + [150, 160] * 4
"""Times of steps by thirds, each slower than the one before."""


def slowing(path: Path, times: list[int] = SLOWING, **meta: Any) -> Run:
    meta |= {"timings": Timings(times, [], "perf_counter")}
    return make_run(path, meta=meta, steps=[step(0, 0, 1_000)])


DENORMAL = {"program": {"modes": {"flush_denormals": False}}}


def test_steps_that_take_longer_and_longer_are_told(tmp_path: Path) -> None:
    def of(name: str, *times: int, **meta: Any) -> list[Finding]:
        found = analyze(slowing(tmp_path / name, list(times), **meta), "steps").findings
        return [finding for finding in found if finding.code == "steps_slow_down"]

    (plain,), (denormal,) = of("plain", *SLOWING), of("denormal", *SLOWING, environment=DENORMAL)
    assert (
        plain.title
        == "Steps become slower: 110 ns in the first third of 24 unprofiled steps, 150 ns in the last"
    )
    assert plain.saving_ns_per_step == 180
    assert ["denormal" in finding.advice for finding in (plain, denormal)] == [False, True]
    busy = CpuLoad(
        rank=0,
        cores=1,
        wall_ns=100,
        cpu_ns=40,
        step_thread_cpu_ns=40,
        step_thread_wait_ns=60,
        program_ns=40,
        others_ns=60,
    )
    assert (
        of("busy", *SLOWING, cpu_loads=[busy]) == of("few", *SLOWING[:23]) == of("fast", *SLOWING[::-1]) == []
    )
    assert of("mixed", *sorted(SLOWING[::2]), *sorted(SLOWING[1::2])) == []


@pytest.mark.parametrize(
    ("shapes", "advice"),
    [
        (["[[8]]", "[[8]]"], "Ops of the profiled steps have equal shapes: values may have become denormal"),
        (["[[8]]", "[[9]]"], "Shapes of ops differ between the profiled steps. If inputs"),
        ([None, None], "If inputs or what is kept grow"),
    ],
    ids=["equal", "growing", "unknown"],
)
def test_shapes_tell_why_steps_take_longer_and_longer(
    tmp_path: Path, shapes: list[str | None], advice: str
) -> None:
    ops = [
        host("aten::add", 1_000 * number, 1_000 * number + 900, **{C.STEP: number, C.INPUT_SHAPES: shape})
        for number, shape in enumerate(shapes)
    ]
    meta = {"timings": Timings(SLOWING, [], "perf_counter"), "environment": DENORMAL}
    steps = [step(number, 1_000 * number, 1_000 * (number + 1)) for number in range(len(shapes))]
    found = analyze(make_run(tmp_path, meta=meta, steps=steps, host_intervals=ops), "steps").findings
    (slowing_,) = [finding for finding in found if finding.code == "steps_slow_down"]
    assert slowing_.advice.startswith(advice)


def unsteady(path: Path, _shared: SharedRuns) -> tuple[Run, ...]:
    rows, start = [], 0
    for number, length in enumerate([1_000, 1_000, 1_000, 2_000] * 2 + [2_000, 1_000, 1_000, 1_000] * 2):
        rows.append(step(number, start, start + length))
        start += length
    return (make_run(path, steps=rows),)


THRESHOLD_RUNS: dict[str, Make] = {
    "unsteady_steps": unsteady,
    "steps_slow_down": lambda path, _shared: (slowing(path),),
}
