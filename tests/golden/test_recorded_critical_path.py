"""Recorded traces: the laws of the critical path hold where times tie and streams are many."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.traces import imported
from tracekit.analysis import analyze
from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.analysis import Result
    from tracekit.store import Store

TRACES = Path(__file__).parents[2] / ".." / "shared" / "traces"
HTA = "facebookresearch__HolisticTraceAnalysis"
NAMES = (
    f"{HTA}/alexnet_critical_path.json.gz",
    f"{HTA}/cuda_event_sync_multi_stream.json.gz",
    f"{HTA}/sampled_rank0of128.json.gz",
    "AMD-AGI__TraceLens/h100_bert_small.json.gz",
    "AMD-AGI__TraceLens/b300_sglang_qwen3_decode_cudagraph.json.gz",
    "AMD-AGI__TraceLens/mi300x_ddp_resnet18.json.gz",
)
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no recorded traces at {TRACES}")


def analyzed(store: Store, name: str) -> Result:
    return analyze(imported(store, TRACES / name), "critical_path")


@pytest.mark.parametrize("name", NAMES)
def test_the_path_fills_the_windows_and_no_saving_exceeds_it(name: str, store: Store) -> None:
    run = imported(store, TRACES / name)
    tables = analyze(run, "critical_path").tables
    breakdown = analyze(run, "gpu_breakdown").tables
    windows = breakdown["per_step"] if "per_step" in tables else breakdown["whole"]
    assert tables["by_kind"]["path_ns"].sum() == windows["window_ns"].sum()
    removed = tables["what_if"]
    removed = removed[removed["removed"] != "sync waits"]
    assert (removed["saving_ns"] <= removed["path_ns"]).all()


def test_the_last_gemm_of_a_stream_that_waits_ends_the_path(store: Store) -> None:
    """The third product is launched long after the first two ended: the path is the host up to its launch."""
    segments = analyzed(store, NAMES[1]).tables["segments"]
    last = segments.loc[(segments[C.START_NS] + segments[C.DUR_NS]).idxmax()]
    assert (last[C.KIND], last["op"], last[C.DUR_NS]) == ("compute", "aten::mm", 123_000)
    assert segments.iloc[0][C.KIND] == "host outside ops"
    assert segments.iloc[0][C.DUR_NS] == 18_558_000


def test_loading_of_modules_is_found_on_the_path(store: Store) -> None:
    """Most of the time goes to runtime calls inside the first convolution, not to any kernel."""
    result = analyzed(store, NAMES[0])
    top = result.tables["by_op"].iloc[0]
    assert (top[C.KIND], top["op"]) == ("runtime call", "aten::cudnn_convolution")
    assert "is in cuda" in result.findings[0].advice


def test_kernels_that_start_early_leave_no_gap_in_a_graph(store: Store) -> None:
    kinds = analyzed(store, NAMES[4]).tables["by_kind"].set_index(C.KIND)["path_ns"]
    assert "device gap, cause unknown" not in kinds
    assert kinds["compute"] > 30 * kinds["kernel-to-kernel delay"]


def test_the_path_goes_through_the_backward_thread_and_back(store: Store) -> None:
    result = analyzed(store, NAMES[5])
    handovers = result.tables["by_kind"].set_index(C.KIND)["segments"]["thread handover"]
    assert handovers == 10  # there and back in each of five steps
