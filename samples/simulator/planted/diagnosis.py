"""Planted runs on which advice is easily wrong: who waits for whom, what belongs to a step, what is hidden.

Times are round, so that what is true of a run follows from its arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samples.simulator.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterable

STEPS = 6
COMPUTE, ALL_REDUCE = "gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
GATHER = "ncclDevKernel_AllGather_RING_LL"
COMPUTE_NS, TRANSFER_NS = 1_000_000, 100_000
TALK_STREAM = 30
GRID = (528, 1, 1)
LATE_NS = 400_000
BACKLOG = 3


def ahead(*, kernels: int = 10) -> Program:
    """The host launches all steps while the device runs the first ones, and waits only at the end."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            for _ in range(kernels):
                with program.op("aten::mm"):
                    program.kernel(COMPUTE, COMPUTE_NS // 4, grid=GRID)
    program.synchronize()
    return program


def backlog() -> Program:
    """The device runs kernels from before the capture, then waits for the host, which waited for them."""
    program = Program()
    with program.op("aten::mm"):
        for _ in range(BACKLOG):
            program.kernel("earlier", 5 * COMPUTE_NS, grid=GRID)
    program.host.clear()  # launched before the capture began
    program.synchronize()
    program.wait(3 * COMPUTE_NS)
    for _ in range(STEPS):
        with program.step():
            for _ in range(4):
                with program.op("aten::mm"):
                    program.kernel(COMPUTE, COMPUTE_NS, grid=GRID)
    program.synchronize()
    return program


def behind_earlier_work(
    *, worked_ns: int = COMPUTE_NS // 100, stream: int = TALK_STREAM, late_ns: int = 0
) -> Program:
    """A kernel runs at once, another one, launched then, waits 20 ms for work from before the capture.

    Args:
        worked_ns: How long the first one takes.
        stream: Stream of the others; 7 is that of the first, which is in order.
        late_ns: For how long the host works before it launches the first one, and then waits for the second.
    """
    program = Program()
    with program.step():
        program.wait(late_ns)
        with program.op("aten::copy_"):
            program.kernel("short", worked_ns, grid=GRID)
        with program.op("aten::mm"):
            program.kernel(COMPUTE, COMPUTE_NS, grid=GRID, stream=stream, delay_ns=20 * COMPUTE_NS)
        if late_ns:
            program.synchronize()
        for _ in range(9):
            with program.op("aten::mm"):
                program.kernel(COMPUTE, COMPUTE_NS, grid=GRID, stream=stream)
    return program


def few_sms() -> Program:
    """Every step reduces on eight blocks, for as long as computation runs beside it."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            for _ in range(4):
                with program.op("c10d::allreduce_"):
                    program.kernel(ALL_REDUCE, COMPUTE_NS // 2, grid=(8, 1, 1), stream=TALK_STREAM)
                with program.op("aten::mm"):
                    program.kernel(COMPUTE, COMPUTE_NS, grid=GRID)
            program.synchronize()
    return program


def started_empty(*, waits: bool) -> Program:
    """A decoding loop without marked steps: short kernels, then long ones, for which the host is ahead.

    The capture begins with an empty queue, so the first short kernels find an idle device.

    Args:
        waits: Whether the host waits for the device after each round, so that each begins like the first.
    """
    program = Program()
    for _ in range(2):
        for _ in range(20):
            with program.op("aten::add"):
                program.wait(COMPUTE_NS // 30)
                program.kernel("short", COMPUTE_NS // 200, grid=GRID)
        for _ in range(8):
            with program.op("aten::mm"):
                program.kernel(COMPUTE, COMPUTE_NS // 2, grid=GRID)
        if waits:
            program.synchronize()
    program.synchronize()
    return program


def algorithm_search(*, once: bool, waits_ns: int = 0) -> Program:
    """Convolutions whose first call tries twelve algorithms, of one block each, before it runs the fastest.

    Args:
        once: Whether only the first call does; else they are what every call launches.
        waits_ns: For how long the host works after it waited for each of them; 0 if it does not wait.
    """
    program = Program()
    for number in range(STEPS):
        with program.step():
            for shape in ([8, 3, 224, 224], [8, 64, 56, 56]):
                with program.op("aten::cudnn_convolution", shapes=[shape]):
                    for algorithm in range(12) if number == 0 or not once else ():
                        name = f"algorithm_{'abcdefghijkl'[algorithm]}_convolve"
                        program.kernel(name, COMPUTE_NS, grid=(1, 1, 1))
                        if waits_ns:
                            program.synchronize("cudaEventSynchronize")
                            program.wait(waits_ns)
                    program.kernel("fastest_convolve", COMPUTE_NS, grid=GRID)
            program.synchronize()
    return program


def gathered_by_copies(*, collective: bool) -> Program:
    """Every step copies 4 MB from another device in 0.4 ms before it computes.

    Args:
        collective: Whether an all-gather of symmetric memory does; else it is a copy of the program.
    """
    program = Program()
    for _ in range(STEPS):
        with program.step():
            with (
                program.op("symm_mem::low_contention_all_gather" if collective else "aten::to"),
                program.op("aten::copy_"),
            ):
                program.copy("P2P", 10 * LATE_NS)
            with program.op("aten::mm"):
                program.kernel(COMPUTE, COMPUTE_NS, grid=GRID)
            program.synchronize()
    return program


def communication_behind_the_host(*, last_ns: int = LATE_NS) -> Program:
    """Every step gathers for 0.4 ms before it computes, and the host takes far longer than the device.

    Args:
        last_ns: Time of the gather of the last step.
    """
    program = Program()
    for number in range(STEPS):
        with program.step():
            with program.op("c10d::_allgather_base_"):
                program.kernel(GATHER, last_ns if number == STEPS - 1 else LATE_NS, stream=TALK_STREAM)
            with program.op("aten::mm"):
                program.wait_event(stream=7, on_stream=TALK_STREAM)
                program.kernel(COMPUTE, LATE_NS, grid=GRID)
            program.wait(3 * COMPUTE_NS)
    return program


def late(ranks: int, turns: Iterable[int], *, missing: Iterable[int] = ()) -> list[Program]:
    """A job whose all-reduces each have a rank that comes late; all ranks end them together.

    Args:
        ranks: Number of ranks.
        turns: The late rank of each all-reduce, in order.
        missing: How many of the first all-reduces each rank lacks, as its capture began later.
    """
    programs = []
    cut = dict(enumerate(missing))
    for rank in range(ranks):
        program = Program(rank=rank, world_size=ranks, device=rank)
        for number, last in enumerate(turns):
            begin = 10 * COMPUTE_NS * (number + 1)
            if number < cut.get(rank, 0):
                continue
            _reduce(program, begin + (LATE_NS if rank == last else 0), begin + LATE_NS, range(ranks))
        programs.append(program)
    return programs


def grid_of_groups(rounds: int = 8) -> list[Program]:
    """Four ranks reduce in rows and columns of a 2 × 2 mesh in turn; rank 0 is late in rows, 3 in columns."""
    programs = []
    for rank in range(4):
        program = Program(rank=rank, world_size=4, device=rank)
        row, column = [rank & 2, rank | 1], [rank & 1, rank | 2]
        for number in range(2 * rounds):
            group, last = ([row[0], row[0] + 1], 0) if number % 2 == 0 else ([column[0], column[0] + 2], 3)
            begin = 10 * COMPUTE_NS * (number + 1)
            latest = begin + (LATE_NS if last in group else 0)
            _reduce(program, latest if rank == last else begin, latest, group)
        programs.append(program)
    return programs


def _reduce(program: Program, arrives_ns: int, latest_ns: int, group: Iterable[int]) -> None:
    """All-reduce over a group that ends when the transfer after the latest arrival does."""
    ranks = [*group]
    recorded: dict[str, Any] = {
        "Collective name": "allreduce",
        "In msg nelems": 1 << 20,
        "Out msg nelems": 1 << 20,
        "dtype": "Float",
        "Process Group Name": "-".join(map(str, ranks)),
        "Process Group Ranks": str(ranks),
        "Group size": len(ranks),
    }
    program.wait(arrives_ns - program.now_ns)
    with program.op("record_param_comms", **recorded):
        program.kernel(ALL_REDUCE, latest_ns - arrives_ns + TRANSFER_NS, stream=TALK_STREAM)
    program.synchronize()
