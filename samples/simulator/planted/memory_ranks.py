"""Planted causes around memory, overlap and ranks, each beside a clean twin.

Times and sizes are round, so that what an analysis must find follows from the arguments.
"""

from __future__ import annotations

from contextlib import nullcontext

from samples.simulator.events import Kind
from samples.simulator.program import Program

STEPS = 6
KIB, MIB = 1 << 10, 1 << 20
SIDE_STREAM, TALK_STREAM = 20, 30
COMPUTE = "gemm"
GATHER, ALL_REDUCE = "ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
COMPUTE_NS, COPY_NS = 1_000_000, 400_000


def copies(*, hidden: bool) -> Program:
    """Each step computes for 1 ms and copies 4 MB from pinned memory in 400 µs: beside it, or after."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            with program.op("aten::mm"):
                program.kernel(COMPUTE, COMPUTE_NS)
            with program.op("aten::copy_"):
                stream = SIDE_STREAM if hidden else 7
                program.copy("H2D", 10 * COPY_NS, host_memory="pinned", stream=stream)
            program.synchronize()
    return program


def communication(*, hidden: bool) -> Program:
    """Each step computes for 1 ms and gathers for 400 µs: on a stream of its own meanwhile, or afterwards."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            with program.op("aten::mm"):
                program.kernel(COMPUTE, COMPUTE_NS)
            with program.op("c10d::_allgather_base_"):
                if not hidden:
                    program.wait_event(stream=TALK_STREAM, on_stream=7)
                program.kernel(GATHER, COPY_NS, stream=TALK_STREAM)
            program.synchronize()
    return program


def memory(*, leak: int = 0, warmup: int = 0, noise: tuple[int, ...] = (0,), steps: int = 8) -> Program:
    """Steps that allocate 8 MiB and free it, above a floor that grows by `leak` bytes a step.

    Args:
        leak: Bytes each step takes and does not give back.
        warmup: Steps at the start that each take 4 MiB for good.
        noise: Bytes a step keeps until the next one, taken in turn.
        steps: How many steps.
    """
    program = Program()
    held_now = 0
    for number in range(steps):
        with program.step():
            program.wait(10_000)
            held = noise[number % len(noise)]
            before, held_now = held_now, _take(program, "aten::empty", held) if held else 0
            if before:
                program.allocate(-noise[(number - 1) % len(noise)], address=before)
            activation = _take(program, "aten::mm", 8 * MIB)
            if number < warmup:
                _take(program, "aten::_foreach_add", 4 * MIB)
            if leak:
                _take(program, "cublas_workspace", leak)
            program.kernel(COMPUTE, COMPUTE_NS)
            program.allocate(-8 * MIB, address=activation)
            program.synchronize()
    return program


def _take(program: Program, op: str, size: int) -> int:
    with program.op(op):
        return program.allocate(size)


def fragmentation(*, unused: int, grows: bool = False) -> Program:
    """Each step allocates 1 GiB and frees it, with `unused` bytes more reserved.

    With `grows` the last step asks for 64 MiB more and the allocator reserves all of that anew.
    """
    program = Program()
    for number in range(3):
        more = 64 * MIB if grows and number == 2 else 0
        size, reserved = (1 << 30) + more, (1 << 30) + unused + more
        with program.step(), program.op("aten::mm"):
            address = program.allocate(size, reserved=reserved)
            program.kernel(COMPUTE, COMPUTE_NS)
            program.allocate(-size, address=address, reserved=reserved)
    return program


def churn(*, from_step: int, to_step: int, emptied: bool = False) -> Program:
    """A pair of cudaMalloc and cudaFree, 50 µs each, in the steps of a range; six steps of about 1 ms."""
    program = Program()
    for number in range(STEPS):
        with program.step():
            if from_step <= number < to_step:
                with program.op("aten::empty"), program.span(Kind.RUNTIME, "cudaMalloc"):
                    program.wait(50_000)
                frame = program.python("torch/cuda/memory.py(9): empty_cache") if emptied else nullcontext()
                with frame, program.span(Kind.RUNTIME, "cudaFree"):
                    program.wait(50_000)
            program.kernel(COMPUTE, COMPUTE_NS)
            program.synchronize()
    return program


def job(
    *,
    ranks: int = 4,
    late: int | None = None,
    by: str = "compute",
    late_ns: int = 500_000,
    collectives: int = 2,
    hidden: bool = False,
) -> list[Program]:
    """Ranks that compute for 1 ms before each of two all-reduces a step; one of them takes longer to come.

    All of them end an all-reduce together, 100 µs after the last came. Hosts' clocks differ by 1 s each.

    Args:
        ranks: Number of ranks.
        late: The rank that comes later than the others; None for balanced ranks.
        by: Why: `compute` (its kernels take longer) or `idle` (its host launches later).
        late_ns: How much later.
        collectives: All-reduces of a step.
        hidden: Whether computation on another stream runs beside the all-reduces.
    """
    return [
        _rank(
            rank,
            ranks,
            late_ns if rank == late else 0,
            late_ns if late is not None else 0,
            by,
            collectives,
            hidden=hidden,
        )
        for rank in range(ranks)
    ]


def _rank(
    rank: int, ranks: int, own_ns: int, latest_ns: int, by: str, collectives: int, *, hidden: bool
) -> Program:
    program = Program(rank=rank, world_size=ranks, device=rank, start_ns=rank * 1_000_000_000)
    for _ in range(STEPS):
        with program.step():
            for _ in range(collectives):
                program.wait(own_ns if by == "idle" else 0)
                with program.op("aten::mm"):
                    program.kernel(COMPUTE, COMPUTE_NS + (own_ns if by == "compute" else 0))
                with program.op("c10d::allreduce_"):
                    program.wait_event(stream=TALK_STREAM, on_stream=7)
                    wait = latest_ns - own_ns
                    program.kernel(ALL_REDUCE, 100_000 + wait, stream=TALK_STREAM)
                    if hidden:
                        program.kernel(COMPUTE, 100_000 + wait)
                program.synchronize()
    return program
