"""Programs whose device is idle for one planted reason, beside clean twins that lack only that reason.

A kernel named `after_CAUSE` is what the device starts when a gap of that cause ends; no other gaps are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samples.simulator.events import Kind
from samples.simulator.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 3
STACK: dict[str, Any] = {"Call stack": "train.py(7): sort;train.py(12): main"}
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def small_ops(*, clean: bool = False) -> Program:
    """Kernels of 2 µs whose ops take the host 5 µs; when clean, kernels of 20 µs."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            for _ in range(40):
                with program.op("aten::add"):
                    program.kernel("after_launch_bound", 20_000 if clean else 2_000)
    return program


def host_work(*, clean: bool = False) -> Program:
    """An op in which the host computes for 1.5 ms; when clean, the device has 1.7 ms of work meanwhile."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            with program.op("aten::mm"):
                program.kernel("work", 1_700_000 if clean else 100_000)
            with program.op("aten::_unique2", **STACK):
                program.wait(1_500_000)
            with program.op("aten::relu"):
                program.kernel("after_host_work", 100_000)
    return program


def slow_calls(*, clean: bool = False) -> Program:
    """A launch that takes 600 µs; when clean, 4 µs."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            with program.op("aten::mm"):
                program.kernel("work", 200_000)
            with program.op("aten::softmax"):
                launch_ns = 4_000 if clean else 600_000
                program.kernel("after_slow_call", 100_000, launch_ns=launch_ns, delay_ns=launch_ns + 1_000)
    return program


def stalls(*, clean: bool = False, ops: int = 3, call: bool = False, loader: str = "") -> Program:
    """Late calls of some ops that take 5 ms longer than the others; when clean, none.

    A launch call may as well, and each step may wait 3 ms for a loader of this name.
    """
    program = Program()
    names = ("aten::mm", "aten::relu", "aten::add", "aten::mul")
    for number in range(STEPS):
        with program.step():
            if loader:
                with program.annotation(loader):
                    program.wait(3_000_000)
            for turn in range(4):
                for op in names:
                    with program.op(op):
                        if (number, names[turn % ops]) == (STEPS - 1, op) and turn < 3 and not clean:
                            program.wait(5_000_000)
                        is_call = call and (number, turn, op) == (STEPS - 1, 3, names[-1])
                        launch_ns = 5_000_000 if is_call else 4_000
                        program.kernel("after_stall", 50_000, launch_ns=launch_ns, delay_ns=launch_ns + 1_000)
    return program


def read_back(*, clean: bool = False) -> Program:
    """`.item()` after each kernel, then 30 µs of the host; when clean, the copy is not waited for."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            with program.op("aten::mm"):
                program.kernel("after_sync", 300_000)
            with program.op("aten::item"), program.op("aten::_local_scalar_dense"):
                program.copy("D2H", 4, wait=not clean, host_memory="pinned" if clean else "pageable")
            with program.op("aten::add"):
                program.wait(30_000)
                program.kernel("after_sync", 300_000)
            if not clean:
                program.synchronize()
    return program


def read_back_late() -> Program:
    """A wait of a few µs before 400 µs of the host: without the wait the device would idle all the same."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            with program.op("aten::mm"):
                program.kernel("after_launch_bound", 50_000)
            program.wait(60_000)
            program.synchronize()
            with program.op("aten::add"):
                program.wait(400_000)
                program.kernel("after_launch_bound", 50_000)
            program.wait(60_000)
            program.synchronize()
            program.wait(100_000)
    return program


def loading(*, clean: bool = False, anew: bool = False) -> Program:
    """Batches that take 400 µs to load; when clean, 4 µs; each step may make the iterator anew."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            if anew:
                with program.python("torch/utils/data/dataloader.py(417): _get_iterator"):
                    program.wait(1_000)
            with program.annotation(LOADER), program.op("aten::stack"):
                program.wait(4_000 if clean else 400_000)
            with program.op("aten::mm"):
                program.kernel("after_dataload", 50_000)
                program.kernel("after_dataload", 50_000)
    return program


def starts(gap_ns: int, cause: str, *, streams: int = 1) -> Program:
    """Kernels launched in time that start late; with no gap, at once; the first may have its own stream."""
    program = Program()
    with program.op("aten::ones"):
        free = program.kernel("first", 200_000, stream=6 + streams).end_ns
    for _ in range(STEPS):
        with program.step():
            for _ in range(4):
                with program.op("aten::mul"):
                    start = program.now_ns
                    program.kernel(f"after_{cause}", 40_000, delay_ns=free + gap_ns - start)
                free += gap_ns + 40_000
            program.wait(100_000)
    return program


def queued(*, clean: bool = False) -> Program:
    """Gaps of 9 µs between kernels of 40 µs that were queued; when clean, none."""
    return starts(0 if clean else 9_000, "kernel_to_kernel")


def held_back(*, clean: bool = False) -> Program:
    """Gaps of 30 µs although the next kernel was queued, with two streams; when clean, none."""
    return starts(0 if clean else 30_000, "stream_dependency", streams=2)


def submitted_late(*, clean: bool = False) -> Program:
    """The same with one stream, so that there is nothing to wait for; when clean, no gap."""
    return starts(0 if clean else 30_000, "submission")


def other_stream(*, clean: bool = False) -> Program:
    """A stream waits for an event of another, 9 µs; when clean, both kernels are in one stream."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            with program.op("aten::mm"):
                first = program.kernel("work", 200_000)
            if not clean:
                program.wait_event(stream=9, on_stream=7)
            with program.op("nccl:all_reduce"):
                delay = 5_000 if clean else first.end_ns + 9_000 - program.now_ns
                program.kernel("after_stream_dependency", 50_000, stream=7 if clean else 9, delay_ns=delay)
            program.wait_event(stream=7, on_stream=9)
    return program


def profiled(*, clean: bool = False) -> Program:
    """The profiler takes 300 µs for itself between two launches; when clean, none."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            with program.op("aten::mm"):
                program.kernel("work", 100_000)
            if not clean:
                with program.span(Kind.OVERHEAD, "Activity Buffer Request"):
                    program.wait(300_000)
            with program.op("aten::mm"):
                program.kernel("after_profiler", 100_000)
    return program


def slow_machine(*, clean: bool = False) -> Program:
    """Every launch call takes 30 µs, kernels 5 µs; when clean, 4 µs and 20 µs."""
    program = Program()
    launch_ns, kernel_ns = (4_000, 20_000) if clean else (30_000, 5_000)
    for _ in range(STEPS):
        with program.step():
            for _ in range(20):
                with program.op("aten::add"):
                    program.kernel(
                        "after_launch_bound", kernel_ns, launch_ns=launch_ns, delay_ns=launch_ns + 1_000
                    )
    return program


def synchronous(*, clean: bool = False) -> Program:
    """Launch calls that return after their kernel of 50 µs, and 30 µs of the host; when clean, after 4 µs."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            for _ in range(20):
                with program.op("aten::mm"):
                    launch_ns = 4_000 if clean else 60_000
                    program.kernel("after_launch_bound", 50_000, launch_ns=launch_ns, delay_ns=5_000)
                    program.wait(30_000)
    return program


INDUCTOR = f"/var/torchinductor_root/ov/cov{'4a' * 24}q.py(25): call"
"""Frame of a function that Inductor generated."""


def generated(frame: str = INDUCTOR) -> Program:
    """Small ops in a frame, by default one of code that torch.compile generated."""
    program = Program()
    for _ in range(STEPS):
        with program.step(), program.python(frame):
            for _ in range(40):
                with program.op("aten::addmm"):
                    program.kernel("after_launch_bound", 2_000)
    return program


def checks(*, function: str = "assert_size_stride") -> Program:
    """Code of Inductor that calls a function 200 times before it launches: 10 µs each, 2 of them shown."""
    program = Program()
    for _ in range(STEPS):
        with program.step(), program.python(INDUCTOR):
            for _ in range(200):
                with program.python(f"<built-in function {function}>"):
                    program.wait(2_000)
                program.wait(8_000)
            with program.op("aten::addmm"):
                program.kernel("after_host_work", 500_000)
    return program


def buffers(
    *, inside: str = "DistributedDataParallel.forward", frame: str = "", own: bool = False
) -> Program:
    """The forward pass of DistributedDataParallel flattens, broadcasts and copies 20 buffers, then computes.

    Args:
        inside: Name of the range around it.
        frame: Python frame around the broadcast, if stacks are recorded.
        own: Whether instead the module itself makes and copies the tensors.
    """
    program = Program()
    for _ in range(STEPS):
        with program.step(), program.annotation(inside):
            if frame:
                with program.python(frame):
                    _broadcast_buffers(program, own=own)
            else:
                _broadcast_buffers(program, own=own)
            with program.op("aten::addmm"):
                program.kernel("work", 500_000)
            program.wait(400_000)
    return program


def _broadcast_buffers(program: Program, *, own: bool) -> None:
    with program.op("aten::stack" if own else "aten::flatten_dense_tensors"):
        program.wait(400_000)
        program.kernel("CatArrayBatchedCopy", 4_000)
    if not own:
        with program.op("c10d::broadcast_"):
            program.kernel("ncclDevKernel_Broadcast_RING_LL", 8_000, stream=9)
    with program.op("aten::unbind" if own else "aten::unflatten_dense_tensors"):
        program.wait(1_200_000)
    for _ in range(20):
        with program.op("aten::copy_"):
            program.wait(20_000)
            program.copy("D2D", 4_000)


def processing(*, uploads: bool = False, reads: bool = True, stops_ns: int = 5_000_000) -> Program:
    """The host reads a result, computes for 5 ms without any op, and launches work on what the device has.

    Args:
        uploads: Whether it copies to the device before it launches.
        reads: Whether it reads the result; otherwise it waits for the device alone.
        stops_ns: For how long it computes.
    """
    program = Program()
    for _ in range(STEPS):
        with program.step():
            with program.op("aten::mm"):
                program.kernel("work", 1_000_000)
            if reads:
                with program.op("aten::copy_"):
                    program.copy("D2H", 4_000)
            else:
                program.synchronize()
            program.wait(stops_ns)
            if uploads:
                with program.op("aten::copy_"):
                    program.copy("H2D", 4_000)
            with program.op("aten::relu"):
                program.kernel("work", 1_000_000)
            program.wait(900_000)
    return program


def first_uses(*, load_ns: int = 5_000_000, tune_ns: int = 3_000_000, initialize_ns: int = 4_000) -> Program:
    """The first launch, one that loads code, and an op of which the first call is slow."""
    program = Program()
    for name, launch_ns in (("aten::ones", initialize_ns), ("aten::softmax", load_ns)):
        with program.op(name):
            program.kernel(name, 100_000, launch_ns=launch_ns, delay_ns=launch_ns + 1_000)
    for turn in range(6):
        with program.op("aten::mm"):
            program.wait(tune_ns if turn == 0 else 1_000)
            program.kernel("gemm", 1_000_000)
    return program


PLANTED: dict[str, tuple[Callable[..., Program], set[str]]] = {
    "small_ops": (small_ops, {"idle_launch_bound"}),
    "host_work": (host_work, {"idle_host_work"}),
    "slow_calls": (slow_calls, {"idle_slow_call"}),
    "stalls": (stalls, {"idle_stalls"}),
    "read_back": (read_back, {"sync_starves_device"}),
    "loading": (loading, {"idle_dataload"}),
    "queued": (queued, {"idle_between_kernels"}),
    "held_back": (held_back, {"idle_stream_dependency"}),
    "submitted_late": (submitted_late, {"idle_submission"}),
    "other_stream": (other_stream, set()),
    "profiled": (profiled, set()),
    "slow_machine": (slow_machine, {"idle_launch_bound", "slow_launch_calls"}),
    "synchronous": (synchronous, {"idle_launch_bound", "synchronous_launches"}),
}
"""Each program and the findings it must give; its clean twin must give none."""
