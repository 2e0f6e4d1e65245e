"""Jobs of many ranks: data-parallel training, each rank with all that a profile holds, one of them slower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from samples.simulator.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

TALK_STREAM, COPY_STREAM = 20, 21
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
TALK_NS = 80_000
SLOWER_NS = 9_000
"""What every kernel of the slow rank takes longer."""
_JITTER_NS = 701
_LAYERS_PER_BUCKET = 4
_GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_f16_{tile}x64_tn_align8>(Params)"
_POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::{what}>(int, float*)"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How large a job is.

    Attributes:
        ranks: Processes, each with a device of its own.
        steps: Profiled steps of each.
        layers: Layers of the model: about 25 rows of a run each, in every step.
        slow: The rank whose kernels take longer; None for a balanced job.
    """

    ranks: int
    steps: int = 4
    layers: int = 16
    slow: int | None = None


def job(shape: Shape) -> Iterator[Program]:
    """The programs of a job, one after another: only one need be held.

    Example:
        >>> programs = list(job(Shape(ranks=3, steps=1, layers=4, slow=2)))
        >>> [program.rank for program in programs], len(programs[0].on_device)
        ([0, 1, 2], 17)
    """
    for rank in range(shape.ranks):
        yield one_rank(rank, shape)


def one_rank(rank: int, shape: Shape) -> Program:
    """One rank of a job."""
    program = Program(rank=rank, world_size=shape.ranks, device=rank % 8, start_ns=rank * 1_003)
    for step in range(shape.steps):
        with program.step():
            _load(program)
            _forward(program, rank, step, shape)
            _backward(program, rank, step, shape)
            _update(program, shape)
        program.synchronize()
    return program


def _load(program: Program) -> None:
    with program.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
        program.wait(20_000)
    with program.op("aten::to", shapes=[[32, 512]], dtypes=["long int"]), program.op("aten::copy_"):
        program.copy("H2D", 1 << 17)


def _late(rank: int, step: int, shape: Shape) -> int:
    """What each kernel of a rank takes longer in a step than the shortest of the job."""
    slower = SLOWER_NS if rank == shape.slow else 0
    return slower + (rank * 7 + step * 3) % 11 * _JITTER_NS // 11


def _latest(step: int, shape: Shape) -> int:
    return max(_late(rank, step, shape) for rank in range(shape.ranks))


def _forward(program: Program, rank: int, step: int, shape: Shape) -> None:
    more = _late(rank, step, shape)
    for layer in range(shape.layers):
        dims = [[32, 512, 1024], [1024, 1024 * (1 + layer % 3)]]
        with program.op("aten::linear", shapes=dims, dtypes=["c10::Half"] * 2), program.op("aten::addmm"):
            program.allocate(1 << 20)
            tile = 128 << layer % 2
            program.kernel(_GEMM.format(tile=tile), 30_000 + more, grid=(64 + layer, 4, 1), block=(256, 1, 1))
        with program.op("aten::relu"), program.op("aten::clamp_min"):
            program.kernel(_POINTWISE.format(what="ReluFunctor"), 6_000 + more, grid=(512, 1, 1))


def _backward(program: Program, rank: int, step: int, shape: Shape) -> None:
    more, wait = _late(rank, step, shape), _latest(step, shape) - _late(rank, step, shape)
    kernels = 2 * shape.layers  # of the forward pass
    with program.thread(2_000):
        for layer in reversed(range(shape.layers)):
            with (
                program.op("autograd::engine::evaluate_function: AddmmBackward0"),
                program.op("AddmmBackward0"),
                program.op("aten::mm"),
            ):
                program.kernel(_GEMM.format(tile=256), 55_000 + more, grid=(96, 4, 1), block=(256, 1, 1))
            program.allocate(-(1 << 20))
            kernels += 1
            if layer % _LAYERS_PER_BUCKET == 0:
                _reduce(program, TALK_NS + wait * kernels)
                kernels = 0


def _reduce(program: Program, dur_ns: int) -> None:
    with program.op("c10d::allreduce_"), program.op("record_param_comms"):
        program.wait_event(stream=TALK_STREAM, on_stream=7)
        program.kernel(ALL_REDUCE, dur_ns, stream=TALK_STREAM)
        program.wait_event(stream=7, on_stream=TALK_STREAM)


def _update(program: Program, shape: Shape) -> None:
    with program.annotation("Optimizer.step#AdamW.step"):
        for _ in range(max(1, shape.layers // 8)):
            with program.op("aten::_fused_adamw_"):
                program.kernel("multi_tensor_apply_kernel<FusedAdamMathFunctor>", 40_000, grid=(320, 1, 1))
    with program.annotation("Optimizer.zero_grad#AdamW.zero_grad"), program.op("aten::zero_"):
        program.memset(1 << 20, 2_000)
    with program.op("aten::item"), program.op("aten::_local_scalar_dense"):
        program.copy("D2H", 4, stream=7)
