"""Waiting, bandwidth and groups of collectives, from recorded metadata and matched kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from tracekit.analyses.collectives import NO_COLLECTIVES, NOT_RECORDED, UNMATCHED, bus_factors
from tracekit.analyses.shared.collectives import _reduced_bytes, wait_share

from tests.builders import Row, host, kernel, make_run
from tracekit.analysis import analyze
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.thresholds import Make
    from tracekit.runs.run import Run

SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"
GATHER = "ncclDevKernel_AllGather_RING_LL"
RECORDED = {
    C.COLLECTIVE: "_reduce_scatter_base",
    C.DTYPE: "BFloat16",
    C.ELEMENTS_IN: 1_000,
    C.ELEMENTS_OUT: 500,
    C.GROUP_NAME: "0",
    C.GROUP_RANKS: "[0, 1]",
    C.GROUP_SIZE: 2,
}


class Job:
    """Ranks whose collectives begin and end at given times."""

    def __init__(self) -> None:
        self.ops: list[Row] = []
        self.kernels: list[Row] = []

    def collective(self, rank: int, start: int, end: int, name: str = SCATTER, **recorded: Any) -> None:
        place = {C.RANK: rank}
        self.ops.append(host("record_param_comms", start - 5, start, **place, **recorded))
        place |= {C.DEVICE: rank, C.STREAM: 2, C.OP_ROW: len(self.ops) - 1}
        self.kernels.append(kernel(start, end, **{C.NAME: name, **place}))

    def tables(self, path: Path) -> dict[str, list[Row]]:
        return {name: frame.to_dict("records") for name, frame in self.result(path).tables.items()}

    def result(self, path: Path) -> Any:
        run = make_run(path, host_intervals=self.ops, device_intervals=self.kernels)
        return analyze(run, "collectives")


def test_waiting_is_told_from_the_transfer(tmp_path: Path) -> None:
    job = Job()
    job.collective(0, 10, 110, **RECORDED)
    job.collective(1, 60, 110, **RECORDED)
    tables = job.tables(tmp_path)
    first, second = tables["calls"]
    assert (first["wait_ns"], first["transfer_ns"], second["wait_ns"], second["transfer_ns"]) == (
        50,
        50,
        0,
        50,
    )
    assert (first["bytes"], first["alg_gb_per_s"], first["bus_gb_per_s"]) == (2_000, 40.0, 20.0)
    (group,) = tables["by_group"]
    assert (group["group"], group["count"], group["wait_ns"], group["last_rank"]) == ("0", 2, 50, 1)
    assert group["bus_gb_per_s"] == 20.0
    assert [(row["rank"], row["caused_ns"], row["caused_share"]) for row in tables["by_rank"]] == [
        (1, 50, 1.0),
        (0, 0, 0.0),
    ]


def test_two_late_ranks_share_the_waiting(tmp_path: Path) -> None:
    job = Job()
    for at, starts in ((0, (10, 10, 70)), (100, (110, 150, 110))):
        for rank, start in enumerate(starts):
            job.collective(rank, start, at + 90, **RECORDED)
    shares = {row["rank"]: row["caused_share"] for row in job.tables(tmp_path)["by_rank"]}
    assert shares == {2: 0.6, 1: 0.4, 0: 0.0}


def test_interleaved_groups_are_matched_apart(tmp_path: Path) -> None:
    job = Job()
    pairs = ((0, 1), (2, 3))
    for group, ranks in enumerate(pairs):
        for number in range(3):
            for rank in ranks:
                at = 1_000_000 * (3 * group + number)
                late = 400_000 if rank == ranks[0] else 0
                name = {C.GROUP_NAME: "7", C.GROUP_RANKS: f"[{ranks[0]}, {ranks[1]}]"}
                job.collective(rank, at + 10 + late, at + 900_000, **{**RECORDED, **name})
    tables = job.tables(tmp_path)
    assert {(row["group_ranks"], row["last_rank"], row["wait_ns"]) for row in tables["by_group"]} == {
        ("[0, 1]", 0, 1_200_000),
        ("[2, 3]", 2, 1_200_000),
    }
    assert all(row["wait_ns"] is not None for row in tables["calls"])


def test_sequence_numbers_match_captures_that_begin_and_end_apart(tmp_path: Path) -> None:
    job = Job()
    for rank, numbers in ((0, range(5)), (1, range(2, 7))):
        for number in numbers:
            start = 1_000_000 * number + (300_000 if rank else 0)
            job.collective(
                rank, start + 10, 1_000_000 * number + 900_000, **{**RECORDED, C.COLLECTIVE_SEQUENCE: number}
            )
    calls = pd.DataFrame(job.tables(tmp_path)["calls"])
    assert calls["wait_ns"].notna().tolist() == [
        False,
        False,
        True,
        True,
        True,
        True,
        True,
        True,
        False,
        False,
    ]
    assert calls["wait_ns"].dropna().tolist() == [300_000] * 3 + [0] * 3


def test_a_receive_waits_for_its_sender(tmp_path: Path) -> None:
    job = Job()
    group = {C.GROUP_NAME: "5", C.GROUP_RANKS: "[0, 1, 2]", C.GROUP_SIZE: 3, C.DTYPE: "float"}
    sizes = {C.ELEMENTS_IN: 10, C.ELEMENTS_OUT: 10, **group}
    name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    for number in range(3):
        at = 10_000_000 * number
        job.collective(0, at + 900, at + 1_000, name, **{C.COLLECTIVE: "send", C.DST_RANK: 1, **sizes})
        job.collective(1, at + 100, at + 1_000, name, **{C.COLLECTIVE: "recv", C.SRC_RANK: 0, **sizes})
    job.collective(1, 40_000_000, 40_000_500, name, **{C.COLLECTIVE: "send", C.DST_RANK: 2, **sizes})
    tables = job.tables(tmp_path)
    assert [(row["rank"], row["wait_ns"]) for row in tables["calls"][:6]] == [
        (0, 0),
        (0, 0),
        (0, 0),
        (1, 800),
        (1, 800),
        (1, 800),
    ]
    assert pd.isna(tables["calls"][6]["wait_ns"])  # rank 2 is not here
    assert [(row["rank"], row["caused_ns"]) for row in tables["by_rank"]] == [(0, 2_400), (1, 0)]


def test_what_is_not_recorded_stays_unknown(tmp_path: Path) -> None:
    job = Job()
    job.collective(0, 10, 110, GATHER, **{C.INPUT_SHAPES: "[[500]]", C.INPUT_DTYPES: '["float"]'})
    result = job.result(tmp_path)
    (call,) = result.tables["calls"].to_dict("records")
    assert all(pd.isna(call[name]) for name in ("bytes", "wait_ns", "transfer_ns", "alg_gb_per_s", "group"))
    assert result.notes == (UNMATCHED.format(count=1, all=1), NOT_RECORDED.format(count=1, all=1))


def test_an_unmatched_collective_has_a_bandwidth_of_its_duration(tmp_path: Path) -> None:
    job = Job()
    job.collective(0, 10, 110, GATHER, **{**RECORDED, C.COLLECTIVE: "_allgather_base", C.ELEMENTS_OUT: 2_000})
    (call,) = job.tables(tmp_path)["calls"]
    assert (call["collective"], call["bytes"], call["alg_gb_per_s"]) == ("all_gather", 4_000, 40.0)


@pytest.mark.parametrize(
    ("sizes", "lengths", "share"),
    [
        ((64, 64), (100, 199), 0.0),
        ((64, 64), (100, 200), 100 / 300),
        ((64, 128), (110, 100), 10 / 210),
        ((128, 64), (200, 100), 0.0),
    ],
    ids=["alike", "twice as long", "longer than a larger one", "larger"],
)
def test_collectives_of_one_rank_wait_where_they_outlast_their_likes(
    sizes: tuple[int, int], lengths: tuple[int, int], share: float
) -> None:
    rows = pd.DataFrame({C.ROW_ID: [1, 2], "size": sizes, C.DUR_NS: lengths, C.START_NS: [0, 1_000]})
    same = {C.RANK: 0, C.DEVICE: 0, C.STREAM: 7, "family": "nccl", "group": "", C.KIND: "all_reduce"}
    unknown = dict.fromkeys((C.STEP, C.SRC_RANK, C.DST_RANK, C.COLLECTIVE_SEQUENCE), pd.NA)
    table = rows.assign(**same, **{name: pd.array([value] * 2, "Int64") for name, value in unknown.items()})
    assert wait_share(table) == pytest.approx(share)
    table[C.STEP] = pd.array([1, pd.NA], "Int64")
    assert wait_share(table, in_steps=False) == pytest.approx(share)
    assert wait_share(table) == (0 if lengths[0] == 100 else pytest.approx(share * sum(lengths) / lengths[0]))


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*)", 2),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", 4),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", 2),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", 0),
        ("ncclDevKernel_AllGather_RING_LL(x)", 0),
        ("sgemm_f32", 0),
    ],
)
def test_kernels_that_reduce_tell_their_elements(kernel: str, expected: int) -> None:
    assert _reduced_bytes(kernel) == expected


def test_a_run_without_communication_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path, device_intervals=[kernel(0, 5)])
    assert analyze(run, "collectives").notes == (NO_COLLECTIVES,)


@pytest.mark.parametrize(
    ("kind", "factors"),
    [
        ("all_reduce", [1.0, 1.75]),
        ("reduce_scatter", [0.5, 0.875]),
        ("all_to_all", [0.5, 0.875]),
        ("broadcast", [1.0, 1.0]),
        ("other", [None, None]),
    ],
)
def test_bus_bandwidth_has_the_factors_of_nccl_tests(kind: str, factors: Sequence[float | None]) -> None:
    found = bus_factors(pd.Series([kind, kind]), pd.Series([2, 8]))
    assert [None if pd.isna(value) else value for value in found] == factors


def reductions(path: Path, *took_ns: int, ranks: int = 2, elements: int = 1 << 20) -> Run:
    """All-reduces of 4 MiB, with bus bandwidth as algorithm bandwidth, one after the other on one rank."""
    job, start = Job(), 10
    recorded = {**RECORDED, C.COLLECTIVE: "allreduce", C.DTYPE: "Float", C.GROUP_SIZE: ranks}
    recorded |= {C.ELEMENTS_IN: elements, C.ELEMENTS_OUT: elements}
    for took in took_ns:
        job.collective(0, start, start + took, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", **recorded)
        start += took + 1_000
    return make_run(path, host_intervals=job.ops, device_intervals=job.kernels)


SLOW_NS = 2_000_000


@pytest.mark.parametrize(
    ("took_ns", "more", "is_slow"),
    [
        ([SLOW_NS] * 4, {}, True),
        ([SLOW_NS // 4] * 4, {}, False),
        ([SLOW_NS] * 2, {}, False),
        ([SLOW_NS, SLOW_NS, 2 * SLOW_NS], {}, False),
        ([SLOW_NS] * 4, {"ranks": 16}, False),
        ([SLOW_NS] * 4, {"elements": 1 << 10}, False),
    ],
    ids=["slow", "fast", "few", "varying", "many ranks", "small"],
)
def test_collectives_that_are_as_slow_in_each_call_are_found(
    tmp_path: Path, took_ns: list[int], more: dict[str, int], *, is_slow: bool
) -> None:
    found = analyze(reductions(tmp_path, *took_ns, **more), "collectives").findings
    assert [(one.code, one.saving_ns_per_step) for one in found] == [("slow_collectives", None)] * is_slow


THRESHOLD_RUNS: dict[str, Make] = {
    "slow_collectives": lambda path, _shared: (reductions(path, *[SLOW_NS] * 4),),
}
