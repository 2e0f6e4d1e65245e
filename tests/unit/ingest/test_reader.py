"""Chunks that were cut in a wrong place, events that never end, and what stands around the events."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.traces import COUNT, durations, imported, kernel_event, kernels_text, table
from tracekit.ingest.importer import import_recording, import_traces
from tracekit.ingest.kineto import reader
from tracekit.ingest.write import Sample
from tracekit.runs.meta import Collector, RunMeta
from tracekit.runs.store import timestamp
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
def test_a_cut_inside_an_event_is_mended(store: Store, tmp_path: Path) -> None:
    events = [kernel_event(i, inner=[{"ph": "X", "n": n} for n in range(9)]) for i in range(COUNT)]
    run = run_of(store, tmp_path, json.dumps({"traceEvents": events}))
    assert durations(run) == [5250] * COUNT
    assert noted(run) == set()


@pytest.mark.usefixtures("chunk_bytes")
def test_a_cut_inside_a_name_is_mended(store: Store, tmp_path: Path) -> None:
    events = [kernel_event(i, name='a}, {"b' * 30) for i in range(COUNT)]
    run = run_of(store, tmp_path, json.dumps({"traceEvents": events}))
    assert durations(run) == [5250] * COUNT
    assert set(table(run, "device_intervals").query("kind == 'kernel'")[C.NAME]) == {'a}, {"b' * 30}


@pytest.mark.usefixtures("chunk_bytes")
def test_an_event_without_an_end_costs_only_itself(store: Store, tmp_path: Path) -> None:
    text = kernels_text().replace('"block": [32, 1, 1]}}, ', '"block": [32, 1, 1]}, ', 1)
    run = run_of(store, tmp_path, text)
    assert durations(run) == [5250] * (COUNT - 1)
    assert noted(run) == {"dropped_events"}


@pytest.mark.usefixtures("chunk_bytes")
@pytest.mark.parametrize("first", ["ph", "name", "args", "ts"])
@pytest.mark.parametrize("damage", ['"odd"quote"', '"odd", "x": {"y": 1', '"odd"], "z": 1'])
def test_damage_costs_one_event_whatever_its_keys_order(
    first: str, damage: str, store: Store, tmp_path: Path
) -> None:
    events = [{first: event[first], **event} for event in map(kernel_event, range(COUNT))]
    run = run_of(store, tmp_path, json.dumps({"traceEvents": events}).replace('"k7"', damage))
    assert len(durations(run)) >= COUNT - 2
    assert noted(run) == {"dropped_events"}


@pytest.mark.usefixtures("chunk_bytes")
def test_what_follows_the_events_is_read_whole(store: Store, tmp_path: Path) -> None:
    after = {"log": [{"n": n} for n in range(500)], "baseTimeNanoseconds": 1_700_000_000_000_000_000}
    text = json.dumps({"traceEvents": json.loads(kernels_text())["traceEvents"], **after})
    run = run_of(store, tmp_path, text)
    assert run.meta.t0_unix_ns == 1_700_000_000_000_000_000 + 1_000_000_500
    assert durations(run) == [5250] * COUNT


@pytest.mark.usefixtures("chunk_bytes")
def test_events_may_be_a_heap_of_noise_between_good_ones(store: Store, tmp_path: Path) -> None:
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
    events = [kernel_event(0), counter(1_000_003.5, util=50, note="text"), counter(1_000_001.5, util=25.5)]
    run = run_of(store, tmp_path, json.dumps({"traceEvents": events}))
    rows = table(run, "counters")
    assert rows[[C.T_NS, C.SOURCE, C.METRIC, C.VALUE]].to_numpy().tolist() == [
        [1_000, "torch", "GPU 0/util", 25.5],
        [3_000, "torch", "GPU 0/util", 50.0],
    ]


def recording_meta(now: datetime) -> RunMeta:
    return RunMeta(
        run_id="20260101T000000Z-mine-000000",
        created_at=timestamp(now),
        t0_unix_ns=0,
        collector=Collector("torch", "1", {"with_stack": False}),
        environment={"gpus": [], "python": "3.11"},
    )


@pytest.mark.parametrize("recorded", [[], [counter(1_000_001.5, util=25.5)]])
def test_samples_join_the_counters_of_the_trace(
    recorded: list[dict[str, Any]], store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [kernel_event(0), *recorded]}))
    peak = Sample(1_000_010_500, "process", None, "host_peak_bytes", "bytes", 5.0)
    early = Sample(1_000_000_500, "torch", 1, "device_peak_allocated_bytes", "bytes", 7.0)
    run = import_recording(store, [path], recording_meta(datetime.now(UTC)), samples=[peak, early])
    rows = table(run, "counters")
    assert rows[C.T_NS].tolist() == [0, *[1_000] * len(recorded), 10_000]
    assert rows.iloc[-1][[C.SOURCE, C.METRIC, C.UNIT, C.VALUE]].tolist() == [
        "process",
        "host_peak_bytes",
        "bytes",
        5.0,
    ]
    assert rows.iloc[0][C.DEVICE] == 1
    assert run.id == "20260101T000000Z-mine-000000"
    assert run.meta.environment["python"] == "3.11"
    assert run.meta.collector.options == {"with_stack": False}


def test_ranks_that_do_not_overlap_in_time_are_doubted(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for number, later in enumerate((0, 10_000_000)):
        events = [kernel_event(i, ts=later + i) for i in range(3)]
        (folder / f"t{number}.json").write_text(json.dumps({"traceEvents": events}))
    (run,) = import_traces(store, [folder])
    assert {d.code for d in run.meta.diagnostics} >= {"rank_assumed", "ranks_apart"}


def test_categories_that_are_not_read_are_named(store: Store, tmp_path: Path) -> None:
    events = [kernel_event(0), kernel_event(1, cat="mtia_ccp_events"), kernel_event(2, cat="Trace")]
    run = run_of(store, tmp_path, json.dumps({"traceEvents": events}))
    (noted,) = [d for d in run.meta.diagnostics if d.code == "ignored_categories"]
    assert "mtia_ccp_events (1)" in noted.message
    assert "Trace" not in noted.message


def test_the_fingerprint_of_an_import_says_what_the_trace_knows(store: Store, tmp_path: Path) -> None:
    top = {
        "deviceProperties": [{"id": 0, "name": "GPU A", "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
        "distributedInfo": {"rank": 3, "world_size": 8, "backend": "nccl"},
        "cuda_runtime_version": 12040,
        "record_shapes": 1,
    }
    run = run_of(store, tmp_path, json.dumps({**top, **json.loads(kernels_text())}))
    expected = {"gpu": "GPU A", "sm_count": 132, "compute_capability": "9.0", "world_size": 8}
    expected |= {
        "cuda": "12.4",
        "device": "cuda",
        "profiler_record_shapes": True,
        "profiler_with_stack": None,
    }
    assert {name: run.meta.fingerprint[name] for name in expected} == expected
    assert set(table(run, "device_intervals")[C.RANK]) == {3}


def test_a_run_holds_its_tables_and_nothing_else(store: Store, tmp_path: Path) -> None:
    run = run_of(store, tmp_path, kernels_text())
    assert {path.name for path in run.path.iterdir()} == {"run.json", "device_intervals.parquet"}
    assert {path.name for path in store.path.iterdir()} == {run.id, ".gitignore"}


def test_impossible_devices_and_step_numbers_are_no_hindrance(store: Store, tmp_path: Path) -> None:
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


def test_events_without_a_category_are_ops_and_kernels_of_old(store: Store, tmp_path: Path) -> None:
    op = {"ph": "X", "name": "aten::mm", "pid": "CPU functions", "tid": 1, "ts": 1, "dur": 5, "args": {}}
    run = run_of(store, tmp_path, json.dumps([op, {**op, "pid": "CUDA functions", "name": "gemm"}]))
    assert table(run, "host_intervals")[C.NAME].tolist() == ["aten::mm"]
    assert table(run, "device_intervals")[C.NAME].tolist() == ["gemm"]


def test_text_without_boundaries_is_given_up_at_a_limit(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracekit.ingest.kineto.split.EVENT_LIMIT", 10_000)
    monkeypatch.setitem(reader.read.__kwdefaults__, "chunk_bytes", 1_000)
    run = run_of(store, tmp_path, kernels_text(3)[:-20] + "}" * 200_000)
    assert len(durations(run)) >= 2
    assert noted(run) >= {"truncated"}


def test_the_thread_that_marks_most_steps_decides(store: Store, tmp_path: Path) -> None:
    def marker(number: int, start: float, dur: float, tid: int) -> dict[str, Any]:
        marked = kernel_event(number, cat="user_annotation", name=f"ProfilerStep#{number}")
        return {**marked, "ts": start, "dur": dur, "tid": tid, "args": {}}

    events = [marker(3, 0, 500, 2), marker(3, 10, 100, 1), marker(4, 110, 100, 1)]
    rows = table(run_of(store, tmp_path, json.dumps(events)), "steps")
    assert rows[[C.STEP, C.DUR_NS]].to_numpy().tolist() == [[3, 100_000], [4, 100_000]]


def test_a_run_of_ranks_has_a_folder_for_each_table_that_has_rows(store: Store, tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_text(kernels_text())
    (run,) = import_traces(store, [tmp_path])
    assert {path.name for path in run.path.iterdir()} == {"run.json", "device_intervals"}
    assert set(run.meta.tables) == {"device_intervals"}


def test_names_of_hosts_and_users_are_not_kept(store: Store, tmp_path: Path) -> None:
    secret = {"host_name": "secret-host", "username": "secret-user", "traceName": "/home/secret-user/t.json"}
    run = run_of(store, tmp_path, json.dumps({**secret, **json.loads(kernels_text())} | secret))
    assert "secret" not in (run.path / "run.json").read_text()
