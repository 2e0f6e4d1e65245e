"""Communication kernels of each library are recognized, and similar names of other kernels are not."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tracekit.analyses.shared.collective_kinds import _kind

from tracekit.analysis.kernel_names import COMMUNICATION, LIBRARIES, read_patterns
from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [
    ("NCCL, RCCL, oneCCL", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    ("NCCL, RCCL, oneCCL", "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)"),
    ("NVSHMEM, rocSHMEM", "nvshmemi_transfer_rma_nbi"),
    ("collectives by name", "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 2>(AllReduceParams)"),
    ("collectives by name", "multimem_all_reduce_kernel<c10::BFloat16, 16>"),
    ("vLLM, SGLang, AITER: custom all-reduce", "void vllm::cross_device_reduce_1stage<__half, 8>(RankData*)"),
    ("PyTorch: symmetric memory", "c10d::symmetric_memory::put_signal_kernel(unsigned int**, int)"),
    ("PyTorch: symmetric memory", "c10d::symmetric_memory::barrier_kernel(unsigned int**, int)"),
    ("DeepEP", "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)"),
    ("DeepEP", "void deep_ep::internode_ll::combine<true, 7168, 9>(void*, void*)"),
    ("DeepEP", "void deep_ep::intranode::cached_notify_combine<8>(void**, int*, int)"),
    ("DeepEP", "void vendor::internode::notify_dispatch<false, 4>(int const*, int*)"),
    ("MORI-EP", "void mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>(EpArgs)"),
    ("Transformer Engine: user buffers", "userbuffers_fp16_sum_inplace_gpu_rr_rs<2>(int, int)"),
]
OTHERS = [
    "void deep_ep::layout::get_dispatch_layout<256, 8>(long const*, int*)",
    "triton_poi_fused__to_copy_all_gather_into_tensor_mul_3",
    "triton_red_fused_all_reduce_native_layer_norm_0",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(ReduceOp)",
    "void at::native::vectorized_gather_kernel<16, long>(char*, char*)",
    "void moe::dispatch_tokens<128>(int*)",
]


@pytest.mark.parametrize(("library", "name"), NAMES)
def test_kernels_of_a_library_are_communication(library: str, name: str) -> None:
    assert re.search(rf"(?i){LIBRARIES[library]}", name)
    assert re.search(COMMUNICATION, name)


def test_each_library_has_an_example() -> None:
    assert {library for library, _ in NAMES} == set(LIBRARIES)


@pytest.mark.parametrize("name", OTHERS)
def test_kernels_that_only_sound_alike_are_not(name: str) -> None:
    assert not re.search(COMMUNICATION, name)


def test_expert_parallel_kernels_are_all_to_all() -> None:
    assert _kind("void deep_ep::intranode::dispatch<8>(int4*)") == "all_to_all"
    assert _kind("void mori::moe::EpCombineIntraNodeKernel<float>(EpArgs)") == "all_to_all"


def test_a_project_adds_patterns(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.tracekit]\ncommunication = ["my_sum", "b|c"]\n')
    inside = tmp_path / "src" / "deep"
    inside.mkdir(parents=True)
    assert read_patterns(inside) == ["my_sum", "b|c"]
    code = "import re; from tracekit.analysis.kernel_names import COMMUNICATION as pattern;"
    code += "print([bool(re.search(pattern, name)) for name in ('void my_sum<4>()', 'ncclX', 'gemm')])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=inside, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[True, True, False]"


@pytest.mark.parametrize(
    "text", ["[tool]\nx = 1", "[tool.tracekit]\n", "tool = 3", "[[", "[tool.tracekit]\ncommunication = []"]
)
def test_other_projects_add_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert read_patterns(tmp_path) == []


@pytest.mark.parametrize("value", ['["("]', "[3]", "5"])
def test_patterns_that_are_none_are_refused(value: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.tracekit]\ncommunication = {value}\n")
    with pytest.raises(UnusableInputError, match="communication"):
        read_patterns(tmp_path)
