"""One training program and changes of it, for before/after pairs whose difference is known."""

from __future__ import annotations

from dataclasses import dataclass

from samples.simulator.program import Program

PARAMETERS = 16
FILL_NS = 1_111
CONV_NS = 21_007
LINEAR_NS = 9_001
RELU_NS = 3_003
GB_PER_S = 10


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What a program does otherwise than the plain one.

    Attributes:
        batch: Rows of its input.
        fills: Kernels that zero the gradients; a loop over the parameters launches one for each.
        copies_twice: Copy the input to the device a second time, by an op of its own.
        checks: Read a value back from the device in the middle of each step, which makes the host wait.
        slower: Factor on the time of the linear layer.
        fused: One kernel in place of the two of the activation.
        renamed: Another library's kernel in the linear layer.
        steps: Profiled steps.
        warmup_ns: What the first step takes beyond the others on the host.
    """

    batch: int = 8
    fills: int = 1
    copies_twice: bool = False
    checks: bool = False
    slower: float = 1.0
    fused: bool = False
    renamed: bool = False
    steps: int = 4
    warmup_ns: int = 0


def program(variant: Variant | None = None) -> Program:
    """The program, with every step alike but for the first one's warm-up.

    Example:
        >>> len(program().on_device), len(program(Variant(fills=16)).on_device)
        (28, 88)
    """
    chosen = variant or Variant()
    made = Program()
    for number in range(chosen.steps):
        with made.step():
            if not number:
                made.wait(chosen.warmup_ns)
            _step(made, chosen)
            made.synchronize()
    return made


def _step(made: Program, chosen: Variant) -> None:
    size = 4 * 3 * 64 * 64 * chosen.batch
    shapes, dtypes = [[chosen.batch, 3, 64, 64]], ["float"]
    with made.op("aten::to", shapes=shapes, dtypes=dtypes), made.op("aten::copy_", shapes=shapes):
        made.copy("H2D", size, host_memory="pinned", gb_per_s=GB_PER_S)
    if chosen.copies_twice:
        with made.op("aten::clone", shapes=shapes), made.op("aten::copy_", shapes=shapes):
            made.copy("H2D", size, host_memory="pinned", gb_per_s=GB_PER_S)
    with made.op("aten::conv2d", shapes=shapes), made.op("aten::convolution", shapes=shapes):
        made.kernel("implicit_convolve_sgemm<float, 128>", CONV_NS * chosen.batch // 8)
    _activation(made, chosen)
    if chosen.checks:
        with made.op("aten::item", shapes=[[]]), made.op("aten::_local_scalar_dense", shapes=[[]]):
            made.copy("D2H", 4)
    with made.op("aten::linear", shapes=[[chosen.batch, 512], [10, 512]]), made.op("aten::addmm"):
        name = "Cijk_Ailk_Bljk_SB_MT64" if chosen.renamed else "ampere_sgemm_128x64_tn"
        made.kernel(name, round(LINEAR_NS * chosen.slower))
    with made.annotation("Optimizer.zero_grad#SGD.zero_grad"):
        for _ in range(chosen.fills):
            with made.op("aten::zero_", shapes=[[512]]), made.op("aten::fill_", shapes=[[512]]):
                made.kernel("vectorized_elementwise_kernel<4, FillFunctor<float>>", FILL_NS)


def _activation(made: Program, chosen: Variant) -> None:
    """Two ops with a kernel each, or one op of a compiler around both."""
    with made.op("activation"):
        if chosen.fused:
            with made.op("triton_poi_fused_add_relu_0"):
                made.kernel("triton_poi_fused_add_relu_0", RELU_NS)
            return
        shapes = [[chosen.batch, 64]]
        for name in ("aten::add", "aten::relu"):
            with made.op(name, shapes=shapes):
                made.kernel(f"elementwise_kernel<{name}>", RELU_NS)
