from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from tracekit.analyses.ranks import ABSENT, MISALIGNED, NO_COMMUNICATION, SINGLE, UNEQUAL, UNMATCHED
from tracekit.analyses.ranks.skew import measure_rank
from tracekit.analyses.ranks.tables import build_tables, compare_steps
from tracekit.analyses.shared.common import NO_DEVICE, NO_STEPS

from tests.builders import Row, host, kernel, make_run, memcpy, step
from tracekit.analysis import Remark, analyze
from tracekit.runs.step_windows import step_windows
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def talk(rank: int, start: int, end: int, **more: Any) -> Row:
    return kernel(start, end, **{C.RANK: rank, C.DEVICE: rank, C.NAME: NCCL, C.STREAM: 2, **more})


def work(rank: int, start: int, end: int, **more: Any) -> Row:
    return kernel(start, end, **{C.RANK: rank, C.DEVICE: rank, C.NAME: "gemm", C.STREAM: 1, **more})


def test_each_rank_is_broken_down_over_its_own_steps(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        steps=[step(0, 0, 100), step(1, 100, 200), step(0, 10, 110, **{C.RANK: 1})],
        device_intervals=[
            work(0, 20, 60),
            talk(0, 50, 90),
            memcpy(150, 170),
            work(0, 250, 300),
            work(1, 30, 130, **{C.STEP: 0}),
        ],
    )
    table = analyze(run, "ranks").tables["per_rank"]
    assert table.to_dict("records") == [
        {
            "rank": 0,
            "device": 0,
            "step_median_ns": 100,
            "computation_ns": 40,
            "communication_exposed_ns": 30,
            "idle_ns": 110,
            "computation_ratio": 1.0,
            "communication_exposed_share": 0.15,
            "idle_share": 0.55,
            "computation_share": 0.2,
            "communication_overlapped_ns": 10,
            "other_ns": 20,
            "window_ns": 200,
        },
        {
            "rank": 1,
            "device": 1,
            "step_median_ns": 120,
            "computation_ns": 100,
            "communication_exposed_ns": 0,
            "idle_ns": 20,
            "computation_ratio": 2.5,
            "communication_exposed_share": 0.0,
            "idle_share": 20 / 120,
            "computation_share": 100 / 120,
            "communication_overlapped_ns": 0,
            "other_ns": 0,
            "window_ns": 120,
        },
    ]


def test_steps_name_the_slowest_and_the_busiest_rank(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        steps=[
            row
            for rank, ends in enumerate(((100, 190), (110, 200), (105, None)))
            for number, end in enumerate(ends)
            if end is not None
            for row in [step(number, 100 * number, end, **{C.RANK: rank})]
        ],
        device_intervals=[work(0, 0, 60), work(1, 0, 50), work(2, 0, 10)],
    )
    result = analyze(run, "ranks")
    assert result.tables["steps"].values.tolist() == [
        # step, slowest, its length, median, fastest, its rank, spread, excess, busiest, its lead, ranks
        [0, 1, 110, 105, 100, 0, 10, 5, 0, 50, 3],
        [1, 0, 90, 90, 90, 0, 0, 0, 0, 0, 2],  # of equals the lowest
    ]
    assert result.notes == (UNEQUAL.format(count=1, all=2), NO_COMMUNICATION)


def test_many_steps_are_compared_without_a_loop_over_them() -> None:
    count = 20_000
    steps = pd.DataFrame(
        {
            C.STEP: np.repeat(np.arange(count), 2),
            C.RANK: np.tile([0, 1], count),
            "length_ns": np.tile([5, 7, 7, 5], count // 2),
            "computation_ns": 3,
        }
    )
    begun = time.process_time()
    table = compare_steps(steps)
    assert time.process_time() - begun < 2  # a loop takes over 5 seconds
    assert table["slowest_rank"].tolist() == [1, 0] * (count // 2)
    assert table[["slowest_ns", "median_ns", "spread_ns", "ranks"]].drop_duplicates().to_numpy().tolist() == [
        [7, 5, 2, 2]
    ]


def test_the_shortest_kernel_came_last_whatever_the_clocks_say(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        device_intervals=[
            *(talk(0, 1_000_000 * k, 1_000_000 * k + 90_000) for k in range(3)),
            *(talk(1, 77_000_000 + 1_000_000 * k, 77_030_000 + 1_000_000 * k) for k in range(3)),
            *(talk(2, 1_000_000 * k, 1_000_000 * k + 60_000) for k in range(3)),
        ],
    )
    result = analyze(run, "ranks")
    skew = result.tables["skew"]
    assert skew[
        ["number", "last_rank", "wait_ns", "shortest_ns", "next_ns", "longest_ns"]
    ].values.tolist() == [[k, 1, 90_000, 30_000, 60_000, 90_000] for k in range(3)]
    assert skew["end_spread_ns"].tolist() == [0, 0, 0]
    columns = [C.RANK, "last_share", "caused_ns", "waited_ns", "mean_late_ns", "last_count", "gain_ns"]
    assert result.tables["stragglers"][[*columns, "first_ns"]].values.tolist() == [
        [1, 1.0, 135_000, 0, 60_000, 3, 90_000, 0],
        [0, 0.0, 0, 180_000, 0, 0, 0, 60_000],
        [2, 0.0, 0, 90_000, 30_000, 0, 0, 30_000],
    ]
    assert result.notes == (NO_STEPS,)


def test_hidden_waiting_costs_nothing_and_ties_have_no_last_rank(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        device_intervals=[
            talk(0, 0, 50_000),
            work(0, 0, 50_000),
            talk(1, 40_000, 50_000),
            talk(0, 100_000, 120_000),
            talk(1, 100_000, 120_000),
        ],
    )
    tables = analyze(run, "ranks").tables
    assert tables["skew"][["last_rank", "wait_ns"]].values.tolist() == [[1, 40_000], [pd.NA, 0]]
    columns = [C.RANK, "caused_ns", "waited_ns", "last_count", "collectives"]
    assert tables["stragglers"][columns].values.tolist() == [[0, 0, 0, 0, 2], [1, 0, 0, 1, 2]]


def test_collectives_that_do_not_end_together_do_not_count(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        device_intervals=[
            row
            for k in range(5)
            for row in (
                talk(0, 1_000_000 * k, 1_000_000 * k + 50_000),
                talk(1, 1_000_000 * k + 300_000 * (k == 4), 1_000_000 * k + 40_000 + 310_000 * (k == 4)),
            )
        ],
    )
    result = analyze(run, "ranks")
    assert result.tables["skew"]["aligned"].tolist() == [True] * 4 + [False]
    assert result.tables["skew"]["end_spread_ns"].tolist() == [0, 0, 0, 0, 310_000]
    assert set(result.tables["stragglers"]["collectives"]) == {4}
    assert result.notes == (NO_STEPS, MISALIGNED.format(count=1, all=5))


def test_other_stream_numbers_are_matched_and_other_counts_are_not(tmp_path: Path) -> None:
    rows = [talk(0, 0, 10), talk(1, 0, 10, **{C.STREAM: 9})]
    same = analyze(make_run(tmp_path / "same", device_intervals=rows), "ranks")
    assert len(same.tables["skew"]) == 1
    other = analyze(make_run(tmp_path / "other", device_intervals=[*rows, talk(1, 20, 30)]), "ranks")
    assert "skew" not in other.tables
    assert other.notes == (NO_STEPS, UNMATCHED.format(families=NCCL))


@pytest.mark.slow
def test_a_straggler_of_a_few_collectives_is_said_to_be_one_of_a_few(tmp_path: Path) -> None:
    few = [*[{0: 400_000}] * 2, *[{0: 2_000}] * 10]
    (once,) = analyze(make_run(tmp_path / "few", device_intervals=late_by(few, 3)), "ranks").findings
    assert "2 of the 12 collectives in which it was last cause 97.6% of the wait" in once.advice
    always = make_run(tmp_path / "all", device_intervals=late_by([{0: 400_000}] * 12, 3))
    (steady,) = analyze(always, "ranks").findings
    assert "of the waiting: see" not in steady.advice


def test_a_single_rank_that_talks_to_no_other_lacks_nothing(tmp_path: Path) -> None:
    alone = analyze(make_run(tmp_path / "a", device_intervals=[work(0, 0, 10)]), "ranks").notes
    of_job = analyze(make_run(tmp_path / "b", device_intervals=[talk(0, 0, 10)]), "ranks").notes
    assert [isinstance(notes[0], Remark) for notes in (alone, of_job)] == [True, False]


def test_a_single_rank_is_told_how_to_compare(tmp_path: Path) -> None:
    result = analyze(make_run(tmp_path, device_intervals=[work(3, 0, 10)]), "ranks")
    assert result.notes == (SINGLE, NO_STEPS)
    assert list(result.tables) == ["per_rank"]
    assert result.tables["per_rank"]["step_median_ns"].isna().all()


def test_ranks_without_a_device_are_named(tmp_path: Path) -> None:
    run = make_run(
        tmp_path / "some",
        host_intervals=[host("aten::mm", 0, 9, **{C.RANK: rank}) for rank in (0, 1, 4)],
        device_intervals=[work(0, 0, 10), work(1, 0, 10)],
    )
    notes = analyze(run, "ranks").notes
    assert notes == (NO_STEPS, ABSENT.format(count=1, all=3, ranks="4"), NO_COMMUNICATION)
    assert analyze(make_run(tmp_path / "none"), "ranks").notes == (NO_DEVICE,)


def test_parts_of_ranks_read_apart_combine_to_the_same_tables(tmp_path: Path) -> None:
    rows = [
        row
        for rank in range(3)
        for k in range(4)
        for row in (
            work(rank, 1000 * k, 1000 * k + 100 * rank),
            talk(rank, 1000 * k + 100 * rank, 1000 * k + 500),
        )
    ]
    rows = [row | {C.ROW_ID: number} for number, row in enumerate(rows)]
    together = make_run(tmp_path / "all", device_intervals=rows)
    apart = [
        make_run(tmp_path / str(rank), device_intervals=[row for row in rows if row[C.RANK] == rank])
        for rank in range(3)
    ]
    parts = [measure_rank(run, rank, step_windows(run)) for rank, run in enumerate(apart)]
    tables, _ = build_tables([one for one in parts if one is not None])
    expected = analyze(together, "ranks").tables
    assert tables.keys() == expected.keys()
    for name, table in tables.items():
        pd.testing.assert_frame_equal(table, expected[name])


@pytest.mark.slow
def test_the_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    rows = [talk(rank, 0, 10 + 5 * rank, **{C.ROW_ID: rank}) for rank in range(3)]
    rows += [work(rank, 0, 7, **{C.ROW_ID: 10 + rank}) for rank in range(3)]
    one, two = (
        analyze(make_run(tmp_path / name, device_intervals=made), "ranks").tables
        for name, made in (("one", rows), ("two", rows[::-1]))
    )
    for name, table in one.items():
        pd.testing.assert_frame_equal(table, two[name])


def late_by(lateness: list[dict[int, int]], ranks: int) -> list[Row]:
    """Collectives 1 ms apart that all ranks end together; each rank is late by the given time."""
    return [
        talk(rank, 1_000_000 * k + late.get(rank, 0), 1_000_000 * k + 500_000)
        for k, late in enumerate(lateness)
        for rank in range(ranks)
    ]


@pytest.mark.slow_except(2)
@pytest.mark.parametrize(
    ("lateness", "found"),
    [
        ([{0: 400_000}] * 6 + [{1: 100_000}] * 6, True),
        ([{0: 400_000}] * 6 + [{1: 400_000}] * 6, False),
        ([{1: 1_000}] * 4 + [{0: 400_000}] * 4 + [{2: 1_000}] * 4, True),
        ([{0: 400_000}] * 7, False),
        ([{0: 10_000}] * 12, False),
    ],
    ids=["mostly one", "two in turn", "seldom", "too few", "hardly"],
)
def test_a_straggler_is_often_last_and_causes_most_of_the_waiting(
    tmp_path: Path, lateness: list[dict[int, int]], found: bool
) -> None:
    run = make_run(tmp_path, device_intervals=late_by(lateness, 3))
    assert [finding.code for finding in analyze(run, "ranks").findings] == ["straggler"] * found


def test_captures_of_different_lengths_match_from_their_ends(tmp_path: Path) -> None:
    """Rank 1 has two collectives more, at the start; the first of rank 0 is its third."""
    lateness: list[dict[int, int]] = [{0: 400_000}] * 12
    early = [talk(1, 1_000_000 * k, 1_000_000 * k + 500_000) for k in (-2, -1)]
    run = make_run(tmp_path, device_intervals=[*early, *late_by(lateness, 2)])
    result = analyze(run, "ranks")
    assert len(result.tables["skew"]) == 12
    assert result.tables["skew"]["last_rank"].tolist() == [0] * 12
    assert [finding.code for finding in result.findings] == ["straggler"]


@pytest.mark.slow
def test_two_late_ranks_of_eight_share_the_blame(tmp_path: Path) -> None:
    lateness: list[dict[int, int]] = [{2: 300_000}, {5: 300_000}] * 6
    (finding,) = analyze(make_run(tmp_path, device_intervals=late_by(lateness, 8)), "ranks").findings
    assert finding.title.startswith("Ranks 2 and 5 cause 100.0% of the waiting in 12 collectives")


@pytest.mark.parametrize(
    ("kind", "cause", "excess"),
    [
        ("gemm", "it computes longer", [3_200_000, 0, 0]),
        (None, "its device idles longer", [0, 3_200_000, 0]),
        ("copy", "it copies longer", [0, 0, 3_200_000]),
    ],
)
def test_a_straggler_is_late_for_what_it_does_before_the_collectives(
    tmp_path: Path, kind: str | None, cause: str, excess: list[int]
) -> None:
    """Over the capture both ranks do the same: rank 1 does after the collectives what 0 does before."""
    rows = late_by([{0: 400_000}] * 9, 2)
    for number in range(9):
        begin = 1_000_000 * number - 500_000
        rows += [work(rank, begin, begin + 500_000) for rank in (0, 1)]
        make = {"gemm": work, "copy": lambda rank, *span: memcpy(*span, **{C.RANK: rank, C.DEVICE: rank})}
        if kind:
            rows.append(make[kind](0, begin + 500_000, begin + 900_000))
            rows.append(make[kind](1, 10_000_000 + begin + 500_000, 10_000_000 + begin + 900_000))
    result = analyze(make_run(tmp_path, device_intervals=rows), "ranks")
    columns = ["excess_computation_ns", "excess_idle_ns", "excess_other_ns"]
    assert result.tables["stragglers"][columns].to_numpy().tolist() == [excess, [0, 0, 0]]
    (finding,) = result.findings
    assert f"because {cause} before these collectives than the others, by 3.2 ms" in finding.advice


def test_waiting_only_at_the_start_of_a_capture_has_no_saving(tmp_path: Path) -> None:
    lateness: list[dict[int, int]] = [{0: 400_000}] * 3 + [{0: 5_000}] * 9
    (finding,) = analyze(make_run(tmp_path, device_intervals=late_by(lateness, 2)), "ranks").findings
    assert (finding.code, finding.saving_ns_per_step) == ("straggler", None)


def launched_late(leads: dict[int, int], *, waits: int = 0, profiled: int = 0) -> dict[str, list[Row]]:
    """Rank 0 is 400 us late in 12 collectives; each other rank launches the last one this early.

    Each other host waits for the device in a call before it, the host of rank 0 for the profiler.
    """
    collectives = late_by([{0: 400_000}] * 12, 1 + len(leads))
    calls: list[Row] = []
    for number, row in enumerate(collectives):
        rank = row[C.RANK]
        arrival = 1_000_000 * (number // (1 + len(leads))) + 400_000
        begin = arrival - leads.get(rank, 5_000)
        where = {C.RANK: rank, C.PID: 10 + rank}
        row[C.LAUNCH_ROW] = 100 + 3 * number
        calls.append(
            host("cudaLaunchKernel", begin, begin + 5_000, kind="runtime", row_id=100 + 3 * number, **where)
        )
        kind, name, length = ("overhead", "Buffer flush", profiled) if rank == 0 else ("sync", "wait", waits)
        if length:
            calls.append(host(name, begin - length, begin, kind=kind, row_id=101 + 3 * number, **where))
    return {"device_intervals": collectives, "host_intervals": calls}


@pytest.mark.slow_except(2)
@pytest.mark.parametrize(
    ("leads", "waits", "saving", "named"),
    [
        ({1: 300_000, 2: 9_000_000}, 0, 300_000, "Fix the host of rank 1 too."),
        ({1: 700_000, 2: 300_000}, 0, 300_000, "Fix the hosts of ranks 2 and 1 too."),
        ({1: 300_000, 2: 9_000_000}, 100_000, 300_000 + 11 * 100_000, "Rank 1 would then be the last"),
        ({1: 9_000_000, 2: 9_000_000}, 0, 12 * 400_000, ""),
        ({1: 300_000, 2: 300_000}, 500_000, 12 * 400_000, ""),
    ],
    ids=["one follows", "two follow", "a host that waits", "hosts far ahead", "hosts that wait long"],
)
def test_a_straggler_saves_no_more_than_the_hosts_of_the_others_allow(
    tmp_path: Path, leads: dict[int, int], waits: int, saving: int, named: str
) -> None:
    run = make_run(tmp_path, **launched_late(leads, waits=waits))
    (finding,) = analyze(run, "ranks").findings
    assert finding.saving_ns_per_step == saving
    assert named in finding.advice
    assert named or "would then be the last" not in finding.advice


@pytest.mark.slow
def test_idle_time_in_which_the_profiler_held_the_late_host_is_no_saving(tmp_path: Path) -> None:
    leads = {1: 9_000_000, 2: 9_000_000}
    savings = []
    for profiled in (0, 100_000):
        run = make_run(tmp_path / str(profiled), **launched_late(leads, profiled=profiled))
        (finding,) = analyze(run, "ranks").findings
        savings.append(finding.saving_ns_per_step)
    assert savings[0] - savings[1] == 11 * 100_000  # before the first one nothing is compared


def test_devices_of_one_process_are_matched_as_ranks_are(tmp_path: Path) -> None:
    rows = [
        row
        for number in range(3)
        for row in (
            kernel(100 * number, 100 * number + 80, **{C.DEVICE: 0, C.NAME: NCCL, C.STREAM: 2}),
            kernel(100 * number + 50, 100 * number + 80, **{C.DEVICE: 1, C.NAME: NCCL, C.STREAM: 2}),
        )
    ]
    result = analyze(make_run(tmp_path, device_intervals=rows), "ranks")
    late = result.tables["stragglers"].iloc[0]
    assert (late[C.DEVICE], late["last_count"], late["caused_ns"]) == (1, 3, 150)
    assert not any(SINGLE in str(note) for note in result.notes)
