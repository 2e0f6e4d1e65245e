"""Recorded traces: the laws of the critical path hold where times tie and streams are many."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.shared_runs import analyze
from tracekit.analysis import Severity
from tracekit.schema import C

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns
    from tracekit.analysis import Result

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


def analyzed(shared_runs: SharedRuns, name: str) -> Result:
    return analyze(shared_runs.of(TRACES / name), "critical_path")


@pytest.mark.parametrize("name", NAMES)
def test_the_path_fills_the_windows_and_no_saving_exceeds_it(name: str, shared_runs: SharedRuns) -> None:
    run = shared_runs.of(TRACES / name)
    tables = analyze(run, "critical_path").tables
    breakdown = analyze(run, "gpu_breakdown").tables
    windows = breakdown["per_step"] if "per_step" in tables else breakdown["whole"]
    assert tables["by_kind"]["path_ns"].sum() == windows["window_ns"].sum()
    removed = tables["what_if"]
    removed = removed[removed["removed"] != "sync waits"]
    typical = (
        removed["removed"] == "launch overhead"
    )  # the model's latencies are typical ones, the path's are not
    slack = removed["path_ns"].where(typical, 0) // 1_000
    assert (removed["saving_ns"] <= removed["path_ns"] + slack).all()


def test_the_last_gemm_of_a_stream_that_waits_ends_the_path(shared_runs: SharedRuns) -> None:
    """The third product is launched long after the first two ended: the path is the host up to its launch."""
    segments = analyzed(shared_runs, NAMES[1]).tables["segments"]
    last = segments.loc[(segments[C.START_NS] + segments[C.DUR_NS]).idxmax()]
    assert (last[C.KIND], last["op"], last[C.DUR_NS]) == ("compute", "aten::mm", 123_000)
    assert segments.iloc[0][C.KIND] == "CPU outside ATen ops"
    assert segments.iloc[0][C.DUR_NS] == 18_558_000


def test_loading_of_modules_is_found_on_the_path(shared_runs: SharedRuns) -> None:
    """Most of the time goes to runtime calls inside the first convolution, not to any kernel."""
    result = analyzed(shared_runs, NAMES[0])
    top = result.tables["by_op"].iloc[0]
    assert (top[C.KIND], top["op"]) == ("runtime call", "aten::cudnn_convolution")
    assert result.findings == ()
    # Nor does `idle_gaps` advise on it, which is in a range that the program itself calls warm-up: only two
    # allocations come after it.
    (finding,) = analyze(shared_runs.of(TRACES / NAMES[0]), "idle_gaps").findings
    assert (finding.code, finding.severity) == ("idle_slow_call", Severity.INFO)
    assert finding.title.endswith("in 2 gaps")


def test_kernels_that_start_early_leave_no_gap_in_a_graph(shared_runs: SharedRuns) -> None:
    kinds = analyzed(shared_runs, NAMES[4]).tables["by_kind"].set_index(C.KIND)["path_ns"]
    assert "device gap, cause unknown" not in kinds
    assert kinds["compute"] > 30 * kinds["kernel-to-kernel delay"]


def test_the_path_goes_through_the_backward_thread_and_back(shared_runs: SharedRuns) -> None:
    result = analyzed(shared_runs, NAMES[5])
    handovers = result.tables["by_kind"].set_index(C.KIND)["segments"]["thread handover"]
    assert handovers == 10  # there and back in each of five steps


@pytest.mark.slow
def test_the_path_of_busy_devices_is_their_work(shared_runs: SharedRuns) -> None:
    """Ranks 3 to 7 are busy for 97% of their steps, and their hosts are steps ahead."""
    run = shared_runs.of(TRACES / "KellerJordan__modded-nanogpt" / "h100_8rank_normuon")
    table = analyze(run, "critical_path").tables["by_kind"]
    work = table[table[C.KIND].isin(["compute", "communication", "memcpy", "memset"])]
    on_device = work.groupby(C.RANK)["share"].sum()
    busy = analyze(run, "gpu_breakdown").tables["profiled_steps"].set_index(C.RANK)
    for rank in range(3, 8):
        assert on_device[rank] >= 1 - busy["idle_share"][rank] - 0.01
    assert "launch delay" not in set(table.loc[table[C.RANK] > 2, C.KIND])
