"""Inputs from public bug reports of profilers: the numbers that each report says are right.

The inputs are not part of this project; where they are absent the tests are skipped.
`tests/unit/ingest/test_public_reports.py` has a small case of each kind.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.traces import table
from tracekit.analysis import analyze
from tracekit.ingest.importer import import_traces
from tracekit.schema import C

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

REPORTS = Path(__file__).parents[2] / ".." / "shared" / "round3" / "bugs"
pytestmark = pytest.mark.skipif(not REPORTS.is_dir(), reason=f"no reports at {REPORTS}")
US = 1_000


def runs_of(store: Store, *names: str) -> list[Run]:
    return import_traces(store, [REPORTS / name for name in names])


def run_of(store: Store, name: str) -> Run:
    (run,) = runs_of(store, name)
    return run


def kernels(run: Run) -> pd.DataFrame:
    return table(run, "device_intervals").query("kind == 'kernel'")


def result(run: Run, analysis: str, name: str) -> pd.DataFrame:
    return analyze(run, analysis).tables[name]


def delays(run: Run) -> list[tuple[int, int]]:
    """Rank of each linked kernel, and the time from the start of its call to its own."""
    starts = table(run, "host_intervals").set_index(C.ROW_ID)[C.START_NS]
    rows = kernels(run)
    rows = rows[rows[C.LAUNCH_ROW].notna()]
    times = rows[C.START_NS].to_numpy() - starts.loc[rows[C.LAUNCH_ROW].astype(int)].to_numpy()
    return list(zip(rows[C.RANK].tolist(), times.tolist(), strict=True))


def whole(run: Run) -> dict[str, Any]:
    row: dict[str, Any] = result(run, "gpu_breakdown", "whole").iloc[0].to_dict()
    return row


def test_02_unfinished_ops_have_no_negative_time(store: Store) -> None:
    run = run_of(store, "02-unfinished-minus-one/trace.json")
    ops = result(run, "ops", "ops").set_index(C.NAME)
    assert (ops[["host_self_ns", "host_total_ns"]] >= 0).all(axis=None)
    assert int(ops["host_self_ns"].sum()) == 10 * US
    assert kernels(run)[C.DUR_NS].tolist() == [9 * US]
    assert table(run, "host_intervals").query("unfinished == 1")[C.NAME].tolist() == ["aten::outer"]


def test_03_kernels_at_time_0_are_set_aside(store: Store) -> None:
    run = run_of(store, "03-zero-timestamp-kernels/trace.json")
    row = whole(run)
    assert (row["window_ns"], row["active_ns"], row["idle_ns"]) == (25 * US, 15 * US, 10 * US)
    assert delays(run) == [(0, 8 * US)] * 3
    (note,) = [note for note in run.meta.diagnostics if note.code == "far_times"]
    assert "2 rows" in note.message


def test_05_kernels_of_one_stream_may_overlap(store: Store) -> None:
    run = run_of(store, "05-overlap-on-one-stream/trace.json")
    row = whole(run)
    assert (row["window_ns"], row["active_ns"], row["idle_ns"]) == (120 * US, 120 * US, 0)
    assert row["kernel_sum_ns"] == 140 * US
    assert result(run, "overlap", "streams")["at_once_ns"].tolist() == [20 * US]
    notes = [note for note in analyze(run, "overlap").notes if note.startswith("work of one stream")]
    assert [note.split(":")[0] for note in notes] == ["work of one stream runs at once for at least 10 µs"]


def test_06_a_duration_over_its_successors_is_noted(store: Store) -> None:
    run = run_of(store, "06-duration-runs-over-successors/trace.json")
    checks = result(run, "integrity", "checks").set_index("check")
    assert checks.loc["kernel_overruns", ["level", "count"]].tolist() == ["warn", 1]
    assert (whole(run)["active_ns"], whole(run)["kernel_sum_ns"]) == (1_070 * US, 900 * US)
    (row,) = result(run, "kernels", "names").to_dict("records")
    assert (row["count"], row["sum_ns"], row["max_ns"]) == (9, 900 * US, 100 * US)


def test_07_copies_without_duration_have_no_rate(store: Store) -> None:
    run = run_of(store, "07-bare-inf-and-nan/trace.json")
    (row,) = result(run, "h2d_copies", "per_step").to_dict("records")
    assert (row["copies"], row[C.BYTES], row["sum_ns"]) == (2, 4_296, 2 * US)
    assert row["gb_per_s"] == pytest.approx(2.048)
    assert kernels(run)[C.OCCUPANCY_PCT].isna().all()


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("12-two-writers-one-file/trace.json", "byte 801"),
        ("31-legacy-bare-array/legacy_broken.json", "byte 220"),
    ],
)
def test_12_31_damage_in_the_middle_misleads(store: Store, name: str, place: str) -> None:
    (row,) = result(run_of(store, name), "integrity", "verdict").to_dict("records")
    assert row["verdict"] == "misleading"
    assert place in row["reason"]


def test_15_two_files_that_claim_one_rank_stay_apart(store: Store) -> None:
    runs = runs_of(store, "15-two-files-say-rank-0")
    assert sorted(int(kernels(run)[C.DUR_NS].sum()) for run in runs) == [36 * US, 40 * US]
    for run in runs:
        assert {"rank_conflict", "missing_ranks"} <= {note.code for note in run.meta.diagnostics}


def test_16_a_coordinator_is_no_rank(store: Store) -> None:
    coordinator, job = sorted(
        runs_of(store, "16-rank-in-the-file-name/run"), key=lambda run: len(kernels(run))
    )
    assert kernels(coordinator).empty
    assert kernels(job).groupby(C.RANK)[C.DUR_NS].sum().to_dict() == {0: 60 * US, 1: 75 * US}


def test_17_merged_ranks_are_told_apart(store: Store) -> None:
    run = run_of(store, "17-merged-ranks-share-correlations/merged.json")
    assert sorted(delays(run)) == [*[(0, 20 * US)] * 3, *[(1, 40 * US)] * 3]


def test_18_correlation_0_is_no_id(store: Store) -> None:
    run = run_of(store, "18-correlation-zero/trace.json")
    assert delays(run) == [(0, 14 * US)] * 4
    (row,) = result(run, "overlap", "whole").to_dict("records")
    assert (row["union_ns"], row["exposed_ns"]) == (48 * US, 20 * US)
    assert result(run, "integrity", "verdict")["verdict"].tolist() == ["usable"]


def test_22_recorded_waits_are_no_late_launches(store: Store) -> None:
    run = run_of(store, "22-sync-events-are-not-work/trace.json")
    (row,) = result(run, "idle_gaps", "by_cause").to_dict("records")
    assert (row["cause"], row["idle_ns"], row["gaps"]) == ("sync", 180 * US, 2)
    waits = result(run, "sync_points", "on_device").set_index(C.NAME)["host_ns"]
    assert waits.to_dict() == {"Stream Synchronize": 80 * US, "Context Synchronize": 80 * US}


def test_24_copies_at_once_have_the_rate_of_their_union(store: Store) -> None:
    run = run_of(store, "24-copy-bandwidth-over-time/trace.json")
    (row,) = result(run, "h2d_copies", "per_step").to_dict("records")
    assert (row[C.BYTES], row["sum_ns"], row["union_ns"]) == (401_000, 60_100, 50_000)
    assert row["union_gb_per_s"] == pytest.approx(8.02)
    rates = result(run, "h2d_copies", "rates")
    assert rates["gb_per_s"].tolist() == pytest.approx([10, 15, 15, 5])
    assert (rates[C.START_NS] + rates[C.DUR_NS]).tolist() == [10_000, 20_000, 20_100, 50_000]


def test_29_steps_are_occurrences(store: Store) -> None:
    run = run_of(store, "29-step-numbers-repeat/trace.json")
    steps = result(run, "steps", "steps")
    assert steps["host_ns"].tolist() == [10_000 * US] * 4
    assert steps["device_busy_ns"].tolist() == [2_000 * US] * 4
    assert steps[C.STEP].is_unique


def test_31_a_device_that_is_a_word_is_the_first(store: Store) -> None:
    (row,) = kernels(run_of(store, "31-legacy-bare-array/legacy.json")).to_dict("records")
    assert (row[C.DEVICE], row[C.DUR_NS], row[C.START_NS]) == (0, 12_500, 2_250)


def test_33_tables_with_a_version_are_read(store: Store) -> None:
    run = run_of(store, "33-nsys-missing-or-renamed-tables/nvtx_suffixed.sqlite")
    ranges = table(run, "host_intervals").query("kind == 'annotation'")
    assert dict(zip(ranges[C.NAME], ranges[C.DUR_NS], strict=True)) == {
        "forward": 105 * US,
        "backward": 104 * US,
    }


def test_38_collectives_are_described_by_their_kernels(store: Store) -> None:
    calls = result(run_of(store, "38-collective-ids-differ-by-rank"), "collectives", "calls")
    assert calls[C.BYTES].tolist() == [2_097_152] * 6
    assert calls["wait_ns"].tolist() == [12 * US, 5 * US, 0, 0, 0, 8 * US]
    assert calls["transfer_ns"].tolist() == [18 * US, 25 * US, 22 * US] * 2
    first = calls.iloc[0]
    assert (first["bus_gb_per_s"], first["group"]) == (pytest.approx(116.5, abs=0.1), "tp_0")
