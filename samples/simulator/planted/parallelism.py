"""Simulated jobs with experts, sharded parameters and replicated parameters, whose costs are planted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samples.simulator.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STEPS, LAYERS = 3, 4
GRID = (528, 1, 1)
TALK_STREAM = 30
LAUNCH_AHEAD_NS = 2_000_000
ALL_TO_ALL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
REDUCE_SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
BROADCAST = "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
FORWARD: dict[str, Any] = {"Sequence number": 1, "Fwd thread id": 0}
TOKEN_NS = 1_000
DISPATCH_NS, LAYER_NS = 100_000, 1_000_000


def _recorded(name: str, ranks: int, group: str, description: str, **more: Any) -> dict[str, Any]:
    return {
        "Collective name": name,
        "In msg nelems": 1 << 20,
        "Out msg nelems": 1 << 20,
        "dtype": "BFloat16",
        "Process Group Name": group,
        "Process Group Description": description,
        "Process Group Ranks": str([*range(ranks)]),
        "Group size": ranks,
        **more,
    }


def experts(tokens: Sequence[Sequence[int]], *, description: str = "undefined") -> list[Program]:
    """A job with experts on every rank: dispatch, computation by the tokens that arrive, combine.

    Args:
        tokens: Tokens that each rank (row) sends to each rank (column) in every layer.
        description: Description of the process group.
    """
    ranks = len(tokens)
    received = [[row[rank] for row in tokens] for rank in range(ranks)]
    slowest = max(sum(own) for own in received) * TOKEN_NS
    programs = []
    for rank in range(ranks):
        program = Program(rank=rank, world_size=ranks, device=rank)
        there = {"In split size": str([*tokens[rank]]), "Out split size": str(received[rank])}
        back = {"In split size": str(received[rank]), "Out split size": str([*tokens[rank]])}
        own = sum(received[rank]) * TOKEN_NS
        for _ in range(STEPS):
            with program.step():
                at = program.now_ns + LAUNCH_AHEAD_NS
                for _ in range(LAYERS):
                    for name, ns, split in (
                        ("gemm", LAYER_NS, None),
                        (ALL_TO_ALL, DISPATCH_NS, there),
                        ("expert_gemm", own, None),
                        (ALL_TO_ALL, DISPATCH_NS + slowest - own, back),
                    ):
                        _launch(program, name, ns, at, split, ranks, description)
                        at += ns
                program.synchronize()
        programs.append(program)
    return programs


def _launch(
    program: Program,
    name: str,
    ns: int,
    at: int,
    split: dict[str, str] | None,
    ranks: int,
    description: str,
) -> None:
    if split is None:
        with program.op("aten::mm", **FORWARD):
            program.kernel(name, ns, grid=GRID, delay_ns=at - program.now_ns)
        return
    recorded = _recorded("all_to_allv", ranks, "7", description, **split)
    with program.op("c10d::alltoall_base_", **FORWARD), program.op("record_param_comms", **recorded):
        program.kernel(name, ns, stream=TALK_STREAM, delay_ns=at - program.now_ns)


def sharded(
    *, early: bool, ranks: int = 2, gather_ns: int = 400_000, annotated: bool = True
) -> list[Program]:
    """A job whose layers gather their parameters (FSDP), during the layer before or only when they are due.

    Args:
        early: Whether the next layer's all-gather is issued before the computation of a layer.
        ranks: Number of ranks.
        gather_ns: Time of an all-gather; a layer computes for `LAYER_NS`.
        annotated: Whether ranges say that it is FSDP.
    """
    programs = []
    for rank in range(ranks):
        program = Program(rank=rank, world_size=ranks, device=rank)
        for _ in range(STEPS):
            with program.step():
                _forward(program, early=early, ranks=ranks, gather_ns=gather_ns, annotated=annotated)
                for _ in range(LAYERS):
                    with program.op("autograd::engine::evaluate_function: MmBackward0"):
                        program.kernel("gemm", LAYER_NS, grid=GRID)
                        with program.op(
                            "record_param_comms", **_recorded("_reduce_scatter_base", ranks, "1", "undefined")
                        ):
                            program.kernel(REDUCE_SCATTER, gather_ns, stream=TALK_STREAM)
                program.synchronize()
        programs.append(program)
    return programs


def _forward(program: Program, *, early: bool, ranks: int, gather_ns: int, annotated: bool) -> None:
    def gather(layer: int) -> None:
        recorded = _recorded("_allgather_base", ranks, "1", "undefined")
        name = f"FSDP::all_gather (layers.{layer})" if annotated else "gather"
        with (
            program.annotation(name),
            program.op("c10d::_allgather_base_", **FORWARD),
            program.op("record_param_comms", **recorded),
        ):
            program.kernel(ALL_GATHER, gather_ns, stream=TALK_STREAM)

    gather(0)
    for layer in range(LAYERS):
        if not early and layer:
            program.synchronize()
            gather(layer)
        program.wait_event(stream=7, on_stream=TALK_STREAM)
        if early and layer + 1 < LAYERS:
            gather(layer + 1)
        with program.op("aten::mm", **FORWARD):
            program.kernel("gemm", LAYER_NS, grid=GRID)


def replicated(*, overlapped: bool, ranks: int = 2, bucket_ns: int = 400_000) -> list[Program]:
    """A job that reduces gradients in buckets (DDP), beside backward or only after it.

    Args:
        overlapped: Whether each bucket is reduced while the next layers' backward computes.
        ranks: Number of ranks.
        bucket_ns: Time of an all-reduce; the backward of a layer takes `LAYER_NS`.
    """
    programs = []
    for rank in range(ranks):
        program = Program(rank=rank, world_size=ranks, device=rank)
        for _ in range(STEPS):
            with program.step():
                with program.op("aten::mm", **FORWARD):
                    program.kernel("gemm", LAYER_NS, grid=GRID)
                for layer in _backward(program):
                    if overlapped or layer == LAYERS - 1:
                        _reduce(program, ranks, bucket_ns, 1 if overlapped else LAYERS)
                program.synchronize()
        programs.append(program)
    return programs


def gradient_copies(*, copy_ns: int = 50_000, compute_ns: int = LAYER_NS) -> Program:
    """Steps whose reduced gradients are copied from their buckets, one by one."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            with program.op("aten::mm", **FORWARD):
                program.kernel("gemm", compute_ns, grid=GRID)
            for _ in range(LAYERS if copy_ns else 0):
                with (
                    program.op("torch.distributed.ddp.reducer::copy_bucket_to_grad"),
                    program.op("aten::copy_"),
                ):
                    program.kernel("copy", copy_ns)
            program.synchronize()
    return program


def buffers(*, sent: bool = True, name: str = "DistributedDataParallel.forward") -> Program:
    """Steps that broadcast buffers for 100 µs before each forward pass, or in the first one only."""
    program = Program()
    for number in range(STEPS):
        with program.step():
            with program.annotation(name):
                if sent or not number:
                    with program.op("c10d::broadcast_"):
                        program.kernel(BROADCAST, DISPATCH_NS + number * 10_000)
                with program.op("aten::mm", **FORWARD):
                    program.kernel("gemm", LAYER_NS, grid=GRID)
            program.synchronize()
    return program


def _backward(program: Program) -> Iterator[int]:
    for layer in range(LAYERS):
        with program.op("autograd::engine::evaluate_function: MmBackward0"):
            program.kernel("gemm", LAYER_NS, grid=GRID)
            program.wait_event(stream=TALK_STREAM, on_stream=7)
            yield layer


def _reduce(program: Program, ranks: int, bucket_ns: int, count: int) -> None:
    for _ in range(count):
        with program.op("record_param_comms", **_recorded("allreduce", ranks, "0", "default_pg")):
            program.kernel(ALL_REDUCE, bucket_ns, stream=TALK_STREAM)


def tensor_parallel(*, ranks: int = 2) -> list[Program]:
    """A job whose layers sum partial results over the ranks, in forward and in backward."""
    programs = []
    for rank in range(ranks):
        program = Program(rank=rank, world_size=ranks, device=rank)
        for _ in range(STEPS):
            with program.step():
                for name, args in (
                    ("aten::mm", FORWARD),
                    ("autograd::engine::evaluate_function: MmBackward0", {}),
                ):
                    for _ in range(LAYERS):
                        with program.op(name, **args):
                            program.kernel("gemm", LAYER_NS, grid=GRID)
                            program.wait_event(stream=TALK_STREAM, on_stream=7)
                            _reduce(program, ranks, DISPATCH_NS, 1)
                            program.wait_event(stream=7, on_stream=TALK_STREAM)
                program.synchronize()
        programs.append(program)
    return programs
