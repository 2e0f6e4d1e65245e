"""The rules for names are data of a version: what they give is held here, name by name."""

from __future__ import annotations

from hashlib import sha256

import pytest

from tracekit.analysis.kernel_names import family, shared_family
from tracekit.diff import naming
from tracekit.diff.naming import RULES_VERSION, Role, op_name, op_role, role

RULES = {4: "dabc3f3682210e66"}
"""Of each version the hash of its rules."""


def test_rules_change_with_their_version_alone() -> None:
    rules = [
        (str(with_parameters), rule) for with_parameters, rule in (*naming._KERNEL_RULES, *naming._OP_RULES)
    ]
    renames = [(rule.pattern, instead) for rule, instead in naming._OP_RENAMES]
    text = "\n".join("\t".join(pair) for pair in (*rules, *renames))
    digest = sha256(text.encode()).hexdigest()[:16]
    assert RULES.get(RULES_VERSION) == digest, "the rules changed: raise RULES_VERSION, and note the new hash"


KERNELS = {
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": (
        "ncclDevKernel_AllReduce_RING_LL_Sum_float",
        "collective",
    ),
    "ncclDevKernel_AllReduce_RING_LL_Sum_float": ("ncclDevKernel_AllReduce_RING_LL_Sum_float", "collective"),
    "triton_poi_fused_convolution_relu_3": ("triton_poi_fused_convolution_relu", "elementwise"),
    "triton_poi_fused_relu_0d1d2d3": ("triton_poi_fused_relu_0d1d2d3", "elementwise"),
    "triton_red_fused_native_layer_norm_7": ("triton_red_fused_native_layer_norm", "norm"),
    "triton_per_fused__softmax_add_1": ("triton_per_fused__softmax_add", "softmax"),
    "triton_red_fused_convolution_sum_12": ("triton_red_fused_convolution_sum", "reduction"),
    "triton_tem_fused_addmm_relu_5": ("triton_tem_fused_addmm_relu", "gemm"),
    "triton_tem_fused_convolution_2": ("triton_tem_fused_convolution", "conv"),
    "triton_tem_fused_flex_attention_0": ("triton_tem_fused_flex_attention", "attention"),
    "triton_mm_4": ("triton_mm", "gemm"),
    "split_embedding_forward<float>(fbgemm_gpu::Accessor<int>)": (
        "split_embedding_forward<float>",
        "embedding",
    ),
    "void fbgemm_gpu::permute_2D_data_kernel<2, false>(int)": ("fbgemm_gpu::permute_2D_data_kernel", "other"),
    "void permute_pooled_embs_kernel<float>(float*)": ("permute_pooled_embs_kernel<float>", "embedding"),
    "kernel_flashinfernormkernelsrmsnormRMSNormKernel": (
        "kernel_flashinfernormkernelsrmsnormRMSNormKernel",
        "norm",
    ),
    "void vllm::reshape_and_cache_flash_kernel<float>(float*)": (
        "vllm::reshape_and_cache_flash_kernel<float>",
        "copy",
    ),
    "void vllm::rotary_embedding_kernel<float>(float*)": (
        "vllm::rotary_embedding_kernel<float>",
        "elementwise",
    ),
    "bmm_MxE4m3_MxE2m1MxE4m3_Fp32": ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32", "gemm"),
    "void f<float>(float, attention::Params)": ("f<float>", "other"),
    "void at::native::GammaBetaBackwardCUDAKernel<float, float>(long)": (
        "at::native::GammaBetaBackwardCUDAKernel<float, float>",
        "norm",
    ),
    "void cub::DeviceScanKernel<int, 128>(int*)": ("cub::DeviceScanKernel<int>", "reduction"),
    "": ("", "other"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_canonical_names_and_roles_of_kernels(name: str) -> None:
    assert (shared_family(name), str(role(name))) == KERNELS[name]


def test_a_family_is_named_as_its_kernels_are() -> None:
    names = "ncclKernel_SendRecv_RING(ncclWorkElem)", "ncclDevKernel_SendRecv_RING(ncclDevComm*)"
    assert [family(name) for name in names] == [name.partition("(")[0] for name in names]
    assert shared_family(names[0]) == shared_family(names[1])


def test_equal_canonical_names_play_one_role() -> None:
    with_parameters, without_parameters = "void f<float>(gemm::Params)", "void f<float>(int)"
    assert family(with_parameters) == family(without_parameters)
    assert role(with_parameters) is role(without_parameters) is Role.OTHER


OPS = {
    "CompiledFunction": "CompiledFunction",
    "CompiledFunctionBackward": "CompiledFunctionBackward",
    "autograd::engine::evaluate_function: CompiledFunctionBackward": "CompiledFunctionBackward",
    "CompiledFunction_12": "CompiledFunction",
    "## Call CompiledFxGraph fem7v7a2b5fjalps ##": "## Call CompiledFxGraph ##",
    "Torch-Compiled Region: 3/1": "Torch-Compiled Region:",
    "Torch-Compiled Region:3/1": "Torch-Compiled Region:",
    "triton_poi_fused_add_0_1": "triton_poi_fused_add",
    "graph_3_cpp_fused_relu_12": "cpp_fused_relu",
    "autograd::engine::evaluate_function: ReluBackward0": "ReluBackward",
    "AddmmBackward0": "AddmmBackward",
    "<forward op at 0x7f00a1>": "<forward op at >",
    "Optimizer.step#AdamW.step": "Optimizer.step#AdamW.step",
    "": "",
}


@pytest.mark.parametrize("name", OPS)
def test_names_of_ops(name: str) -> None:
    assert op_name(name) == OPS[name]
    assert op_name(op_name(name)) == op_name(name)


def test_every_role_of_an_op_is_told_by_some_name() -> None:
    with_parameters = {
        op_role(f"aten::{name}")
        for name in (
            "attention",
            "conv2d",
            "mm",
            "layer_norm",
            "softmax",
            "embedding",
            "max_pool2d",
            "topk",
            "sum",
            "fill_",
            "copy_",
            "add",
            "unheard_of",
            "all_reduce_nccl",
        )
    } | {op_role("Optimizer.step#SGD.step")}
    assert with_parameters == set(Role)
