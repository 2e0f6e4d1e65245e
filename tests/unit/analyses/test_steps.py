from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
from tracekit.analyses._common import NO_DEVICE, NO_STEPS
from tracekit.analyses.steps import NO_TIMINGS

from tests.builders import kernel, make_run, step
from tracekit.analysis import analyze
from tracekit.meta import Timings
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path


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
        "measure": "on the host",
        "steps": 4,
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
    assert summary.loc[summary["measure"] == "on the host", ["rank", "median_ns"]].to_numpy().tolist() == [
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
