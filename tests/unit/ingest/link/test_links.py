"""Links of rows: launches, ops, steps, phases, modules and allocations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from samples.simulator import Kind, Program, trace
from tests.traces import busy_program, imported, table
from tracekit.ingest.link.steps import Steps
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store


def run_of(store: Store, tmp_path: Path, program: Program, **change: Any) -> Run:
    """The run of a program's trace, some of its events left out or changed."""
    document = json.loads(trace(program))
    keep = change.pop("keep", lambda event: True)
    document["traceEvents"] = [event for event in document["traceEvents"] if keep(event)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document | change))
    return imported(store, path)


@pytest.fixture
def busy(store: Store, tmp_path: Path) -> Run:
    return run_of(store, tmp_path, busy_program())


def device_rows(run: Run) -> pd.DataFrame:
    frame = table(run, "device_intervals")
    return frame[frame[C.KIND] != "idle"]


def named(run: Run, rows: pd.Series) -> list[str | None]:
    """Names of host rows."""
    names = table(run, "host_intervals").set_index(C.ROW_ID)[C.NAME]
    return [None if row != row or row is None else str(names[int(row)]) for row in rows.astype("float")]


def test_device_rows_link_to_their_call_and_op(busy: Run) -> None:
    rows = device_rows(busy)
    first = rows[rows[C.STEP] == 0]
    assert dict(zip(first[C.NAME], named(busy, first[C.LAUNCH_ROW]), strict=True)) == {
        "Memcpy HtoD (Pageable -> Device)": "cudaMemcpyAsync",
        "gemm": "cudaLaunchKernel",
        "fused": "cudaGraphLaunch",
        "Memset (Device)": "cudaMemsetAsync",
    }
    assert sorted(set(zip(first[C.NAME], named(busy, first[C.OP_ROW]), strict=True))) == [
        ("Memcpy HtoD (Pageable -> Device)", "aten::to"),
        ("Memset (Device)", None),
        ("fused", "aten::add_"),
        ("gemm", "aten::addmm"),
        ("gemm", "aten::mm"),
    ]


def test_kernels_of_a_graph_share_its_launch(busy: Run) -> None:
    fused = device_rows(busy).query("name == 'fused' and step == 0")
    assert len(fused) == 2
    assert fused[C.LAUNCH_ROW].nunique() == 1
    assert fused[C.GRAPH_NODE_ID].tolist() == [1, 2]


def test_without_runtime_events_ops_are_found_by_external_id(store: Store, tmp_path: Path) -> None:
    run = run_of(store, tmp_path, busy_program(), keep=lambda event: event.get("cat") != "cuda_runtime")
    rows = device_rows(run)
    assert rows[C.LAUNCH_ROW].isna().all()
    assert set(named(run, rows[C.OP_ROW])) == {"aten::to", "aten::addmm", "aten::mm", "aten::add_", None}
    assert "unlinked" in {diagnostic.code for diagnostic in run.meta.diagnostics}
    assert set(rows[C.STEP].dropna()) == {0, 1}  # by their starts: no call says that they precede the capture


def test_device_rows_belong_to_the_step_that_launched_them(store: Store, tmp_path: Path) -> None:
    program = Program()
    for _ in range(2):
        with program.step():
            program.kernel("long", 1_000_000)
    rows = device_rows(run_of(store, tmp_path, program))
    assert rows[C.STEP].tolist() == [0, 1]  # though the second starts long after its step's end


def test_the_step_of_an_instant_is_found_in_any_window() -> None:
    start, end = np.array([10, 20, 40]), np.array([20, 30, 50])
    steps = Steps(number=np.array([5, 6, 7]), name=["a", "b", "c"], start=start, end=end)
    times = np.arange(8, 53)
    expected = [
        next((n for n, a, b in zip((5, 6, 7), start, end, strict=True) if a <= t < b), -1) for t in times
    ]
    for first in range(len(times)):
        for stop in (first, first + 1, first + 12, len(times)):
            assert steps.at(times[first:stop]).tolist() == expected[first:stop]


def test_phases_follow_the_markers(busy: Run) -> None:
    rows = table(busy, "host_intervals")
    phases = rows[rows[C.KIND] == "op"].groupby(C.NAME)[C.PHASE].first()
    assert phases["aten::mm"] == "backward"
    assert phases["aten::add_"] == "optimizer"
    calls = rows[rows[C.NAME] == "cudaMemsetAsync"]
    assert set(calls[C.PHASE]) == {"zero_grad"}
    assert set(rows[rows[C.NAME].str.startswith("enumerate(DataLoader)")][C.PHASE]) == {"dataload"}


def test_forward_ops_have_a_sequence_number_or_a_module(store: Store, tmp_path: Path) -> None:
    program = Program()
    with program.step():
        with program.op("aten::linear", **{"Sequence number": 3, "Fwd thread id": 0}), program.op("aten::t"):
            pass
        with program.span(Kind.PYTHON, "nn.Module: ReLU_0"), program.op("aten::relu"):
            pass
        with program.op("aten::sub"):
            pass
    rows = table(run_of(store, tmp_path, program), "host_intervals").set_index(C.NAME)
    assert rows.loc[["aten::linear", "aten::t", "aten::relu"], C.PHASE].tolist() == ["forward"] * 3
    assert rows.loc["aten::sub", C.PHASE] not in {"forward", "backward"}
    assert rows.loc["aten::relu", C.MODULE] == "nn.Module: ReLU_0"


def test_parents_enclose_their_children_on_the_thread(busy: Run) -> None:
    rows = table(busy, "host_intervals").set_index(C.ROW_ID)
    inner = rows[rows[C.PARENT_ROW].notna()]
    outer = rows.loc[inner[C.PARENT_ROW].astype(int)]
    assert (outer[C.TID].to_numpy() == inner[C.TID].to_numpy()).all()
    assert (outer[C.START_NS].to_numpy() <= inner[C.START_NS].to_numpy()).all()
    assert (outer[C.DEPTH].to_numpy() + 1 == inner[C.DEPTH].to_numpy()).all()
    assert (rows.loc[rows[C.PARENT_ROW].isna(), C.DEPTH] == 0).all()


def test_allocations_link_to_their_op(busy: Run) -> None:
    rows = table(busy, "allocations")
    assert rows[C.BYTES].tolist() == [128, -128] * 2
    assert named(busy, rows[C.OP_ROW]) == ["aten::addmm", None] * 2


def test_copies_have_direction_and_memory(busy: Run) -> None:
    copies = device_rows(busy).query("kind == 'memcpy'")
    assert set(zip(copies[C.COPY_KIND], copies[C.SRC_MEMORY], copies[C.DST_MEMORY], strict=True)) == {
        ("H2D", "pageable", "device")
    }
    assert set(copies[C.BYTES]) == {96}


def test_blocking_calls_are_of_kind_sync(busy: Run) -> None:
    rows = table(busy, "host_intervals")
    assert set(rows[rows[C.KIND] == "sync"][C.NAME]) == {"cudaStreamSynchronize", "cudaDeviceSynchronize"}
