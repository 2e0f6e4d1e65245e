"""Conversion of the event tables of Nsight Systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from samples.simulator import examples, nsys
from tests.traces import table
from tests.unit.ingest.nsys.exports import (
    NAMES,
    OTHER,
    PROCESS,
    START_NS,
    Row,
    call,
    copy,
    imported,
    kernel,
    levels,
    nvtx,
    parquet,
    sqlite,
    tables,
)
from tracekit.errors import UnusableInputError
from tracekit.ingest.importer import import_traces
from tracekit.ingest.nsys.rows import describe_copy
from tracekit.ingest.nsys.sqlite import SqliteTables
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store


@pytest.fixture(params=["sqlite", "parquet"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run_of(store: Store, tmp_path: Path, made: dict[str, list[Row]], form: str = "sqlite") -> Run:
    path = sqlite(tmp_path / "run.sqlite", made) if form == "sqlite" else parquet(tmp_path / "run", made)
    return imported(store, path)


def device_rows(run: Run, kind: str) -> pd.DataFrame:
    rows = table(run, "device_intervals")
    return rows[rows[C.KIND] == kind].reset_index(drop=True)


def test_columns_of_kernels(form: str, store: Store, tmp_path: Path) -> None:
    run = run_of(store, tmp_path, tables(KERNEL=[kernel(1000, 1500, correlation=9)]), form)
    (row,) = device_rows(run, "kernel").to_dict("records")
    assert run.meta.t0_unix_ns == START_NS + 1000
    assert (row[C.NAME], row[C.START_NS], row[C.DUR_NS]) == (NAMES[1], 0, 500)
    assert (row[C.GRID_X], row[C.GRID_Y], row[C.BLOCK_X], row[C.REGISTERS]) == (8, 2, 64, 32)
    assert (row[C.STATIC_SHARED_BYTES], row[C.DYNAMIC_SHARED_BYTES]) == (16, 1024)
    assert (row[C.STREAM], row[C.CONTEXT], row[C.CORRELATION_ID]) == (7, 1, 9)


def test_columns_and_tables_that_are_absent_are_null(store: Store, tmp_path: Path) -> None:
    few = {"start": 1, "end": 5, "deviceId": 0, "streamId": 7, "shortName": 2}
    made = {"CUPTI_ACTIVITY_KIND_KERNEL": [few], "StringIds": [{"id": 2, "value": "k"}]}
    run = run_of(store, tmp_path, made)
    (row,) = device_rows(run, "kernel").to_dict("records")
    assert row[C.NAME] == "k"
    assert run.meta.t0_unix_ns == 1
    assert levels(run)["no_start_time"] == "info"
    assert device_rows(run, "kernel")[[C.GRID_X, C.CORRELATION_ID, C.GRAPH_ID]].isna().all(axis=None)


def test_unified_memory_copies_are_identified_by_kind(form: str, store: Store, tmp_path: Path) -> None:
    moved = [copy(0, 5, kind=11, source=7, target=7), copy(9, 12, kind=12, source=7, target=7)]
    plain = [copy(20, 30, kind=1, source=0, target=2), copy(30, 35, kind=8, source=2, target=5)]
    rows = device_rows(run_of(store, tmp_path, tables(MEMCPY=moved + plain), form), "memcpy")
    assert rows[C.COPY_KIND].tolist() == ["H2D", "D2H", "H2D", "D2D"]
    assert rows[C.SRC_MEMORY].tolist() == ["unified", "unified", "pageable", "device"]
    assert rows[C.NAME].tolist()[2] == "Memcpy HtoD (Pageable -> Device)"


def test_a_graph_without_nodes_is_opaque_and_neither_work_nor_idle(store: Store, tmp_path: Path) -> None:
    graph = {"start": 100, "end": 400, "deviceId": 0, "streamId": 7, "globalPid": PROCESS, "graphId": 5}
    made = tables(KERNEL=[kernel(0, 50), kernel(450, 500)], GRAPH_TRACE=[graph | {"correlationId": 3}])
    run = run_of(store, tmp_path, made)
    (row,) = device_rows(run, "graph").to_dict("records")
    assert (row[C.DUR_NS], row[C.GRAPH_ID]) == (300, 5)
    assert device_rows(run, "idle")[C.DUR_NS].tolist() == [50, 50]


def test_nodes_of_a_graph_share_its_launch(store: Store, tmp_path: Path) -> None:
    nodes = [kernel(10 * n, 10 * n + 5, correlation=4, graphId=2, graphNodeId=n) for n in (1, 2, 3)]
    run = run_of(store, tmp_path, tables(KERNEL=nodes, RUNTIME=[call(0, 2, correlation=4)]))
    rows = device_rows(run, "kernel")
    assert rows[C.GRAPH_NODE_ID].tolist() == [1, 2, 3]
    assert rows[C.LAUNCH_ROW].nunique() == 1


def test_one_correlation_id_of_two_processes_is_two_launches(form: str, store: Store, tmp_path: Path) -> None:
    made = tables(
        KERNEL=[kernel(50, 60, correlation=1), kernel(70, 80, correlation=1, process=OTHER, deviceId=1)],
        RUNTIME=[call(1, 2, correlation=1, process=OTHER), call(3, 4, correlation=1)],
    )
    run = run_of(store, tmp_path, made, form)
    pids = table(run, "host_intervals").set_index(C.ROW_ID)[C.PID]
    assert device_rows(run, "kernel")[C.LAUNCH_ROW].map(pids).tolist() == [4242, 4243]


def test_ranks_come_from_the_export(store: Store, tmp_path: Path) -> None:
    made = tables(
        KERNEL=[kernel(50, 60, correlation=1), kernel(70, 80, correlation=1, process=OTHER, deviceId=1)],
        RUNTIME=[call(1, 2, correlation=1, process=OTHER), call(3, 4, correlation=1)],
        MPI_RANKS=[{"globalPid": PROCESS, "rank": 1}, {"globalPid": OTHER, "rank": 0}],
    )
    run = run_of(store, tmp_path, made)
    rows = device_rows(run, "kernel").sort_values(C.DEVICE)
    assert rows[C.RANK].tolist() == [1, 0]
    assert rows[C.LAUNCH_ROW].notna().all()
    assert run.meta.fingerprint["world_size"] == 2


def test_without_ranks_several_processes_are_one_run_of_one_rank(store: Store, tmp_path: Path) -> None:
    made = tables(KERNEL=[kernel(5, 6), kernel(7, 8, process=OTHER, deviceId=1)])
    rows = device_rows(run_of(store, tmp_path, made), "kernel")
    assert rows[C.RANK].tolist() == [0, 0]
    assert rows[C.DEVICE].tolist() == [0, 1]


def test_calls_have_no_version_and_waits_are_of_kind_sync(store: Store, tmp_path: Path) -> None:
    made = tables(RUNTIME=[call(0, 9), call(10, 90, name=5)], OSRT_API=[call(2, 4, correlation=1, name=4)])
    host = table(run_of(store, tmp_path, made), "host_intervals")
    assert host[C.NAME].tolist() == ["cudaLaunchKernel", "poll", "cudaStreamSynchronize"]
    assert host[C.KIND].tolist() == ["runtime", "runtime", "sync"]
    assert host[C.CORRELATION_ID].isna().all()
    assert host[C.PARENT_ROW].tolist()[1] == host[C.ROW_ID].tolist()[0]
    assert set(host[C.TID]) == {77}


def test_ranges_marks_and_unclosed_ranges(form: str, store: Store, tmp_path: Path) -> None:
    made = tables(
        NVTX_EVENTS=[
            nvtx("epoch", 0, 100),
            nvtx(None, 10, 40, text_id=4),
            nvtx("across", 20, 60, kind=60),
            nvtx("here", 30, None, kind=34),
            nvtx("open", 50, None),
            nvtx("reversed", 60, 55),
            nvtx("domain", 0, None, kind=75),
        ],
        ANALYSIS_DETAILS=[{"duration": 1000}],
    )
    run = run_of(store, tmp_path, made, form)
    host = table(run, "host_intervals")
    lengths = dict(zip(host[C.NAME], host[C.DUR_NS], strict=True))
    assert lengths == {"epoch": 100, "poll": 30, "across": 40, "here": 0, "open": 950, "reversed": 0}
    assert set(host[C.NAME][host[C.UNFINISHED] == 1]) == {"open", "reversed"}
    assert set(host[C.KIND]) == {"annotation"}
    (unusable,) = (note for note in run.meta.diagnostics if note.code == "bad_duration")
    assert unusable.level == "warn"
    assert " 2 of 7 rows of NVTX_EVENTS have no usable end" in unusable.message


@pytest.mark.parametrize("name", ["ProfilerStep#{}", "step {}", "Iteration_{}", "train_step={}"])
def test_ranges_mark_steps(name: str, store: Store, tmp_path: Path) -> None:
    marks = [nvtx(name.format(number), 100 * number, 100 * number + 90) for number in (4, 5)]
    made = tables(
        NVTX_EVENTS=marks, RUNTIME=[call(410, 420, correlation=1)], KERNEL=[kernel(600, 610, correlation=1)]
    )
    run = run_of(store, tmp_path, made)
    assert table(run, "steps")[C.STEP].tolist() == [4, 5]
    assert device_rows(run, "kernel")[C.STEP].tolist() == [4]


def test_steps_of_the_profiler_take_precedence(store: Store, tmp_path: Path) -> None:
    made = tables(NVTX_EVENTS=[nvtx("ProfilerStep#1", 0, 90), nvtx("batch 7", 5, 80)])
    assert table(run_of(store, tmp_path, made), "steps")[C.STEP].tolist() == [1]


def test_ops_have_ids_shapes_and_flops(store: Store, tmp_path: Path) -> None:
    text = "aten::mm, seq = 12, op_id = 34, sizes = [[2, 3], [3, 4]], input_op_ids = [(1, 0)]"
    made = tables(
        NVTX_EVENTS=[nvtx(text, 0, 100), nvtx("MmBackward0, seq = 12, op_id = 40", 200, 300)],
        RUNTIME=[call(10, 20, correlation=1)],
        KERNEL=[kernel(30, 40, correlation=1)],
    )
    run = run_of(store, tmp_path, made)
    op, launch, backward = table(run, "host_intervals").to_dict("records")
    assert (op[C.NAME], op[C.KIND], op[C.SEQUENCE], op[C.EXTERNAL_ID]) == ("aten::mm", "op", 12, 34)
    assert (op[C.INPUT_SHAPES], op[C.FLOPS], op[C.PHASE]) == ("[[2,3],[3,4]]", 48, "forward")
    assert launch[C.PARENT_ROW] == op[C.ROW_ID]
    assert backward[C.PHASE] == "backward"
    assert device_rows(run, "kernel")[C.OP_ROW].tolist() == [op[C.ROW_ID]]


def test_allocations_of_the_driver(form: str, store: Store, tmp_path: Path) -> None:
    common = {"globalPid": PROCESS, "deviceId": 0, "address": 4096}
    made = tables(
        CUDA_GPU_MEMORY_USAGE_EVENTS=[
            {"start": 10, "bytes": 512, "memKind": 2, "memoryOperationType": 0, **common},
            {"start": 20, "bytes": 64, "memKind": 1, "memoryOperationType": 0, **common},
            {"start": 30, "bytes": 512, "memKind": 2, "memoryOperationType": 1, **common},
        ],
        KERNEL=[kernel(5, 40)],
    )
    run = run_of(store, tmp_path, made, form)
    events = table(run, "allocations")
    assert events[C.BYTES].tolist() == [512, 64, -512]
    assert events[C.DEVICE].tolist() == [0, -1, 0]
    assert events[C.T_NS].tolist() == [5, 15, 25]
    assert levels(run)["driver_allocations"] == "info"


def test_hardware_counters_are_samples(form: str, store: Store, tmp_path: Path) -> None:
    kind = (7 << 40) | 1
    made = tables(
        GPU_METRICS=[
            {"timestamp": 20, "typeId": kind, "metricId": 3, "value": 45},
            {"timestamp": 10, "typeId": kind, "metricId": 9, "value": 7},
        ],
        TARGET_INFO_GPU_METRICS=[{"typeId": kind, "metricId": 3, "metricName": "SMs Active [Throughput %]"}],
        KERNEL=[kernel(5, 40)],
    )
    rows = table(run_of(store, tmp_path, made, form), "counters").to_dict("records")
    assert [(r[C.METRIC], r[C.UNIT], r[C.VALUE], r[C.T_NS]) for r in rows] == [
        ("metric 9", "", 7.0, 5),
        ("SMs Active [Throughput %]", "%", 45.0, 15),
    ]
    assert {(r[C.SOURCE], r[C.DEVICE]) for r in rows} == {("nsys", 1)}


def test_waits_are_on_the_device_of_their_process(store: Store, tmp_path: Path) -> None:
    wait = {"start": 70, "end": 90, "deviceId": 0, "streamId": 0xFFFF_FFFF, "globalPid": OTHER}
    made = tables(
        KERNEL=[kernel(5, 6), kernel(7, 80, process=OTHER, deviceId=1)],
        SYNCHRONIZATION=[wait | {"correlationId": 4, "syncType": 4}],
    )
    (row,) = device_rows(run_of(store, tmp_path, made), "sync").to_dict("records")
    assert (row[C.NAME], row[C.DEVICE], row[C.STREAM]) == ("Context Sync", 1, -1)


def test_warnings_unrelated_to_the_gpu_are_information(store: Store, tmp_path: Path) -> None:
    said = ["No OpenGL events collected.", "Not all CUDA events might have been collected.", "fine"]
    rows = [
        {"severity": level, "text": f"{text} /home/somebody/x", "timestamp": level}
        for level, text in zip((2, 2, 1), said, strict=True)
    ]
    run = run_of(store, tmp_path, tables(KERNEL=[kernel(1, 2)], DIAGNOSTIC_EVENT=rows))
    found = [(str(one.level), one.message) for one in run.meta.diagnostics if one.code == "nsys_diagnostic"]
    assert found == [("info", f"nsys: {said[0]} ~/x"), ("warn", f"nsys: {said[1]} ~/x")]


def test_environment_variables_are_not_read(store: Store, tmp_path: Path) -> None:
    made = tables(
        KERNEL=[kernel(1, 2)],
        META_DATA_CAPTURE=[{"name": "ENVIRONMENT:API_TOKEN", "value": "sesame-7081"}],
        META_DATA_EXPORT=[{"name": "EXPORT_HOST", "value": "host-7081"}],
        TARGET_INFO_SYSTEM_ENV=[{"name": "Hostname", "value": "host-7081"}],
        PROCESSES=[{"globalPid": PROCESS, "pid": 4242, "name": "/home/user-7081/train"}],
    )
    run = run_of(store, tmp_path, made)
    assert not [path.name for path in run.path.rglob("*") if path.is_file() and b"7081" in path.read_bytes()]


def test_an_export_without_events_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(
        UnusableInputError, match="has no events that are read: the export has no CUDA tables"
    ):
        run_of(store, tmp_path, tables())


def test_tables_of_events_that_are_not_read_are_named(form: str, store: Store, tmp_path: Path) -> None:
    made = tables(KERNEL=[kernel(1, 2)], SCHED_EVENTS=[{"start": 5, "cpu": 1}])
    made |= {"CUDNN_EVENTS": [{"start": 5, "end": 6}], "PROCESSES": [{"globalPid": 1, "pid": 2, "name": "x"}]}
    said = {one.code: one.message for one in run_of(store, tmp_path, made, form).meta.diagnostics}
    assert said["unread_tables"].endswith(": tables of events that are not read: CUDNN_EVENTS, SCHED_EVENTS")
    domain = [{"start": 0, "end": None, "eventType": 75}]
    (tmp_path / "other").mkdir()
    with pytest.raises(UnusableInputError, match="not read: CUDNN_EVENTS"):
        run_of(store, tmp_path / "other", {"CUDNN_EVENTS": made["CUDNN_EVENTS"], "NVTX_EVENTS": domain}, form)


def test_names_without_the_table_of_texts_are_said_to_be_unknown(store: Store, tmp_path: Path) -> None:
    made = tables(KERNEL=[kernel(1, 2)])
    assert "no_names" not in levels(run_of(store, tmp_path, made))
    (tmp_path / "other").mkdir()
    del made["StringIds"]
    assert levels(run_of(store, tmp_path / "other", made))["no_names"] == "warn"


def test_both_formats_of_an_export_give_the_same_run(store: Store, tmp_path: Path) -> None:
    path = nsys.write(examples.training(), tmp_path / "one.sqlite")
    opened = SqliteTables(path)
    made = {name: opened.records(name, sorted(opened.columns(name))) for name in sorted(opened.names())}
    opened.close()
    one, other = import_traces(store, [path, parquet(tmp_path / "two", made)])
    assert {name: file.sha256 for name, file in one.meta.tables.items()} == {
        name: file.sha256 for name, file in other.meta.tables.items()
    }


def test_copies_are_named_by_direction_and_memory() -> None:
    assert describe_copy(1, 0, 2)[0] == "Memcpy HtoD (Pageable -> Device)"
    assert describe_copy(12, 7, 7)[0] == "Unified Memory Memcpy DtoH"
