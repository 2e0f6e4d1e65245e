from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from tracekit.analyses import critical_path
from tracekit.analyses.critical_path import NO_HOST, UNLINKED_NOTE, backtrack, whatif
from tracekit.analyses.critical_path import host as path_host
from tracekit.analyses.critical_path.whatif import WhatIf
from tracekit.analyses.shared import groups
from tracekit.analyses.shared import host_columns as shared_columns
from tracekit.analyses.shared.common import NO_DEVICE, NO_STEPS, NOT_RECORDED

from samples.simulator import Program, write
from tests.builders import Row, device, host, kernel, make_run, memcpy, step
from tests.tiers import examples
from tests.traces import imported
from tracekit.analysis import Result, analyze
from tracekit.analysis.savings import budget
from tracekit.runs.store import Store
from tracekit.schema import C, DeviceKind, HostKind

if TYPE_CHECKING:
    from tracekit.runs.run import Run

OUT = "(no op recorded)"


def call(start: int, end: int, name: str = "cudaLaunchKernel", **more: Any) -> Row:
    return host(name, start, end, kind=HostKind.RUNTIME, **more)


def launched(row: int, start: int, end: int, **more: Any) -> Row:
    return kernel(start, end, **{C.LAUNCH_ROW: row, C.STREAM: 7, **more})


def waits(start: int, end: int, name: str = "cudaDeviceSynchronize") -> Row:
    return host(name, start, end, kind=HostKind.SYNC)


def path(result: Result) -> list[tuple[str, str, int, int]]:
    table = result.tables["segments"].sort_values([C.RANK, C.START_NS])
    columns = (table[C.KIND], table["op"], table[C.START_NS], table[C.DUR_NS])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_without_device_or_anything_the_notes_say_why(tmp_path: Path) -> None:
    empty = analyze(make_run(tmp_path), "critical_path")
    assert (empty.tables, empty.findings, empty.notes) == ({}, (), (NO_DEVICE,))
    blind = analyze(make_run(tmp_path / "blind", host_intervals=[call(0, 5)]), "critical_path")
    assert (blind.tables, blind.notes) == ({}, (NOT_RECORDED,))


def test_streams_alone_give_a_path_with_gaps(tmp_path: Path) -> None:
    rows = [
        kernel(0, 100, **{C.STREAM: 7}),
        kernel(130, 200, **{C.STREAM: 7}),
        memcpy(40_200, 40_300, **{C.STREAM: 7}),
        kernel(10, 40_250, **{C.STREAM: 8}),
    ]
    result = analyze(make_run(tmp_path, device_intervals=rows), "critical_path")
    assert path(result) == [
        ("compute", "kernel", 0, 100),
        ("kernel-to-kernel delay", "kernel", 100, 30),
        ("compute", "kernel", 130, 70),
        ("device gap, cause unknown", "memcpy", 200, 40_000),
        ("memcpy", "memcpy", 40_200, 100),
    ]
    assert result.notes == (NO_STEPS, NO_HOST)
    whole = result.tables["by_kind"].iloc[0].to_dict()
    assert whole == {
        "rank": 0,
        "kind": "device gap, cause unknown",
        "path_ns": 40_000,
        "share": 40_000 / 40_300,
        "segments": 1,
    }


def test_what_nothing_leads_back_from_is_unknown(tmp_path: Path) -> None:
    rows = [kernel(50, 60, **{C.STREAM: 7, C.STEP: 0})]
    run = make_run(
        tmp_path, steps=[step(0, 0, 40)], device_intervals=rows, host_intervals=[host("aten::relu", 5, 30)]
    )
    result = analyze(run, "critical_path")
    assert path(result) == [("unknown", "kernel", 0, 50), ("compute", "kernel", 50, 10)]
    assert result.notes == (UNLINKED_NOTE,)


@pytest.mark.parametrize(
    ("earlier", "kind", "saving_ns"),
    [([], "device gap, cause unknown", 10), ([(20, 100)], "launch delay", 399_020)],
)
def test_what_delays_the_first_work_on_a_stream_is_unknown(
    tmp_path: Path, earlier: list[tuple[int, int]], kind: str, saving_ns: int
) -> None:
    """Work from before the capture may occupy it; after a kernel of the capture it is known to be empty."""
    run = make_run(
        tmp_path,
        steps=[step(0, 0, 1_020)],
        host_intervals=[call(0, 10), call(1_000, 1_010)],
        device_intervals=[
            *(launched(0, *one, **{C.STEP: 0}) for one in earlier),
            launched(1, 400_010, 400_110, **{C.STEP: 0}),
        ],
    )
    result = analyze(run, "critical_path")
    assert path(result)[-2:] == [(kind, "kernel", 1_010, 399_000), ("compute", "kernel", 400_010, 100)]
    saving = result.tables["what_if"].set_index("removed")["saving_ns"]
    assert saving["launch overhead"] == saving_ns


def test_a_kernel_that_starts_before_the_last_ended_is_bound_by_it(tmp_path: Path) -> None:
    rows = [kernel(start, end, **{C.STREAM: 7}) for start, end in ((0, 10), (8, 20), (20, 20), (20, 26))]
    result = analyze(make_run(tmp_path, device_intervals=rows), "critical_path")
    assert path(result) == [
        ("compute", "kernel", 0, 8),
        ("compute", "kernel", 8, 12),
        ("compute", "kernel", 20, 6),
    ]


def test_a_call_without_op_on_the_host_and_a_blocking_copy(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        steps=[step(0, 0, 100)],
        host_intervals=[
            host("ProfilerStep#0", 0, 100, kind=HostKind.ANNOTATION),
            host("aten::item", 10, 70, **{C.PARENT_ROW: 0, C.DEPTH: 1}),
            call(20, 60, "cudaMemcpyAsync", **{C.PARENT_ROW: 1, C.DEPTH: 2}),
            waits(80, 90) | {C.PARENT_ROW: 0, C.DEPTH: 1},
        ],
        device_intervals=[
            launched(2, 30, 55, **{C.OP_ROW: 1, C.STEP: 0, C.SRC_MEMORY: "pageable"})
            | {C.KIND: DeviceKind.MEMCPY, C.NAME: "memcpy"}
        ],
    )
    result = analyze(run, "critical_path")
    assert path(result) == [
        ("CPU outside ATen ops", OUT, 0, 10),
        ("CPU op", "aten::item", 10, 10),
        ("launch call", "aten::item", 20, 10),
        ("memcpy", "aten::item", 30, 25),
        ("launch call", "aten::item", 55, 5),
        ("CPU op", "aten::item", 60, 10),
        ("CPU outside ATen ops", OUT, 70, 10),
        ("sync call", OUT, 80, 10),
        ("CPU outside ATen ops", OUT, 90, 10),
    ]
    removed = result.tables["what_if"].set_index("removed")["saving_ns"]
    assert removed["sync waits"] == 45  # the copy still ends at 55, the host is done by 50


@pytest.mark.slow_except(1)
@pytest.mark.parametrize(("end", "kinds"), [(60, ["compute", "runtime call"]), (15, ["runtime call"])])
def test_freeing_memory_waits_for_the_device_where_it_has_work(
    tmp_path: Path, end: int, kinds: list[str]
) -> None:
    calls = [call(0, 5), call(20, 80, "cudaFree"), call(90, 95)]
    rows = [launched(0, 10, end), launched(2, 100, 110)]
    run = make_run(tmp_path, host_intervals=calls, device_intervals=rows)
    found = [row[0] for row in path(analyze(run, "critical_path"))]
    assert [kind for kind in found[:-1] if kind in {"compute", "runtime call"}] == kinds
    removed = analyze(run, "critical_path").tables["what_if"].set_index("where")["saving_ns"]
    # what it took beyond the wait and the time after it, and before it where the wait does not bind
    assert removed["host"] == (80 - 60 + 10 if end == 60 else 90 - 10)


def test_a_sync_that_need_not_wait_is_host_time(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        steps=[step(0, 0, 100)],
        host_intervals=[call(0, 5), host("aten::busy", 10, 70), waits(80, 90)],
        device_intervals=[launched(0, 8, 50)],
    )
    result = analyze(run, "critical_path")
    assert [row[0] for row in path(result)] == [
        "launch call",
        "CPU outside ATen ops",
        "CPU op",
        "CPU outside ATen ops",
        "sync call",
        "CPU outside ATen ops",
    ]
    removed = result.tables["what_if"].set_index("removed")["saving_ns"]
    assert removed["aten::busy"] == 30  # the sync would begin at 20, wait until 50 and still take its 10


def test_a_driver_call_within_a_sync_call_is_one_wait(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        host_intervals=[call(0, 5), waits(10, 110), waits(12, 108, "cuCtxSynchronize"), call(120, 125)],
        device_intervals=[launched(0, 8, 100), launched(3, 128, 150)],
    )
    assert [row[0] for row in path(analyze(run, "critical_path"))][:2] == ["compute", "sync call"]
    own = backtrack.read_graph(run, 0)
    assert WhatIf(own, critical_path._span(own, critical_path.step_windows(run))).recorded == 150


def test_launches_far_ahead_of_a_busy_device_leave_the_path_to_it(tmp_path: Path) -> None:
    """No launch finds its stream empty, so no latency is known; it is taken to be small."""
    ms = 1_000_000
    run = make_run(
        tmp_path,
        host_intervals=[call(10_000 * k, 10_000 * k + 5_000) for k in range(5)],
        device_intervals=[
            kernel(-ms, 2 * ms, **{C.STREAM: 7}),
            *(launched(k, (2 + k) * ms, (3 + k) * ms) for k in range(5)),
        ],
    )
    assert {row[0] for row in path(analyze(run, "critical_path"))} == {"compute"}


@pytest.mark.parametrize(("late", "kind"), [(15_000, "kernel-to-kernel delay"), (25_000, None)])
def test_a_stream_that_resumes_when_another_ends_waited_for_it(
    tmp_path: Path, late: int, kind: str | None
) -> None:
    run = make_run(
        tmp_path,
        host_intervals=[call(0, 5_000), call(6_000, 11_000), call(12_000, 17_000)],
        device_intervals=[
            launched(0, 20_000, 30_000),
            launched(1, 20_000, 500_000, **{C.STREAM: 8}),
            launched(2, 500_000 + late, 600_000),
        ],
    )
    kinds = [row[0] for row in path(analyze(run, "critical_path"))]
    assert (kinds[-3:] == ["compute", kind, "compute"]) == (kind is not None)
    assert ("device gap, cause unknown" in kinds) == (kind is None)


def test_time_between_the_steps_is_no_saving_of_a_step(tmp_path: Path) -> None:
    pause = 1_000_000
    run = make_run(
        tmp_path,
        steps=[step(0, 0, 1_000), step(1, pause, pause + 1_000)],
        host_intervals=[call(0, 5), waits(10, 900), call(pause + 600, pause + 605)],
        device_intervals=[
            launched(0, 10, 880, **{C.STEP: 0}),
            launched(2, pause + 610, pause + 1_000, **{C.STEP: 1}),
        ],
    )
    table = analyze(run, "critical_path").tables["what_if"].set_index("removed")
    out = table.loc[OUT]
    assert out["path_ns"] == (100 + 600) // 2  # after the wait, and from the second step's start to its call
    assert out["saving_ns"] <= out["path_ns"]
    assert (table["saving_share"] <= 1).all()
    assert (table["new_step_ns"] + table["saving_ns"] - 1_000).abs().max() <= 1


@pytest.mark.slow_except(1)
@pytest.mark.parametrize("seed", range(6))
def test_no_finding_saves_more_than_the_step_or_speaks_without_end(tmp_path: Path, seed: int) -> None:
    chance = np.random.default_rng(seed)
    name, program = "x" * 3_000, Program()
    for _ in range(3):
        program.wait(int(chance.integers(0, 10_000_000)))  # between the steps
        with program.step():
            for _ in range(4):
                program.wait(int(chance.integers(0, 300_000)))
                with program.op(name):
                    program.kernel("short", int(chance.integers(0, 200_000)))
                if chance.integers(0, 2):
                    program.synchronize()
    run = imported(Store(tmp_path / "store"), write(program, tmp_path / "trace.json"))
    allowed = budget(run)
    for analysis in ("idle_gaps", "sync_points", "launch_latency", "critical_path"):
        for finding in analyze(run, analysis).findings:
            assert 0 < (finding.saving_ns_per_step or 1) <= allowed.step_ns
            assert len(finding.title) < 250
            assert finding.title[0].isupper() or finding.title.startswith("cuda")


def recorded_wait(stream: int) -> list[Row]:
    """Two streams, a wait of one of them for the other, and a late kernel on stream 9."""
    return [
        launched(0, 10, 500),
        launched(2, 505, 600, **{C.STREAM: 9}),
        device(DeviceKind.SYNC, 20, 500, **{C.NAME: "Stream Wait Event", C.LAUNCH_ROW: 1, C.STREAM: stream}),
    ]


@pytest.mark.parametrize(("stream", "first"), [(9, "compute"), (7, "launch delay")])
def test_a_recorded_wait_counts_for_its_own_stream_only(tmp_path: Path, stream: int, first: str) -> None:
    calls = [call(0, 5), call(6, 8, "cudaStreamWaitEvent"), call(10, 15)]
    run = make_run(tmp_path, host_intervals=calls, device_intervals=recorded_wait(stream))
    kinds = [row[0] for row in path(analyze(run, "critical_path"))]
    assert first in kinds[:-1]
    assert ("kernel-to-kernel delay" in kinds) == (stream == 9)


def test_a_sync_of_a_known_stream_does_not_wait_for_another(tmp_path: Path) -> None:
    rows = [
        launched(0, 10, 100),
        launched(1, 20, 200, **{C.STREAM: 9}),
        launched(3, 215, 300),
        device(DeviceKind.SYNC, 30, 205, **{C.NAME: "Stream Sync", C.LAUNCH_ROW: 2, C.STREAM: 7}),
    ]
    calls = [call(0, 5), call(6, 9), waits(30, 205, "cudaStreamSynchronize"), call(210, 212)]
    found = path(analyze(make_run(tmp_path, host_intervals=calls, device_intervals=rows), "critical_path"))
    assert found[:2] == [("compute", "kernel", 10, 90), ("sync call", OUT, 100, 105)]


def test_the_parts_of_a_graph_wait_for_each_other(tmp_path: Path) -> None:
    rows = [launched(0, 10, 40), launched(0, 45, 90, **{C.STREAM: 9}), launched(0, 95, 120)]
    run = make_run(tmp_path, host_intervals=[call(0, 5, "cudaGraphLaunch")], device_intervals=rows)
    assert [row[0] for row in path(analyze(run, "critical_path"))] == [
        "compute",
        "kernel-to-kernel delay",
        "compute",
        "kernel-to-kernel delay",
        "compute",
    ]


def test_ranks_and_devices_stay_apart(tmp_path: Path) -> None:
    rows = [
        kernel(0, 10, **{C.STREAM: 7}),
        kernel(5, 40, **{C.STREAM: 7, C.DEVICE: 1}),
        kernel(100, 130, **{C.STREAM: 7, C.RANK: 1}),
    ]
    table = analyze(make_run(tmp_path, device_intervals=rows), "critical_path").tables["by_kind"]
    assert table[["rank", "kind", "path_ns"]].to_numpy().tolist() == [
        [0, "compute", 35],
        [0, "unknown", 5],
        [1, "compute", 30],
    ]


def random_program(seed: int) -> Program:
    """Kernels, copies, waits, threads and pauses in any order on two streams of two devices."""
    chance = np.random.default_rng(seed)
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(12):
                size, pause = int(chance.integers(0, 30_000)), int(chance.integers(0, 9_000))
                place: dict[str, Any] = {"stream": int(chance.integers(7, 9))}
                place["device"] = int(chance.integers(0, 2))
                program.wait(pause)
                with program.op(f"aten::op{chance.integers(0, 3)}"):
                    _act(program, int(chance.integers(0, 7)), size, place)
    return program


def _act(program: Program, what: int, size: int, place: dict[str, Any]) -> None:
    match what:
        case 0:
            program.copy("H2D", 10 * size, **place)
        case 1:
            program.synchronize(device=place["device"])
        case 2:
            program.wait_event(stream=7, on_stream=8, device=place["device"])
        case 3:
            with program.thread(2000), program.op("autograd::engine::evaluate_function: AddBackward0"):
                program.kernel("backward", size, **place)
        case _:
            program.kernel("forward", size, delay_ns=4_000 + size % 7 * 3_000, **place)


def shuffled(run: Run, where: Path) -> Run:
    """The same rows written in another order."""
    tables = {}
    for name in ("steps", "host_intervals", "device_intervals"):
        rows: list[Row] = run.arrow(name).to_pylist()
        random.Random(0).shuffle(rows)
        tables[name] = rows
    return make_run(where, **tables)


@pytest.mark.slow
@settings(max_examples=examples(8))
@given(st.integers(0, 10**6))
@example(7)
def test_laws(seed: int) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name)
        run = imported(Store(directory / "store"), write(random_program(seed), directory / "trace.json"))
        result = analyze(run, "critical_path")
        windows = analyze(run, "steps").tables["steps"].set_index(C.STEP)["own_ns"].fillna(0)
        per_step = result.tables["per_step"].groupby(C.STEP)["path_ns"].sum()
        assert per_step.tolist() == windows.tolist()
        removed = result.tables["what_if"]
        removed = removed[removed["removed"] != "sync waits"]
        assert (removed["saving_ns"] <= removed["path_ns"]).all()
        assert (removed["saving_ns"] >= 0).all()
        steps = critical_path.step_windows(run)
        own = backtrack.read_graph(run, 0)
        span = critical_path._span(own, steps)
        assert WhatIf(own, span).recorded == span.window.end
        again = analyze(shuffled(run, directory / "other"), "critical_path")
        assert again.findings == result.findings
        for table, frame in result.tables.items():
            assert_frame_equal(again.tables[table], frame)


@pytest.mark.slow_except(1)
@pytest.mark.parametrize("size", [1, 3])
def test_the_path_is_the_same_whatever_is_looked_at_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    run = imported(Store(tmp_path / "store"), write(random_program(3), tmp_path / "trace.json"))
    whole = analyze(run, "critical_path")
    for module, name in ((path_host, "_BLOCK"), (whatif, "SLICES_PER_BLOCK"), (shared_columns, "_BLOCK")):
        monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(groups, "_FEW_GROUPS", size)
    again = analyze(run, "critical_path")
    assert again.findings == whole.findings
    for table, frame in whole.tables.items():
        assert_frame_equal(again.tables[table], frame)


def test_equal_times_cannot_make_the_walk_go_round(tmp_path: Path) -> None:
    calls = [call(5, 5, "cudaMemcpy"), waits(5, 5), call(5, 5)]
    rows = [
        memcpy(5, 5, **{C.LAUNCH_ROW: 0, C.STREAM: 7}),
        launched(2, 5, 5, **{C.STREAM: 9}),
        launched(2, 5, 9),
    ]
    result = analyze(make_run(tmp_path, host_intervals=calls, device_intervals=rows), "critical_path")
    assert path(result) == [("compute", "kernel", 5, 4)]


def test_columns_of_time_are_integers_far_from_zero(tmp_path: Path) -> None:
    far = 1_700_000_000_000_000_000
    rows = [kernel(far, far + 7, **{C.STREAM: 7}), kernel(far + 9, far + 10, **{C.STREAM: 7})]
    tables = analyze(make_run(tmp_path, device_intervals=rows), "critical_path").tables
    assert tables["by_kind"]["path_ns"].tolist() == [8, 2]
    assert tables["segments"][C.START_NS].max() == far + 9
    assert isinstance(tables["what_if"], pd.DataFrame)
