from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracekit.analyses.small_kernels import NO_KERNELS, NO_LAUNCHES

from tests.builders import host, kernel, make_run, memcpy
from tests.tiers import examples
from tracekit.analysis import analyze
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders import Row
    from tracekit.runs.run import Run

LAUNCH = 10


def launched(
    starts: list[int], dur: int = 2, first: int = 0, op: int | None = None, **more: Any
) -> tuple[list[Row], list[Row]]:
    """Launches that take 10 ns each and end when their kernels start, and these kernels."""
    calls = [
        host(
            "cudaLaunchKernel",
            start - LAUNCH,
            start,
            kind=HostKind.RUNTIME,
            **{C.ROW_ID: first + number, C.PARENT_ROW: op, C.RANK: more.get(C.RANK, 0)},
        )
        for number, start in enumerate(starts)
    ]
    rows = [
        kernel(start, start + dur, **{C.LAUNCH_ROW: first + number, C.STREAM: 7, **more})
        for number, start in enumerate(starts)
    ]
    return calls, rows


def made(path: Path, *parts: tuple[list[Row], list[Row]], hosts: list[Row], devices: list[Row]) -> Run:
    calls = [row for part in parts for row in part[0]]
    rows = [row for part in parts for row in part[1]]
    return make_run(path, host_intervals=[*hosts, *calls], device_intervals=[*rows, *devices])


def test_gaps_count_only_where_the_whole_device_is_idle(tmp_path: Path) -> None:
    """Five kernels 20 ns apart; a copy on another stream fills 5 of the 18 ns of the second gap."""
    part = launched([100, 120, 140, 160, 180], op=50)
    run = made(
        tmp_path,
        part,
        hosts=[host("aten::add_", 0, 300, **{C.ROW_ID: 50})],
        devices=[memcpy(125, 130, **{C.STREAM: 8}), kernel(500, 600, **{C.STREAM: 7})],
    )
    tables = analyze(run, "small_kernels").tables
    (row,) = tables["ops"].to_dict("records")
    assert {name: row[name] for name in ("kernels", "runs", "kernel_ns", "gap_ns", "late_ns", "span_ns")} == {
        "kernels": 5,
        "runs": 1,
        "kernel_ns": 10,
        "gap_ns": 18 + 10 + 18 + 18,
        "late_ns": 18 + 10 + 18 + 18,
        "span_ns": 82,
    }
    assert (row[C.NAME], row["interval_ns"], row["median_ns"]) == ("aten::add_", 20, 2)
    (summary,) = tables["summary"].to_dict("records")
    assert (summary["kernels"], summary["small"], summary["launch_ns"]) == (6, 5, LAUNCH)


def test_four_in_a_row_are_no_run(tmp_path: Path) -> None:
    run = made(tmp_path, launched([100, 120, 140, 160]), hosts=[], devices=[])
    result = analyze(run, "small_kernels")
    assert list(result.tables) == ["summary"]
    assert "not consecutive" in result.notes[0]


def test_a_kernel_as_long_as_its_launch_is_not_small(tmp_path: Path) -> None:
    for dur, small in ((LAUNCH - 1, 5), (LAUNCH, 0)):
        run = made(tmp_path / str(dur), launched([100, 120, 140, 160, 180], dur), hosts=[], devices=[])
        assert analyze(run, "small_kernels").tables["summary"]["small"].tolist() == [small]


@pytest.mark.slow
def test_a_long_kernel_a_copy_and_a_long_gap_end_a_run(tmp_path: Path) -> None:
    starts = [100, 120, 140, 160, 180]
    for number, between in enumerate([kernel(142, 158, **{C.STREAM: 7}), memcpy(142, 143, **{C.STREAM: 7})]):
        run = made(tmp_path / str(number), launched(starts), hosts=[], devices=[between])
        assert list(analyze(run, "small_kernels").tables) == ["summary"]
    limit = [100, 120, 140, 142 + 10 * LAUNCH, 142 + 10 * LAUNCH + 20]
    beyond = [*limit[:3], *(start + 1 for start in limit[3:])]
    for number, (places, runs) in enumerate([(limit, 1), (beyond, 0)]):
        run = made(tmp_path / f"gap{number}", launched(places), hosts=[], devices=[])
        assert analyze(run, "small_kernels").tables["summary"]["runs"].tolist() == [runs]


def test_queued_kernels_have_a_gap_that_no_launch_explains(tmp_path: Path) -> None:
    calls, rows = launched([100, 120, 140, 160, 180])
    early = [{**call, C.START_NS: number} for number, call in enumerate(calls)]
    run = made(tmp_path, (early, rows), hosts=[], devices=[])
    (row,) = analyze(run, "small_kernels").tables["summary"].to_dict("records")
    assert (row["gap_ns"], row["late_ns"]) == (72, 0)


def test_the_outermost_annotation_names_a_range_and_steps_do_not(tmp_path: Path) -> None:
    marks = [
        host("ProfilerStep#1", 0, 400, kind=HostKind.ANNOTATION, **{C.ROW_ID: 60}),
        host("outer", 0, 300, kind=HostKind.ANNOTATION, **{C.ROW_ID: 61, C.PARENT_ROW: 60}),
        host("inner", 0, 300, kind=HostKind.ANNOTATION, **{C.ROW_ID: 62, C.PARENT_ROW: 61}),
        host("aten::mul", 0, 300, **{C.ROW_ID: 63, C.PARENT_ROW: 62}),
        host("aten::mul_inner", 0, 300, **{C.ROW_ID: 64, C.PARENT_ROW: 63}),
    ]
    run = made(tmp_path, launched([100, 120, 140, 160, 180], op=64), hosts=marks, devices=[])
    tables = analyze(run, "small_kernels").tables
    assert tables["ranges"][C.NAME].tolist() == ["outer"]
    assert tables["ops"][C.NAME].tolist() == ["aten::mul"]


def test_ranks_and_devices_are_not_mixed(tmp_path: Path) -> None:
    starts = [100, 120, 140]
    parts = [
        launched(starts, first=10 * number, **place)
        for number, place in enumerate([{C.DEVICE: 0}, {C.DEVICE: 1}, {C.DEVICE: 0, C.RANK: 1}])
    ]
    run = made(tmp_path, *parts, hosts=[], devices=[])
    table = analyze(run, "small_kernels").tables["summary"]
    assert table[[C.RANK, C.DEVICE, "kernels", "runs"]].to_numpy().tolist() == [
        [0, 0, 3, 0],
        [0, 1, 3, 0],
        [1, 0, 3, 0],
    ]


def test_kernels_of_a_graph_have_no_launch_of_their_own(tmp_path: Path) -> None:
    calls, rows = launched([100, 120, 140, 160, 180])
    graph = [{**row, C.LAUNCH_ROW: 0} for row in rows]
    result = analyze(made(tmp_path, (calls[:1], graph), hosts=[], devices=[]), "small_kernels")
    assert result.tables == {}
    assert result.notes == (NO_KERNELS,)


def test_unlinked_kernels_leave_the_cost_of_a_launch_unknown(tmp_path: Path) -> None:
    result = analyze(make_run(tmp_path, device_intervals=[kernel(0, 2)]), "small_kernels")
    assert result.tables == {}
    assert result.notes == (NO_LAUNCHES,)


def test_the_notes_say_whether_launches_or_kernels_are_missing(tmp_path: Path) -> None:
    """Copies alone have no kernel to launch; a kernel without its launch needs CPU activity."""
    copies = analyze(make_run(tmp_path / "copies", device_intervals=[memcpy(0, 2)]), "small_kernels")
    unlinked = analyze(make_run(tmp_path / "unlinked", device_intervals=[kernel(0, 2)]), "small_kernels")
    assert [note.split(" ")[0] for (note,) in (copies.notes, unlinked.notes)] == ["no", "device"]
    assert ["CPU activity" in note for (note,) in (copies.notes, unlinked.notes)] == [False, True]


@settings(max_examples=examples(20))
@given(
    places=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 40)), min_size=5, max_size=25),
    seed=st.randoms(use_true_random=False),
)
def test_no_idle_time_counts_twice_whatever_the_order(tmp_path_factory: Any, places: Any, seed: Any) -> None:
    """Streams side by side: the gaps of all runs are no more than what the device was idle."""
    moment, starts = 100, []
    for _, pause in places:
        moment += pause
        starts.append(moment)
    rows = [
        kernel(start, start + 3, **{C.LAUNCH_ROW: number, C.STREAM: stream})
        for number, (start, (stream, _)) in enumerate(zip(starts, places, strict=True))
    ]
    calls = [
        host("cudaLaunchKernel", start - 10, start, kind=HostKind.RUNTIME, **{C.ROW_ID: number})
        for number, start in enumerate(starts)
    ]
    shuffled = [{C.ROW_ID: number, **row} for number, row in enumerate(rows)]
    seed.shuffle(shuffled)
    path = tmp_path_factory.mktemp("run")
    one = analyze(make_run(path / "a", host_intervals=calls, device_intervals=rows), "small_kernels")
    two = analyze(make_run(path / "b", host_intervals=calls, device_intervals=shuffled), "small_kernels")
    busy = {tick for start in starts for tick in range(start, start + 3)}
    idle = max(busy) + 1 - min(busy) - len(busy)
    assert int(one.tables["summary"]["gap_ns"].iloc[0]) <= idle
    assert list(one.tables) == list(two.tables)
    for name, table in one.tables.items():
        assert table.equals(two.tables[name])
