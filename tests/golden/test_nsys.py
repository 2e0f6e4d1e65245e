"""Recorded exports of Nsight Systems: every number equals the independent reference to the nanosecond.

The exports are other projects' and not part of this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests import tiers
from tests.traces import table
from tracekit import registry
from tracekit.analysis import analyze
from tracekit.ingest.nsys.rows import describe_copy
from tracekit.schema import C

if TYPE_CHECKING:
    import pandas as pd

    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

EXPORTS = Path(__file__).parents[2] / ".." / "shared" / "nsys"
REFERENCE = EXPORTS / "GOLDEN.json"
GOLDEN: dict[str, Any] = json.loads(REFERENCE.read_text()) if REFERENCE.is_file() else {}
LAUNCHLESS_UVM = "ynan1__aws_gpu/report2.sqlite"
OPS_ON_TWO_DEVICES = "GindaChen__nsys-ai/mfu_2gpu_before.sqlite"
WITHOUT_DEVICE = [name for name, truth in GOLDEN.items() if "device_union" not in truth]
WITH_DEVICE = tiers.thinned(
    [name for name in GOLDEN if name not in WITHOUT_DEVICE], default=(OPS_ON_TWO_DEVICES, LAUNCHLESS_UVM)
)
BLOCKING = ("cudaDeviceSynchronize", "cudaStreamSynchronize")


@pytest.mark.skipif(bool(GOLDEN), reason="the recorded exports are there")
def test_recorded_exports_are_absent() -> None:
    pytest.skip(f"no recorded exports at {EXPORTS}: the reference was not checked")


class Runs(dict[str, "Run"]):
    """The runs of exports by name, each imported when it is first asked for."""

    def __init__(self, shared_runs: SharedRuns) -> None:
        super().__init__()
        self._shared_runs = shared_runs

    def __missing__(self, name: str) -> Run:
        return self.setdefault(name, self._shared_runs.of(EXPORTS / name))


@pytest.fixture(scope="module")
def runs(shared_runs: SharedRuns) -> Runs:
    return Runs(shared_runs)


@pytest.mark.parametrize("name", WITH_DEVICE)
@pytest.mark.parametrize("kind", ["kernel", "memcpy", "memset"])
def test_rows_sums_and_instants(name: str, kind: str, runs: Runs) -> None:
    device = table(runs[name], "device_intervals")
    rows, truth = device[device[C.KIND] == kind], GOLDEN[name].get(kind)
    if truth is None:
        assert rows.empty
        return
    start = rows[C.START_NS].to_numpy() + runs[name].meta.t0_unix_ns - _session_start(name)
    found = {
        "rows": len(rows),
        "sum_ns": int(rows[C.DUR_NS].sum()),
        "first_start": int(start.min()),
        "last_end": int((start + rows[C.DUR_NS].to_numpy()).max()),
    }
    if "sum_bytes" in truth:
        found["sum_bytes"] = int(rows[C.BYTES].sum())
    assert found == truth


def _session_start(name: str) -> int:
    with sqlite3.connect(f"file:{EXPORTS / name}?mode=ro&immutable=1", uri=True) as file:
        (started,) = file.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
    file.close()
    return int(started)


@pytest.mark.parametrize("name", WITH_DEVICE)
def test_busy_idle_and_gaps_of_each_device(name: str, runs: Runs) -> None:
    whole = analyze(runs[name], "gpu_breakdown").tables["whole"]
    device = table(runs[name], "device_intervals")
    idle = device[device[C.KIND] == "idle"]
    found = {
        str(row["device"]): {
            "span_ns": row["window_ns"],
            "busy_ns": row["active_ns"] + row["movement_ns"],
            "idle_ns": row["idle_ns"],
            **_gaps(idle[idle[C.DEVICE] == row["device"]]),
        }
        for row in whole.to_dict("records")
    }
    assert found == GOLDEN[name]["device_union"]


def _gaps(idle: pd.DataFrame) -> dict[str, int]:
    length = idle[C.DUR_NS]
    return {
        "n_gaps": len(idle),
        "n_gaps_ge_1ms": int((length >= 1_000_000).sum()),
        "max_gap_ns": int(length.max()),
    }


@pytest.mark.parametrize("name", WITH_DEVICE)
def test_copies_by_direction_and_memory(name: str, runs: Runs) -> None:
    columns = [C.NAME, C.COPY_KIND, C.SRC_MEMORY, C.DST_MEMORY]
    device = table(runs[name], "device_intervals")
    copies = device[device[C.KIND] == "memcpy"].astype(dict.fromkeys(columns, str))
    grouped = copies.groupby(columns)[C.BYTES].agg(["size", "sum"])
    found = {key: (int(row["size"]), int(row["sum"])) for key, row in grouped.iterrows()}
    wanted = {
        tuple(map(str, describe_copy(kind, source, target))): (rows, size)
        for kind, source, target, rows, size in GOLDEN[name]["memcpy_by_kind"]
    }
    assert found == wanted


@pytest.mark.parametrize("name", WITH_DEVICE)
def test_launches_waits_and_pageable_copies(name: str, runs: Runs) -> None:
    device, host = table(runs[name], "device_intervals"), table(runs[name], "host_intervals")
    calls = host.set_index(C.ROW_ID)[C.NAME].astype(str)
    kernels, copies = (device[device[C.KIND] == kind] for kind in ("kernel", "memcpy"))
    asked = copies[C.LAUNCH_ROW].map(calls).fillna("").astype(str)
    pageable = (copies[C.SRC_MEMORY] == "pageable") | (copies[C.DST_MEMORY] == "pageable")
    truth = GOLDEN[name]
    assert int((asked.str.contains("Async") & pageable).sum()) == truth["async_pageable"]
    assert int(calls.isin(BLOCKING).sum()) == truth["sync_api_calls"]
    assert int(kernels[C.LAUNCH_ROW].isna().sum()) == truth["kernels_without_launch_row"]
    blocking = asked.str.contains("Memcpy") & ~asked.str.contains("Async")
    small = (copies[C.COPY_KIND] == "H2D") & (copies[C.BYTES] <= 64_000)
    assert int((blocking & ~small).sum()) == truth["sync_memcpy_over_64000B_or_notH2D"]


@pytest.mark.parametrize("name", WITH_DEVICE)
def test_a_launch_is_of_the_process_whose_work_it_is(name: str, runs: Runs) -> None:
    device, host = table(runs[name], "device_intervals"), table(runs[name], "host_intervals")
    linked = device[device[C.LAUNCH_ROW].notna() & (device[C.KIND] == "kernel")]
    call = host.set_index(C.ROW_ID).loc[linked[C.LAUNCH_ROW].astype(np.int64)]
    assert (call[C.CORRELATION_ID].to_numpy() == linked[C.CORRELATION_ID].to_numpy()).all()
    pairs = set(zip(call[C.PID].tolist(), linked[C.DEVICE].tolist(), strict=True))
    assert len(pairs) == len({device for _, device in pairs})  # here each process has a device of its own


@pytest.mark.parametrize("name", WITHOUT_DEVICE)
def test_an_export_without_device_work_is_not_taken_for_an_idle_gpu(name: str, runs: Runs) -> None:
    result = analyze(runs[name], "integrity").tables["verdict"].to_dict("records")[0]
    assert result["verdict"] == "misleading"
    assert "no device activity was recorded; this is not an idle GPU" in result["reason"]
    why = "driver version (13.3) is not supported" if "no_kernels" in name else "has no CUDA tables"
    assert why in result["reason"]
    assert "device_intervals" not in runs[name].meta.tables


@pytest.mark.parametrize("name", tiers.thinned(GOLDEN, default=WITHOUT_DEVICE[:1]))
def test_every_analysis_answers(name: str, runs: Runs) -> None:
    for analysis in registry.names(registry.ANALYSES):
        result = analyze(runs[name], analysis)
        assert result.tables or result.notes, analysis


@pytest.mark.parametrize(
    "name", tiers.thinned([name for name in GOLDEN if "mfu" in name], default=(OPS_ON_TWO_DEVICES,))
)
def test_ops_are_read_from_ranges_and_launch_what_they_enclose(name: str, runs: Runs) -> None:
    host, device = table(runs[name], "host_intervals"), table(runs[name], "device_intervals")
    ops = host[host[C.KIND] == "op"]
    assert not ops[C.NAME].astype(str).str.contains("op_id|seq =").any()
    assert ops[C.EXTERNAL_ID].notna().all()
    kernels = device[device[C.KIND] == "kernel"]
    assert kernels[C.OP_ROW].notna().mean() > 0.95


@pytest.mark.parametrize(
    "name", tiers.thinned(GOLDEN, default=(OPS_ON_TWO_DEVICES, LAUNCHLESS_UVM, *WITHOUT_DEVICE))
)
def test_nothing_of_the_environment_is_kept(name: str, runs: Runs) -> None:
    with sqlite3.connect(f"file:{EXPORTS / name}?mode=ro&immutable=1", uri=True) as file:
        file.text_factory = lambda text: text.decode("utf-8", "replace")
        there = {row[0] for row in file.execute("SELECT name FROM sqlite_master")}
        secret = {"EXPORT_HOST", "EXPORT_USER", "EXPORT_PARAM_INPUT_PATH_ABS", "Hostname"}
        named = [t for t in ("META_DATA_EXPORT", "EXPORT_META_DATA", "TARGET_INFO_SYSTEM_ENV") if t in there]
        rows = [row for one in named for row in file.execute(f"SELECT name, value FROM {one}")]  # noqa: S608 (names of tables)
    file.close()
    kept = (runs[name].path / "run.json").read_text()
    private = [value for key, value in rows if key in secret and value and len(value) > 3]
    assert private
    assert not [value for value in private if value in kept]


@pytest.mark.skipif(not GOLDEN, reason=f"no recorded exports at {EXPORTS}")
def test_migrations_that_no_call_asked_for_are_not_taken_for_lost_launches(runs: Runs) -> None:
    assert analyze(runs[LAUNCHLESS_UVM], "integrity").tables["verdict"]["verdict"].tolist() == ["good"]
