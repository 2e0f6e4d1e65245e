"""Programs with a planted distance from the roofline of an A100, each with a twin that has none.

The A100 does 19.5 TFLOP/s in FP32, 156 in TF32, 312 in FP16, and moves 1555 GB/s.
"""

from __future__ import annotations

from typing import Any

from samples.simulator.program import Program

A100 = "NVIDIA A100-SXM4-40GB"
STEPS = 3
SIZE = 2048
PRODUCT_FLOPS = 2 * SIZE**3
UNALIGNED = [[SIZE, SIZE - 1], [SIZE - 1, SIZE]]
IMAGE, WEIGHT, RESULT = [8, 64, 56, 56], [128, 64, 3, 3], [8, 128, 28, 28]
HALF = ["c10::Half"] * 3
_VALUES = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]


def products(kernel: str, dur_ns: int, shapes: list[list[int]], dtype: str, *, calls: int = 2) -> Program:
    """Steps of matrix products inside `aten::linear`, which must not count again."""
    program = Program(device_name=A100, sm_count=108)
    known: dict[str, Any] = {"shapes": shapes, "dtypes": [dtype] * 2, "Call stack": "train.py(7): forward"}
    for _ in range(STEPS):
        with program.step():
            for _ in range(calls):
                with program.op("aten::linear", **known), program.op("aten::mm", **known):
                    program.kernel(kernel, dur_ns)
            program.synchronize()
    return program


def fp32_products() -> Program:
    """float32 products on FP32 units: 17.2 of 19.5 TFLOP/s, where TF32 has 156."""
    return products("ampere_sgemm_128x64_tn", 1_000_000, [[SIZE, SIZE], [SIZE, SIZE]], "float")


def tf32_products() -> Program:
    """The same products on tensor cores: 114.5 of 156 TFLOP/s."""
    kernel = "cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4"
    return products(kernel, 150_000, [[SIZE, SIZE], [SIZE, SIZE]], "float")


def unaligned_products() -> Program:
    """16-bit products of an odd size by a kernel that loads one element at a time, at 18% of the roof."""
    kernel = "cutlass_80_wmma_tensorop_f16_s161616gemm_f16_128x128_32x2_tn_align1"
    return products(kernel, 300_000, UNALIGNED, "c10::Half")


def aligned_products() -> Program:
    """The same padded to 2048, by a kernel that loads 8 elements at a time: 73% of the peak."""
    kernel = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn"
    return products(kernel, 75_000, [[SIZE, SIZE], [SIZE, SIZE]], "c10::Half")


def little_products() -> Program:
    """Products too small to fill the device: 8 µs each, whose work takes 0.1 µs."""
    kernel = "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_tn"
    return products(kernel, 8_000, [[64, 256], [256, 256]], "c10::Half", calls=20)


def batched_products() -> Program:
    """The same work in one product a step, at the memory's bandwidth."""
    kernel = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_tn"
    return products(kernel, 2_000, [[1280, 256], [256, 256]], "c10::Half", calls=1)


def unequal_products(*, large_ns: int = 420_000) -> Program:
    """Products at 73% of the peak beside four times larger ones at 52%, or at 73% in 300 µs."""
    program = Program(device_name=A100, sm_count=108)
    kernel = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn"
    for _ in range(STEPS):
        with program.step():
            for size, dur_ns in ((SIZE, 75_000), (2 * SIZE, large_ns)):
                with program.op("aten::mm", shapes=[[size, SIZE], [SIZE, size]], dtypes=["c10::Half"] * 2):
                    program.kernel(kernel, dur_ns)
            program.synchronize()
    return program


def equal_products(*, slow_ns: int = 140_000) -> Program:
    """Equal products, of which half run a kernel that takes 140 µs, or 80 µs, where the other takes 75 µs."""
    program = Program(device_name=A100, sm_count=108)
    kernels = {
        "ampere_fp16_s16816gemm_fp16_128x128_tn": 75_000,
        "ampere_fp16_s16816gemm_fp16_64x64_nn": slow_ns,
    }
    for _ in range(STEPS):
        with program.step():
            for kernel, dur_ns in kernels.items():
                with program.op("aten::mm", shapes=[[SIZE, SIZE]] * 2, dtypes=HALF[:2]):
                    program.kernel(kernel, dur_ns)
            program.synchronize()
    return program


def experts(*, count: int = 4, rows: int = SIZE) -> Program:
    """A router over 4 experts, and experts of which each computes these rows; then the attention of a layer.

    Args:
        count: How many experts compute.
        rows: Rows of the input of each; the router has `SIZE`.
    """
    program = Program(device_name=A100, sm_count=108)
    kernel, width, inner = "ampere_fp16_s16816gemm_fp16_128x128_tn", 512, 2048
    expert = [([rows, width], [width, inner], 40_000), ([rows, inner], [inner, width], 40_000)]
    layer = [([SIZE, width], [width, 4], 5_000), *expert * count, ([SIZE, width], [width, width], 20_000)]
    for _ in range(STEPS):
        with program.step():
            for left, right, dur_ns in layer:
                with program.op("aten::mm", shapes=[left, right], dtypes=HALF[:2]):
                    program.kernel(kernel, dur_ns)
            program.synchronize()
    return program


def convolutions() -> Program:
    """A strided convolution forward and backward in FP16, nested as ATen nests it, and an addition."""
    program = Program(device_name=A100, sm_count=108)
    for _ in range(STEPS):
        with program.step():
            _forward(program)
            with program.op("aten::add_", shapes=[RESULT, RESULT, []], dtypes=[*HALF[:2], "Scalar"]):
                program.kernel("add", 5_000)
            values = ["", "", "", "[0]", *_VALUES[3:], "[True, True, False]"]
            known: dict[str, Any] = {"shapes": [RESULT, IMAGE, WEIGHT], "Concrete Inputs": values}
            with program.op("aten::convolution_backward", dtypes=HALF, **known):
                program.kernel("sm80_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32", 5_000)
                program.kernel("sm80_xmma_wgrad_implicit_gemm_f16f16_f16f32_f32", 5_000)
            program.synchronize()
    return program


def _forward(program: Program) -> None:
    shapes = [IMAGE, WEIGHT, *([[]] * 7)]
    known: dict[str, Any] = {"shapes": shapes, "dtypes": HALF[:2], "Concrete Inputs": _VALUES}
    with (
        program.op("aten::convolution", **known),
        program.op("aten::_convolution", **known),
        program.op("aten::cudnn_convolution", shapes=[IMAGE, WEIGHT], dtypes=HALF[:2]),
    ):
        program.kernel("nchwToNhwcKernel", 1_000)
        program.kernel("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32", 4_000)
