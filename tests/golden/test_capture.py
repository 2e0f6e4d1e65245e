"""What to record, for recorded traces: what each of them lacks, read in the files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tracekit.analyses.capture import LACKS, frameworks

from tracekit.analysis import analyze

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns

TRACES = Path(__file__).parents[2] / ".." / "shared" / "traces"
LENS, HTA = "AMD-AGI__TraceLens", "facebookresearch__HolisticTraceAnalysis"
STACKS, SHAPES, MEMORY = frameworks.STACKS, frameworks.SHAPES, frameworks.MEMORY
STEPS, MORE_STEPS, RANKS = frameworks.STEPS, frameworks.MORE_STEPS, frameworks.RANKS
TORCH, SGLANG, VLLM = "torch.profiler", "SGLang", "vLLM"
EXPECTED: dict[str, tuple[str, list[str]]] = {
    "pytorch__kineto/resnet50_w0_torch19": ("", []),
    f"{LENS}/h100_bert_small": (TORCH, [MORE_STEPS]),
    f"{LENS}/mi300x_ddp_resnet18": (TORCH, [STEPS]),
    f"{LENS}/mi210_gpu_only": (TORCH, [frameworks.CPU, STEPS]),
    f"{LENS}/b200_eager_r0of8": (VLLM, [MEMORY, STEPS, RANKS]),
    f"{LENS}/b300_sglang_qwen3_decode_cudagraph": (SGLANG, [frameworks.GRAPHS]),
    f"{LENS}/serving/sglang_decode/execution": ("", []),  # the capture of its graph is in the same folder
    f"{LENS}/vllm_decode_full_hipgraph": (VLLM, [MORE_STEPS, frameworks.GRAPHS]),
    f"{LENS}/serving/vllm_decode_full/capture_rank0": (VLLM, [frameworks.EXECUTION]),
    f"{HTA}/alexnet_critical_path": (TORCH, [STACKS, SHAPES, MEMORY, STEPS]),
    "harrisonvshen__triton-accelerated-attention/rtx3060_no_gpu_events": (
        TORCH,
        [frameworks.DEVICE, STACKS, STEPS],
    ),
    "tugot17__tokenomics-from-first-principles/rtx4090x2_llama_tp_rank0": (
        TORCH,
        [STACKS, SHAPES, MEMORY, STEPS, RANKS],
    ),
    "facebookresearch__param/v100_dlrm_8rank/rank0": (
        TORCH,
        [STACKS, MEMORY, MORE_STEPS, RANKS, frameworks.SYNC_EVENTS],
    ),
}


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"no recorded traces at {TRACES}")
@pytest.mark.parametrize("name", EXPECTED)
def test_a_trace_is_advised_what_it_lacks(name: str, shared_runs: SharedRuns) -> None:
    framework, options = EXPECTED[name]
    tables = analyze(shared_runs.of(TRACES / f"{name}.json.gz"), "capture").tables
    if not options:
        assert tables == {}
        return
    assert tables["missing"]["missing"].tolist() == [LACKS[option].missing for option in options]
    assert set(tables["lines"]["framework"]) == {framework}
