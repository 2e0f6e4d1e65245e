"""Reading damaged Kineto traces: chunks cut inside events, unfinished events, unusual members."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from tests.traces import COUNT, durations, imported, kernel_event, kernels_text, notes, table
from tests.unit.ingest.kineto.scan.events import COLLECTIVE, GENERATED, KERNEL, OP, text
from tracekit.ingest.kineto import reader
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store


@pytest.fixture(params=[120, 333, 1_000, 5_000])
def chunk_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    size: int = request.param
    monkeypatch.setitem(reader.read.__kwdefaults__, "chunk_bytes", size)
    return size


def run_of(store: Store, tmp_path: Path, text: str) -> Run:
    path = tmp_path / "trace.json"
    path.write_text(text)
    return imported(store, path)


@pytest.mark.usefixtures("chunk_bytes")
def test_an_event_split_by_a_cut_is_joined(store: Store, tmp_path: Path) -> None:
    events = [kernel_event(i, inner=[{"ph": "X", "n": n} for n in range(9)]) for i in range(COUNT)]
    run = run_of(store, tmp_path, json.dumps({"traceEvents": events}))
    assert durations(run) == [5250] * COUNT
    assert noted(run) == {"nested_events"}
    assert f"{9 * COUNT} events are inside of other events" in notes(run)["nested_events"]


@pytest.mark.usefixtures("chunk_bytes")
def test_a_name_split_by_a_cut_is_joined(store: Store, tmp_path: Path) -> None:
    events = [kernel_event(i, name='a}, {"b' * 30) for i in range(COUNT)]
    run = run_of(store, tmp_path, json.dumps({"traceEvents": events}))
    assert durations(run) == [5250] * COUNT
    assert set(table(run, "device_intervals").query("kind == 'kernel'")[C.NAME]) == {'a}, {"b' * 30}


@pytest.mark.usefixtures("chunk_bytes")
def test_an_unfinished_event_is_dropped_alone(store: Store, tmp_path: Path) -> None:
    text = kernels_text().replace('"block": [32, 1, 1]}}, ', '"block": [32, 1, 1]}, ', 1)
    run = run_of(store, tmp_path, text)
    assert durations(run) == [5250] * (COUNT - 1)
    assert noted(run) == {"dropped_events"}


@pytest.mark.slow_except(8)
@pytest.mark.usefixtures("chunk_bytes")
@pytest.mark.parametrize("first", ["ph", "name", "args", "ts"])
@pytest.mark.parametrize("damage", ['"odd"quote"', '"odd", "x": {"y": 1', '"odd"], "z": 1'])
def test_damage_drops_one_event_in_any_order_of_keys(
    first: str, damage: str, store: Store, tmp_path: Path
) -> None:
    events = [{first: event[first], **event} for event in map(kernel_event, range(COUNT))]
    run = run_of(store, tmp_path, json.dumps({"traceEvents": events}).replace('"k7"', damage))
    assert len(durations(run)) >= COUNT - 2
    assert noted(run) == {"dropped_events"}


@pytest.mark.usefixtures("chunk_bytes")
def test_members_after_the_events_are_read(store: Store, tmp_path: Path) -> None:
    after = {"log": [{"n": n} for n in range(500)], "baseTimeNanoseconds": 1_700_000_000_000_000_000}
    text = json.dumps({"traceEvents": json.loads(kernels_text())["traceEvents"], **after})
    run = run_of(store, tmp_path, text)
    assert run.meta.t0_unix_ns == 1_700_000_000_000_000_000 + 1_000_000_500
    assert durations(run) == [5250] * COUNT


@pytest.mark.usefixtures("chunk_bytes")
def test_noise_between_events_is_dropped(store: Store, tmp_path: Path) -> None:
    texts = [json.dumps(kernel_event(i)) for i in range(COUNT)]
    texts.insert(7, '{"ph": "X", "name": "never ends, "args": {"a": [1, 2')
    run = run_of(store, tmp_path, '{"traceEvents": [' + ", ".join(texts) + "]}")
    assert len(durations(run)) >= COUNT - 2
    assert noted(run) >= {"dropped_events"}


def noted(run: Run) -> set[str]:
    return {diagnostic.code for diagnostic in run.meta.diagnostics if diagnostic.level != "info"}


def counter(time: float, **values: Any) -> dict[str, Any]:
    return {"ph": "C", "name": "GPU 0", "pid": 0, "ts": time, "args": values}


def test_counter_events_become_counters(store: Store, tmp_path: Path) -> None:
    of_host = {**counter(1_000_003.5, util=50, note="text"), "pid": 4711}
    named = {**counter(1_000_001.5), "pid": 1, "args": {"": 25.5}}
    events = [kernel_event(0), of_host, named]
    run = run_of(store, tmp_path, json.dumps({"traceEvents": events}))
    rows = table(run, "counters")
    assert rows[[C.T_NS, C.SOURCE, C.METRIC, C.VALUE]].to_numpy().tolist() == [
        [1_000, "torch", "GPU 0", 25.5],
        [3_000, "torch", "GPU 0/util", 50.0],
    ]
    assert rows[C.DEVICE].fillna(-1).tolist() == [1, -1]


def test_ignored_categories_are_listed(store: Store, tmp_path: Path) -> None:
    events = [kernel_event(0), kernel_event(1, cat="mtia_insight"), kernel_event(2, cat="Trace")]
    run = run_of(store, tmp_path, json.dumps({"traceEvents": events}))
    (noted,) = [d for d in run.meta.diagnostics if d.code == "ignored_categories"]
    assert "mtia_insight (1)" in noted.message
    assert "Trace" not in noted.message


def test_work_of_mtia_devices_is_device_work(store: Store, tmp_path: Path) -> None:
    device = {"cat": "mtia_ccp_events", "pid": 17}
    events = [
        kernel_event(0, **device, name="dma_request", args={"direction": "DEVICE_TO_HOST", "size": 64}),
        kernel_event(1, **device, name="pe_exe", args={"stream": 5, "correlation": 9}),
        kernel_event(2, **device, name="event_wait", args={"stream": 5}),
        kernel_event(3, cat="mtia_runtime", name="runFunction - f", args={"correlation": 9}),
    ]
    run = run_of(store, tmp_path, json.dumps({"traceEvents": events}))
    rows = table(run, "device_intervals")
    assert rows[C.KIND].tolist()[:1] + rows[rows[C.STREAM] == 5][C.KIND].tolist() == [
        "memcpy",
        "kernel",
        "sync",
    ]
    assert rows.loc[0, [C.DEVICE, C.COPY_KIND, C.BYTES]].tolist() == [17, "D2H", 64]
    (launched,) = rows.loc[rows[C.LAUNCH_ROW].notna(), C.NAME]
    assert launched == "pe_exe"


@pytest.mark.parametrize(
    ("letters", "ends"),
    [
        ("M2D", ["H2D", "pageable", "device"]),
        ("D2H", ["D2H", "device", "pinned"]),
        ("S2D", ["unknown", "unified", "device"]),
        ("D2D - P2P", ["P2P", "device", "device"]),
    ],
)
def test_copies_of_intel_devices_have_a_direction(
    letters: str, ends: list[str], store: Store, tmp_path: Path
) -> None:
    events = [kernel_event(0, cat="gpu_memcpy", name=f"zeCommandListAppendMemoryCopy({letters})[64 bytes]")]
    run = run_of(store, tmp_path, json.dumps({"traceEvents": events}))
    assert table(run, "device_intervals").loc[0, [C.COPY_KIND, C.SRC_MEMORY, C.DST_MEMORY]].tolist() == ends


def test_devices_and_steps_out_of_range_are_accepted(store: Store, tmp_path: Path) -> None:
    args = {"device": 2**40, "stream": 2**70, "grid": [1, 2]}
    events = [
        kernel_event(0, args=args),
        kernel_event(1, cat="user_annotation", name=f"ProfilerStep#{10**20}"),
        kernel_event(2, cat="user_annotation", name="ProfilerStep#4"),
        {
            **kernel_event(3, ph="i", name="[memory]"),
            "args": {"Device Type": 1, "Device Id": 2**40, "Bytes": 8},
        },
    ]
    run = run_of(store, tmp_path, json.dumps(events))
    assert set(table(run, "device_intervals")[C.DEVICE]) == {-1}
    assert table(run, "allocations")[C.DEVICE].tolist() == [-1]
    assert table(run, "steps")[C.STEP].tolist() == [4]


def test_events_without_a_category_are_legacy_ops_and_kernels(store: Store, tmp_path: Path) -> None:
    op = {"ph": "X", "name": "aten::mm", "pid": "CPU functions", "tid": 1, "ts": 1, "dur": 5, "args": {}}
    run = run_of(store, tmp_path, json.dumps([op, {**op, "pid": "CUDA functions", "name": "gemm"}]))
    assert table(run, "host_intervals")[C.NAME].tolist() == ["aten::mm"]
    assert table(run, "device_intervals")[C.NAME].tolist() == ["gemm"]


def test_text_without_boundaries_is_dropped_at_a_limit(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracekit.ingest.kineto.split.EVENT_LIMIT", 10_000)
    monkeypatch.setitem(reader.read.__kwdefaults__, "chunk_bytes", 1_000)
    run = run_of(store, tmp_path, kernels_text(3)[:-20] + "}" * 200_000)
    assert len(durations(run)) >= 2
    assert noted(run) >= {"truncated"}


def test_steps_come_from_the_thread_with_the_most(store: Store, tmp_path: Path) -> None:
    def marker(number: int, start: float, dur: float, tid: int) -> dict[str, Any]:
        marked = kernel_event(number, cat="user_annotation", name=f"ProfilerStep#{number}")
        return {**marked, "ts": start, "dur": dur, "tid": tid, "args": {}}

    events = [marker(3, 0, 500, 2), marker(3, 10, 100, 1), marker(4, 110, 100, 1)]
    rows = table(run_of(store, tmp_path, json.dumps(events)), "steps")
    assert rows[[C.STEP, C.DUR_NS]].to_numpy().tolist() == [[3, 100_000], [4, 100_000]]


def test_a_collective_keeps_its_metadata(store: Store, tmp_path: Path) -> None:
    run = run_of(
        store, tmp_path, f'{{"traceEvents": [{text({**OP, "ts": 5.5}, COLLECTIVE, KERNEL).decode()}]}}'
    )
    rows = table(run, "host_intervals").set_index(C.NAME)
    one = rows.loc["record_param_comms"]
    assert one[C.COLLECTIVE] == "_reduce_scatter_base"
    assert one[C.DTYPE] == "BFloat16"
    assert one[[C.COLLECTIVE_SEQUENCE, C.ELEMENTS_IN, C.ELEMENTS_OUT, C.GROUP_SIZE]].tolist() == [
        3,
        64,
        32,
        2,
    ]
    assert one[[C.GROUP_NAME, C.GROUP_RANKS]].tolist() == ["1", "[0, 1]"]
    assert one[C.GROUP_DESCRIPTION] == 'data "parallel"'
    assert one[[C.SPLIT_IN, C.SPLIT_OUT, C.DST_RANK]].tolist() == ["[3, 29]", "[]", 1]
    assert pd.isna(one[C.SRC_RANK])
    assert rows.loc["aten::mm", [C.ELEMENTS_IN, C.GROUP_SIZE]].isna().all()


def test_a_generated_kernel_keeps_its_source(store: Store, tmp_path: Path) -> None:
    run = run_of(
        store, tmp_path, f'{{"traceEvents": [{text({**OP, "ts": 5.5}, GENERATED, KERNEL).decode()}]}}'
    )
    rows = table(run, "host_intervals").set_index(C.NAME)
    columns = [C.KERNEL_BACKEND, C.KERNEL_FILE, C.KERNEL_HASH, C.KERNEL_KWARGS]
    assert rows.loc["triton_poi_fused_add_0", columns].tolist() == [
        "triton",
        "/cache/torchinductor/qa/cqaokwf2.py",
        "cqaokwf2",
        "XBLOCK=256",
    ]
    assert rows.loc["aten::mm", columns].isna().all()


def test_of_many_names_the_first_are_listed() -> None:
    assert reader._join_names(map(str, range(12))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"
