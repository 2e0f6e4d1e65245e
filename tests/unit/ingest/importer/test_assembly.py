"""Runs of one or more traces: their metadata, tables, ranks and diagnostics."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from samples.simulator import trace
from tests.traces import busy_program, imported, kernel_event, kernels_text, table
from tracekit.ingest.importer import import_recording, import_traces
from tracekit.ingest.write import Sample
from tracekit.runs.meta import Collector, RunMeta
from tracekit.runs.store import timestamp
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store


COUNTER = {"ph": "C", "name": "GPU 0", "pid": 0, "ts": 1_000_001.5, "args": {"util": 25.5}}


def run_of(store: Store, tmp_path: Path, text: str) -> Run:
    path = tmp_path / "trace.json"
    path.write_text(text)
    return imported(store, path)


def recording_meta(now: datetime) -> RunMeta:
    return RunMeta(
        run_id="20260101T000000Z-mine-000000",
        created_at=timestamp(now),
        t0_unix_ns=0,
        collector=Collector("torch", "1", {"with_stack": False}),
        environment={"gpus": [], "python": "3.11"},
    )


@pytest.mark.parametrize("recorded", [[], [COUNTER]])
def test_samples_are_merged_into_the_counters_of_the_trace(
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


def test_ranks_apart_in_time_are_reported(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for number, later in enumerate((0, 10_000_000)):
        events = [kernel_event(i, ts=later + i) for i in range(3)]
        (folder / f"t{number}.json").write_text(json.dumps({"traceEvents": events}))
    (run,) = import_traces(store, [folder])
    assert {d.code for d in run.meta.diagnostics} >= {"rank_assumed", "ranks_apart"}


def test_the_fingerprint_of_an_import_comes_from_the_trace(store: Store, tmp_path: Path) -> None:
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


def test_process_groups_of_several_ranks_are_kept_once(store: Store, tmp_path: Path) -> None:
    world = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": [0, 1]}
    alone = {"pg_name": "1", "pg_desc": "undefined", "backend_config": "cuda:nccl", "ranks": [3]}
    distributed = {"rank": 0, "world_size": 2, "pg_config": [world, alone, world, "damaged", {"ranks": 3}]}
    run = run_of(store, tmp_path, json.dumps({"distributedInfo": distributed, **json.loads(kernels_text())}))
    assert run.meta.environment["process_groups"] == [
        {"name": "0", "description": "default_pg", "backends": "cuda:nccl", "ranks": [0, 1]}
    ]


def test_a_run_contains_only_its_tables(store: Store, tmp_path: Path) -> None:
    run = run_of(store, tmp_path, kernels_text())
    assert {path.name for path in run.path.iterdir()} == {"run.json", "device_intervals.parquet"}
    assert {path.name for path in store.path.iterdir()} == {run.id, ".gitignore"}


def test_a_run_of_ranks_has_a_folder_per_table(store: Store, tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_text(kernels_text())
    (run,) = import_traces(store, [tmp_path])
    assert {path.name for path in run.path.iterdir()} == {"run.json", "device_intervals"}
    assert set(run.meta.tables) == {"device_intervals"}


def test_names_of_hosts_and_users_are_not_stored(store: Store, tmp_path: Path) -> None:
    secret = {"host_name": "secret-host", "username": "secret-user", "traceName": "/home/secret-user/t.json"}
    run = run_of(store, tmp_path, json.dumps({**secret, **json.loads(kernels_text())} | secret))
    assert "secret" not in (run.path / "run.json").read_text()


def test_ranks_become_parts_of_one_run(store: Store, tmp_path: Path) -> None:
    from tracekit.ingest.importer import import_traces

    paths = []
    for rank in range(3):
        paths.append(tmp_path / f"rank{rank}.json")
        paths[-1].write_bytes(trace(busy_program(rank=rank, world_size=3)))
    (run,) = import_traces(store, paths)
    host, device = table(run, "host_intervals"), table(run, "device_intervals")
    assert sorted(set(host[C.RANK])) == [0, 1, 2]
    assert host[C.ROW_ID].is_unique
    assert device[C.ROW_ID].is_unique
    assert device[C.START_NS].is_monotonic_increasing
    linked = device.dropna(subset=[C.LAUNCH_ROW])
    ranks = host.set_index(C.ROW_ID)[C.RANK]
    assert (ranks[linked[C.LAUNCH_ROW].astype(int)].to_numpy() == linked[C.RANK].to_numpy()).all()
