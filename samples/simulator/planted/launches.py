"""Launches gone wrong, each beside a clean twin: zeroing one by one, small kernels, grids that fit badly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samples.simulator.program import Program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samples.simulator.program import Dim3

STEPS = 4
PARAMETERS = 12
FILL_NS = 1_100
WORK_NS = 90_000
CHAIN = ("aten::mul", "aten::add", "aten::tanh", "aten::sub", "aten::exp", "aten::div", "aten::neg")
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
FUSED_FILL = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<ZeroFunctor<float>>(int)"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)"
RELU_CONVOLUTION = "volta_scudnn_128x64_relu_interior_nn_v1"
THRESHOLD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::"
    "threshold_kernel_impl<float>(at::TensorIteratorBase&)::{lambda(float, float)#1}>(int)"
)


def zeroing(mode: str) -> Program:
    """Steps that zero gradients: `per_parameter`, `foreach` or, dropping them, `none`."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            _work(program)
            with program.annotation("Optimizer.zero_grad#SGD.zero_grad"):
                if mode == "per_parameter":
                    for _ in range(PARAMETERS):
                        with program.op("aten::zero_", shapes=[[64]]), program.op("aten::fill_"):
                            program.kernel(FILL, FILL_NS)
                elif mode == "foreach":
                    with program.op("aten::_foreach_zero_"):
                        program.kernel(FUSED_FILL, 3 * FILL_NS)
            program.synchronize()
    return program


def chain(*, fused: bool = False, optimizer: bool = False, kernel_ns: int = 1_500) -> Program:
    """Steps of small element-wise kernels, in the optimizer or not, or of one kernel that does the same."""
    program = Program()
    for number in range(STEPS):
        with program.step():
            _work(program, grid=(132 * (1 + number), 1, 1))
            if optimizer:
                with program.annotation("Optimizer.step#SGD.step"):
                    _chain(program, fused=fused, kernel_ns=kernel_ns)
            else:
                _chain(program, fused=fused, kernel_ns=kernel_ns)
            program.synchronize()
    return program


def launch_bound(*, repeats: bool = True) -> Program:
    """Steps of nothing but small kernels, the same in each step or not."""
    program = Program()
    for number in range(STEPS):
        with program.step():
            for place in range(20):
                with program.op("aten::addmm"):
                    program.kernel("small_gemm", 1_500, grid=(1 if repeats else 1 + number + place, 1, 1))
            program.synchronize()
    return program


def convolution(batch: int, dur_ns: int) -> Program:
    """A convolution whose kernel has relu in its name: its grid grows with the batch."""
    shapes = [[batch, 64, 64, 64], [64, 64, 3, 3]]
    grid = (32 * batch, 2, 1)
    return kernels(RELU_CONVOLUTION, dur_ns, grid=grid, op="aten::cudnn_convolution", shapes=shapes)


def threshold(grid: Dim3, dur_ns: int = 40_000) -> Program:
    """The backward pass of a ReLU over the same elements, with any grid."""
    return kernels(THRESHOLD, dur_ns, grid=grid, op="aten::threshold_backward", shapes=[[1024, 512]] * 2)


def kernels(
    name: str,
    dur_ns: int,
    *,
    grid: Dim3,
    block: Dim3 = (128, 1, 1),
    op: str = "mine::op",
    shapes: Sequence[Sequence[int]] | None = None,
    registers: int = 32,
    others: Sequence[Dim3] = (),
) -> Program:
    """Steps of one kernel, and of the same with other grids."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            for one in (grid, *others):
                with program.op(op, shapes=shapes):
                    program.kernel(name, dur_ns, grid=one, block=block, registers=registers)
            program.synchronize()
    return program


def _work(program: Program, *, grid: Dim3 = (528, 1, 1)) -> None:
    with program.op("aten::mm"):
        program.kernel("gemm", WORK_NS, grid=grid)
    program.synchronize()


def _chain(program: Program, *, fused: bool, kernel_ns: int) -> None:
    if fused:
        with program.op("aten::_foreach_add_"):
            program.kernel("triton_poi_fused_add_mul_0", kernel_ns * len(CHAIN))
        return
    for name in CHAIN:
        with program.op(name):
            program.kernel(ELEMENTWISE, kernel_ns)
