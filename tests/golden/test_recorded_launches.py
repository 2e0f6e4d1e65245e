"""Recorded traces: launch configurations and zeroing of gradients.

The traces are other projects' and not part of this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tracekit.analyses.launch_config import configs

from tests.golden.test_truth import TRACES, TRUTH
from tracekit.analysis import analyze
from tracekit.schema import C

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns

ROOT = Path(__file__).parents[2]
TURING = "facebookresearch__param/linear_relu_2080ti.json.gz"
RESNET = "pytorch__kineto/resnet50_w0_torch19.json.gz"
NESTED = "facebookresearch__param/v100_dlrm_8rank/rank5.json.gz"
ESTIMATED = (TURING, NESTED, "KellerJordan__modded-nanogpt/h100_h2dprefetch_rank0.json.gz")
"""Of compute capability 7.5, 7.0 and 9.0, with the profiler's estimate of the occupancy."""
THREADS = {TURING: 1024}

needs_traces = pytest.mark.skipif(not TRUTH, reason=f"no recorded traces at {TRACES}")


@pytest.mark.skipif(bool(TRUTH), reason="the recorded traces are there")
def test_recorded_traces_are_absent() -> None:
    pytest.skip(f"no recorded traces at {TRACES}: the reference was not checked")


@needs_traces
def test_backward_threshold_kernels_belong_to_their_op(shared_runs: SharedRuns) -> None:
    table = analyze(shared_runs.of(TRACES / TURING), "launch_config").tables["relu"]
    own = table[table["direction"] == "backward"]
    keys = ["kind", "op", C.GRID_X, C.GRID_Y, C.GRID_Z, C.BLOCK_X, C.BLOCK_Y, C.BLOCK_Z, "launches"]
    assert own[keys].to_numpy().tolist() == [["relu", "aten::threshold_backward", 1024, 1, 1, 128, 1, 1, 840]]


@needs_traces
@pytest.mark.parametrize("name", ESTIMATED)
def test_resident_blocks_give_the_occupancy_the_profiler_estimated(
    name: str, shared_runs: SharedRuns
) -> None:
    """The estimate is whole percent, of what the grid fills where that is less."""
    table = analyze(shared_runs.of(TRACES / name), "launch_config").tables["configs"]
    table = table[table["occupancy"].notna()]
    block = table[configs.BLOCK].prod(axis=1).to_numpy(dtype=np.float64)
    blocks = np.minimum(table["resident_blocks"].to_numpy(dtype=np.float64), table["blocks_per_sm"])
    expected = blocks * block / THREADS.get(name, 2048)
    assert len(table) > 10
    assert np.abs(expected - table["occupancy"]).max() <= 0.01


@needs_traces
def test_zeroing_of_a_resnet_is_one_fill_per_parameter(shared_runs: SharedRuns) -> None:
    result = analyze(shared_runs.of(TRACES / RESNET), "zero_grad_gaps")
    ranges = result.tables["ranges"]
    assert ranges[["mode", "kernels", "parameters"]].to_numpy().tolist() == [["per_parameter", 161, 161]] * 6
    assert ranges["idle_ns"].tolist() == [5_712_000, 5_717_000, 5_685_000, 5_693_000, 5_687_000, 5_656_000]
    assert [(one.code, one.saving_ns_per_step) for one in result.findings] == [
        ("zero_grad_per_parameter", 5_691_666)
    ]


def test_a_run_on_the_cpu_has_ranges_and_no_device_times(shared_runs: SharedRuns) -> None:
    run = shared_runs.of(ROOT / "samples/recorded/mnist_cnn-train-zero-cpu/trace.json.gz")
    result = analyze(run, "zero_grad_gaps")
    ranges = result.tables["ranges"]
    assert ranges[["mode", "parameters"]].to_numpy().tolist() == [["per_parameter", 8]] * 3
    assert ranges[["kernels", "kernel_ns", "idle_ns", "saving_ns"]].isna().all(axis=None)
    assert (ranges[C.DUR_NS] > 0).all()
    assert "no device" in result.notes[0]
    assert result.findings == ()
