"""Recorded traces: launch configurations, zeroing of gradients and small kernels, against the reference.

The traces are other projects' and not part of this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from tracekit.analyses import _activations, _launch_configs

from tracekit.analysis import analyze
from tracekit.ingest import import_traces
from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.run import Run
    from tracekit.store import Store

ROOT = Path(__file__).parents[2]
TRACES = ROOT / ".." / "shared" / "traces"
REFERENCE = TRACES / "TRUTH.json"
TRUTH: dict[str, Any] = json.loads(REFERENCE.read_text()) if REFERENCE.is_file() else {}
TURING = "facebookresearch__param/linear_relu_2080ti.json.gz"
RESNET = "pytorch__kineto/resnet50_w0_torch19.json.gz"
NESTED = "facebookresearch__param/v100_dlrm_8rank/rank5.json.gz"
ESTIMATED = (TURING, NESTED, "KellerJordan__modded-nanogpt/h100_h2dprefetch_rank0.json.gz")
"""Of compute capability 7.5, 7.0 and 9.0, with the profiler's estimate of the occupancy."""
THREADS = {TURING: 1024}

needs_traces = pytest.mark.skipif(not TRUTH, reason=f"no recorded traces at {TRACES}")


def imported(store: Store, path: Path) -> Run:
    (run,) = import_traces(store, [path])
    return run


def recorded(store: Store, name: str) -> Run:
    return imported(store, TRACES / name)


@pytest.mark.skipif(bool(TRUTH), reason="the recorded traces are there")
def test_recorded_traces_are_absent() -> None:
    pytest.skip(f"no recorded traces at {TRACES}: the reference was not checked")


@pytest.mark.parametrize("name", TRUTH)
def test_relu_grids_and_zero_grad_ranges_equal_the_reference(name: str, store: Store) -> None:
    run = recorded(store, name)
    grids: Counter[str] = Counter()
    table = analyze(run, "launch_config").tables.get("relu", pd.DataFrame(columns=["told_by"]))
    for row in table[table["told_by"] != _activations.BY_OP].to_dict("records"):
        sides = [
            [None if pd.isna(row[axis]) else int(row[axis]) for axis in axes]
            for axes in (_launch_configs.GRID, _launch_configs.BLOCK)
        ]
        shown = ["null" if side == [None] * 3 else json.dumps(side) for side in sides]
        grids[" ".join(shown)] += int(row["launches"])
    assert dict(grids) == TRUTH[name]["relu_grids"]
    ranges = analyze(run, "zero_grad_gaps").tables.get("ranges", ())
    nested = "## zero_grad ##" in {row[C.NAME] for row in _rows(ranges)}
    assert len(ranges) == TRUTH[name]["zero_grad_ranges"] // (2 if nested else 1)


def _rows(ranges: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ranges.to_dict("records") if len(ranges) else []
    return rows


@needs_traces
def test_backward_threshold_kernels_belong_to_their_op(store: Store) -> None:
    table = analyze(recorded(store, TURING), "launch_config").tables["relu"]
    own = table[table["direction"] == "backward"]
    keys = ["kind", "op", C.GRID_X, C.GRID_Y, C.GRID_Z, C.BLOCK_X, C.BLOCK_Y, C.BLOCK_Z, "launches"]
    assert own[keys].to_numpy().tolist() == [["relu", "aten::threshold_backward", 1024, 1, 1, 128, 1, 1, 840]]


@needs_traces
@pytest.mark.parametrize("name", ESTIMATED)
def test_resident_blocks_give_the_occupancy_the_profiler_estimated(name: str, store: Store) -> None:
    """The estimate is whole percent, of what the grid fills where that is less."""
    table = analyze(recorded(store, name), "launch_config").tables["configs"]
    table = table[table["occupancy"].notna()]
    block = table[_launch_configs.BLOCK].prod(axis=1).to_numpy(dtype=np.float64)
    blocks = np.minimum(table["resident_blocks"].to_numpy(dtype=np.float64), table["blocks_per_sm"])
    expected = blocks * block / THREADS.get(name, 2048)
    assert len(table) > 10
    assert np.abs(expected - table["occupancy"]).max() <= 0.01


@needs_traces
def test_zeroing_of_a_resnet_is_one_fill_per_parameter(store: Store) -> None:
    result = analyze(recorded(store, RESNET), "zero_grad_gaps")
    ranges = result.tables["ranges"]
    assert ranges[["mode", "kernels", "parameters"]].to_numpy().tolist() == [["per_parameter", 161, 161]] * 6
    assert ranges["idle_ns"].tolist() == [5_712_000, 5_717_000, 5_685_000, 5_693_000, 5_687_000, 5_656_000]
    assert [(one.code, one.saving_ns_per_step) for one in result.findings] == [
        ("zero_grad_per_parameter", 5_691_666)
    ]


def test_a_run_on_the_cpu_has_ranges_and_no_device_times(store: Store) -> None:
    run = imported(store, ROOT / "samples/recorded/mnist_cnn-train-zero-cpu/trace.json.gz")
    result = analyze(run, "zero_grad_gaps")
    ranges = result.tables["ranges"]
    assert ranges[["mode", "parameters"]].to_numpy().tolist() == [["per_parameter", 8]] * 3
    assert ranges[["kernels", "kernel_ns", "idle_ns", "saving_ns"]].isna().all(axis=None)
    assert (ranges[C.DUR_NS] > 0).all()
    assert "no device" in result.notes[0]
    assert result.findings == ()
