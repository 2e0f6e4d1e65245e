from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracekit.analyses.gpu_breakdown import OPAQUE_GRAPHS
from tracekit.analyses.overlap import NO_STREAMS, NOTHING
from tracekit.analyses.shared.common import NO_DEVICE, NO_STEPS, duration, percent, size

from tests.builders import Row, device, host, kernel, make_run, memcpy, memset, step
from tests.tiers import examples
from tracekit.analysis import analyze
from tracekit.schema import C, DeviceKind

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def talk(start: int, end: int, name: str = NCCL, **more: Any) -> Row:
    return kernel(start, end, **{C.NAME: name, C.STREAM: 2, **more})


def copy(start: int, end: int, kind: str, **more: Any) -> Row:
    return memcpy(start, end, **{C.COPY_KIND: kind, C.BYTES: 100, C.STREAM: 3, **more})


def rows(frame: pd.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return list(frame[list(columns)].itertuples(index=False, name=None))


PARTS = ("what", "union_ns", "exposed_ns", "overlapped_ns")


def test_each_direction_and_communication_with_what_hides_it(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        device_intervals=[
            kernel(100, 200, **{C.STREAM: 1}),
            talk(150, 300),
            talk(280, 320, "ncclDevKernel_AllGather_RING_LL"),
            copy(180, 220, "H2D"),
            copy(210, 340, "D2H"),
            copy(400, 450, "H2D", **{C.BYTES: None}),
            memset(500, 600, **{C.STREAM: 1}),
        ],
    )
    result = analyze(run, "overlap")
    whole = result.tables["whole"]
    assert rows(whole, *PARTS, "sum_ns", "count") == [
        ("communication", 170, 120, 50, 190, 2),
        ("all copies", 210, 70, 140, 220, 3),
        ("D2H", 130, 20, 110, 130, 1),
        ("H2D", 90, 50, 40, 90, 2),
    ]
    assert whole[C.BYTES].tolist() == [pd.NA, pd.NA, 100, pd.NA]
    assert whole["overlapped_share"].tolist() == [50 / 170, 140 / 210, 110 / 130, 40 / 90]
    assert rows(result.tables["collectives"], "collective", "union_ns", "exposed_ns", "sum_ns", "count") == [
        ("all_reduce", 150, 100, 150, 1),
        ("all_gather", 40, 40, 40, 1),
    ]
    columns = ("streams", "busy_ns", "concurrent_ns", "most_streams", "sum_ns", "at_once_ns")
    assert rows(result.tables["streams"], *columns) == [(3, 390, 170, 3, 580, 170)]
    assert result.notes == (NO_STEPS,)


def test_streams_busy_together_are_counted_once_and_touching_ones_not(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        device_intervals=[
            kernel(0, 100, **{C.STREAM: 1}),
            kernel(50, 80, **{C.STREAM: 1}),
            kernel(60, 90, **{C.STREAM: 2}),
            kernel(70, 75, **{C.STREAM: 3}),
            kernel(100, 120, **{C.STREAM: 2}),
            kernel(110, 110, **{C.STREAM: 1}),
            kernel(0, 500),
        ],
    )
    result = analyze(run, "overlap")
    assert rows(
        result.tables["streams"],
        "streams",
        "busy_ns",
        "concurrent_ns",
        "concurrent_share",
        "most_streams",
        "sum_ns",
        "at_once_ns",
    ) == [(3, 120, 30, 0.25, 3, 155, 40)]
    *notes, within = result.notes
    assert notes == [NO_STEPS, NOTHING, NO_STREAMS.format(count=1)]
    assert within.startswith("work of one stream runs at once for at least 10 ns: ")


@pytest.mark.parametrize(("start", "is_noted"), [(9_900, True), (9_901, False)])
def test_work_of_one_stream_that_runs_at_once_is_noted(tmp_path: Path, start: int, *, is_noted: bool) -> None:
    work = [kernel(0, 10_000, stream=1), kernel(start, 10_000, stream=1)]
    notes = analyze(make_run(tmp_path, device_intervals=work), "overlap").notes
    assert any(note.startswith("work of one stream") for note in notes) == is_noted


def test_steps_ranks_and_devices_stay_apart(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        steps=[step(0, 0, 100), step(1, 100, 200), step(0, 0, 300, **{C.RANK: 1})],
        device_intervals=[
            copy(50, 150, "H2D", **{C.STEP: 0}),
            kernel(50, 70, **{C.STREAM: 1, C.DEVICE: 1, C.STEP: 0}),
            copy(90, 110, "H2D", **{C.DEVICE: 1, C.STEP: 0}),
            copy(10, 20, "P2P", **{C.RANK: 1, C.STEP: 0}),
            kernel(0, 15, **{C.STREAM: 1, C.RANK: 1, C.STEP: 0}),
        ],
    )
    tables = analyze(run, "overlap").tables
    table = tables["per_step"][tables["per_step"]["what"] != "all copies"]
    assert rows(table, C.RANK, C.DEVICE, "what", C.STEP, "union_ns", "exposed_ns") == [
        (0, 0, "H2D", 0, 100, 100),
        (0, 0, "H2D", 1, 0, 0),
        (0, 1, "H2D", 0, 20, 20),
        (0, 1, "H2D", 1, 0, 0),
        (1, 0, "P2P", 0, 10, 5),
    ]
    together = tables["profiled_steps"][tables["profiled_steps"]["what"] != "all copies"]
    assert rows(together, C.RANK, C.DEVICE, "union_ns", "exposed_ns") == [
        (0, 0, 100, 100),
        (0, 1, 20, 20),
        (1, 0, 10, 5),
    ]


def test_a_saving_counts_the_steps_of_its_own_rank(tmp_path: Path) -> None:
    """Rank 1 has its step where rank 0 communicates after its own."""
    run = make_run(
        tmp_path,
        steps=[step(0, 0, 1_000), step(0, 2_000, 3_000, **{C.RANK: 1})],
        device_intervals=[
            kernel(0, 400, **{C.STREAM: 1, C.STEP: 0}),
            talk(500, 700, **{C.STEP: 0}),
            talk(2_200, 2_500),
            kernel(2_500, 2_900, **{C.STREAM: 1}),
            kernel(2_000, 2_900, **{C.STREAM: 1, C.STEP: 0, C.RANK: 1}),
        ],
    )
    (finding,) = analyze(run, "overlap").findings
    assert finding.saving_ns_per_step == 200 // 2


def test_what_could_not_be_hidden_is_no_saving(tmp_path: Path) -> None:
    """Only computation hides communication, so a saving is never more than there is of it."""
    only = make_run(tmp_path / "only", device_intervals=[talk(0, 900)])
    assert analyze(only, "overlap").findings == ()
    some = make_run(
        tmp_path / "some",
        device_intervals=[talk(0, 900), *(kernel(at, at + 25) for at in range(900, 1000, 25))],
    )
    (finding,) = analyze(some, "overlap").findings
    assert (finding.saving_ns_per_step, finding.severity) == (100, "warn")
    assert "launched outside recorded ops" in finding.advice


def test_the_op_that_is_named_is_named_with_its_part(tmp_path: Path) -> None:
    ops = [host(f"c10d::op{number}", 100 * number, 100 * number + 10) for number in range(3)]
    talking = [talk(1_000 * number, 1_000 * number + 300 + number, op_row=number) for number in range(3)]
    run = make_run(tmp_path, host_intervals=ops, device_intervals=[*talking, kernel(5_000, 9_000)])
    (finding,) = analyze(run, "overlap").findings
    assert finding.advice.startswith("33.4% was launched by c10d::op2: ")


def test_of_a_ranks_devices_the_one_with_most_counts(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        device_intervals=[
            row
            for number, end in enumerate((500, 300))
            for row in (
                copy(0, end, "H2D", **{C.DEVICE: number}),
                kernel(500, 1000, **{C.DEVICE: number}),
            )
        ],
    )
    (finding,) = analyze(run, "overlap").findings
    assert finding.saving_ns_per_step == 500
    assert finding.evidence == {"device_intervals": [0, 2], "host_intervals": []}


def test_sends_of_an_all_to_all_are_told_by_the_op_around_them(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        host_intervals=[
            host("c10d::alltoall_base_", 0, 10),
            host("record_param_comms", 1, 9, **{C.PARENT_ROW: 0}),
            host("c10d::send", 20, 30),
        ],
        device_intervals=[
            talk(10, 20, "ncclKernel_SendRecv_RING(int)", **{C.OP_ROW: 1}),
            talk(40, 70, "ncclDevKernel_SendRecv(int)", **{C.OP_ROW: 2}),
            talk(80, 85, "ncclDevKernel_Broadcast_RING_LL", **{C.OP_ROW: None}),
            talk(90, 91, "ncclDevKernel_Reduce_RING_LL", **{C.OP_ROW: None}),
        ],
    )
    table = analyze(run, "overlap").tables["collectives"]
    assert rows(table, "collective", "exposed_ns") == [
        ("send_recv", 30),
        ("all_to_all", 10),
        ("broadcast", 5),
        ("reduce", 1),
    ]


def test_a_run_without_a_device_and_one_with_an_opaque_graph_say_so(tmp_path: Path) -> None:
    assert analyze(make_run(tmp_path / "none"), "overlap").notes == (NO_DEVICE,)
    graph = make_run(tmp_path / "graph", device_intervals=[device(DeviceKind.GRAPH, 0, 9, **{C.STREAM: 1})])
    assert analyze(graph, "overlap").notes == (NO_STEPS, NOTHING, OPAQUE_GRAPHS)


def interval() -> st.SearchStrategy[tuple[int, int, int]]:
    return st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 30))


@settings(max_examples=examples(20))
@given(st.lists(interval(), min_size=1, max_size=14), st.randoms())
def test_parts_sum_to_the_union_and_equal_a_count_of_moments(spans: list[Any], random: Any) -> None:
    makers = [kernel, talk, lambda a, b: copy(a, b, "H2D"), lambda a, b: copy(a, b, "D2H")]
    made = [makers[kind](start, start + length) for kind, start, length in spans]
    shuffled = random.sample(made, len(made))
    with tempfile.TemporaryDirectory() as folder:
        tables = [
            analyze(make_run(Path(folder) / str(number), device_intervals=rows_), "overlap").tables
            for number, rows_ in enumerate((made, shuffled))
        ]
    assert tables[0].keys() == tables[1].keys()
    for name, table in tables[0].items():
        pd.testing.assert_frame_equal(table, tables[1][name])
    if "whole" not in tables[0]:
        assert all(kind == 0 for kind, _, _ in spans)
        return

    def moments(*kinds: int) -> set[int]:
        return {t for kind, start, length in spans if kind in kinds for t in range(start, start + length)}

    expected = {
        "communication": (moments(1), moments(0)),
        "all copies": (moments(2, 3), moments(0, 1)),
        "H2D": (moments(2), moments(0, 1)),
        "D2H": (moments(3), moments(0, 1)),
    }
    for what, union, exposed, hidden in rows(tables[0]["whole"], *PARTS):
        own, others = expected[what]
        assert (union, exposed, hidden) == (len(own), len(own - others), len(own & others))


def test_amounts_are_said_with_three_digits() -> None:
    assert [duration(ns) for ns in (999, 1_000, 123_456_789, 4_560_000_000)] == [
        "999 ns",
        "1 µs",
        "123 ms",
        "4.56 s",
    ]
    assert [size(count) for count in (512, 1536, 600 << 20, 3 << 30)] == [
        "512 B",
        "1.5 KiB",
        "600 MiB",
        "3 GiB",
    ]
    assert percent(1) == "100.0%"


def busy_step(*rows: Row) -> list[Row]:
    """A computing kernel of 500 ns, and these."""
    return [kernel(500, 1_000, **{C.STREAM: 1}), *rows]


def advised(path: Path, *rows: Row) -> list[str]:
    return [finding.code for finding in analyze(make_run(path, device_intervals=rows), "overlap").findings]


@pytest.mark.slow
def test_pinned_copies_on_a_stream_of_their_own_get_no_advice(tmp_path: Path) -> None:
    pinned = {C.SRC_MEMORY: "pinned", C.DST_MEMORY: "device"}
    assert advised(tmp_path / "own", *busy_step(copy(0, 400, "H2D", **pinned))) == []
    same = copy(0, 400, "H2D", **{**pinned, C.STREAM: 1})
    assert advised(tmp_path / "same", *busy_step(same)) == ["exposed_copies"]
    pageable = copy(0, 400, "H2D", **{**pinned, C.SRC_MEMORY: "pageable"})
    assert advised(tmp_path / "pageable", *busy_step(pageable)) == ["exposed_copies"]


def test_migrations_of_managed_memory_get_no_advice(tmp_path: Path) -> None:
    for memory, found in (("unified", []), ("pageable", ["exposed_copies"])):
        moved = copy(0, 400, "D2H", **{C.DST_MEMORY: memory})
        assert advised(tmp_path / memory, *busy_step(moved)) == found


def test_communication_that_mostly_waits_gets_no_advice(tmp_path: Path) -> None:
    """Two ranks: of the time of both, waiting for rank 1 is 60%, or 20%."""
    for late, found in ((1_200_000, []), (400_000, ["exposed_communication"])):
        rows = [
            row
            for k in range(4)
            for rank in range(2)
            for row in (
                kernel(3_000_000 * k, 3_000_000 * k + 900_000, **{C.RANK: rank, C.STREAM: 1}),
                talk(3_000_000 * k + 1_000_000 + late * rank, 3_000_000 * k + 2_600_000, **{C.RANK: rank}),
            )
        ]
        assert advised(tmp_path / str(late), *rows) == found


def test_a_collective_longer_than_a_larger_one_waits(tmp_path: Path) -> None:
    """One rank: 3 of 4 collectives take 10 times as long as one of more bytes."""
    ops = [
        host(
            "record_param_comms", 10 * k, 10 * k + 5, input_shapes=f"[[{100 + k}]]", input_dtypes='["float"]'
        )
        for k in range(4)
    ]
    for longest, found in ((1_000, []), (100, ["exposed_communication"])):
        rows: list[Row] = []
        for k in range(4):
            start = 3_000 * k
            took = 100 if k == 3 else longest
            rows += [kernel(start, start + 900, **{C.STREAM: 1})]
            rows += [talk(start + 1_000, start + 1_000 + took, op_row=k)]
        run = make_run(tmp_path / str(longest), host_intervals=ops, device_intervals=rows)
        assert [finding.code for finding in analyze(run, "overlap").findings] == found


@pytest.mark.slow
def test_a_collective_that_varies_over_the_steps_is_mostly_waiting(tmp_path: Path) -> None:
    """One rank without metadata: what exceeds the shortest step is waiting, which overlap cannot hide."""
    for times, severity, saving in (
        ([1_000, 4_000, 4_000, 3_000], "info", 1_000),
        ([2_900, 3_100, 3_000, 3_000], "warn", 3_000),
    ):
        steps, found = [], []
        for k, time in enumerate(times):
            begin = 10_000_000 * k
            steps.append(step(k, begin, begin + 10_000_000))
            found.append(kernel(begin, begin + 5_000_000, **{C.STREAM: 1, C.STEP: k}))
            found.append(talk(begin + 5_000_000, begin + 5_000_000 + 1_000 * time, **{C.STEP: k}))
        run = make_run(tmp_path / severity, steps=steps, device_intervals=found)
        (finding,) = analyze(run, "overlap").findings
        assert (finding.severity, finding.saving_ns_per_step) == (severity, 1_000 * saving)
        said = "the same all_reduce takes 1 ms to 4 ms over the steps" in finding.advice
        assert said == (severity == "info")
