"""Programs whose critical path is known exactly: each bound by one thing, and twins that are not."""

from __future__ import annotations

from typing import Any

from samples.simulator.program import Program

STEPS = 2
KERNEL_NS = 50_000
REDUCE_NS = 80_000
SLOW_EDGE_NS = 30_000
OTHER_STREAM = 9
BACKWARD_THREAD = 2_000
AT_LINE: dict[str, Any] = {"Call stack": "train.py(7): main"}
NODE = "autograd::engine::evaluate_function: MulBackward0"


def device_bound() -> Program:
    """Long kernels queue up: after the first launch the path is theirs alone."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            for name in ("aten::mm", "aten::relu", "aten::mm"):
                with program.op(name):
                    program.kernel(f"{name[6:]}_kernel", KERNEL_NS)
        program.synchronize()
    return program


def host_bound() -> Program:
    """One op takes the host longer than its kernel takes the device: the path is the host and one kernel."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            for _ in range(3):
                with program.op("aten::slow", edge_ns=SLOW_EDGE_NS, **AT_LINE):
                    program.kernel("short", 2_000)
    return program


def outside_bound() -> Program:
    """Python between the ops takes longer than their kernels."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            for _ in range(3):
                program.wait(4 * KERNEL_NS)
                with program.op("aten::relu"):
                    program.kernel("short", 2_000)
    return program


def late_start(*, outside: bool = False) -> Program:
    """The host prepares before the device has anything to do, in an op or outside of ops."""
    program = Program()
    with program.step():
        if outside:
            program.wait(4 * KERNEL_NS)
        else:
            with program.op("aten::prepare", edge_ns=2 * KERNEL_NS, **AT_LINE):
                pass
        with program.op("aten::relu"):
            program.kernel("short", 2_000)
    return program


def running_ahead(*, wait: bool = True, read: bool = False, ends: bool = False) -> Program:
    """The host waits for long work and then launches much that is short; the twin does not wait.

    With `read` it waits as long once more, in the op that reads a value back, with `ends` after
    the short work.
    """
    program = Program()
    for _ in range(STEPS):
        with program.step():
            with program.op("aten::mm"):
                program.kernel("mm_kernel", 20 * KERNEL_NS)
            if wait:
                program.synchronize("cudaStreamSynchronize", stream=7)
            if read:
                with program.op("aten::mm"):
                    program.kernel("mm_kernel", 20 * KERNEL_NS)
                with program.op("aten::_local_scalar_dense"):
                    program.synchronize("cudaStreamSynchronize", stream=7)
            for _ in range(20):
                with program.op("aten::add"):
                    program.wait(KERNEL_NS // 5)
                    program.kernel("short", 2_000)
            if ends:
                with program.op("aten::mm"):
                    program.kernel("mm_kernel", 20 * KERNEL_NS)
                program.synchronize("cudaStreamSynchronize", stream=7)
    return program


def waiting(*, wait: bool = True) -> Program:
    """The host waits for every kernel, then takes as long itself; the twin does not wait."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            for _ in range(2):
                with program.op("aten::mm"):
                    program.kernel("mm_kernel", KERNEL_NS)
                if wait:
                    program.synchronize("cudaStreamSynchronize", stream=7)
                with program.op("aten::prepare", edge_ns=KERNEL_NS // 10):
                    pass
        program.synchronize()
    return program


def copying(*, pinned: bool = False) -> Program:
    """A pageable copy stands before every kernel; in the twin a pinned one runs beside them."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            for _ in range(2):
                with program.op("aten::copy_"):
                    if pinned:
                        program.copy("H2D", 10 * KERNEL_NS, host_memory="pinned", stream=OTHER_STREAM)
                    else:
                        program.copy("H2D", 10 * KERNEL_NS)
                with program.op("aten::mm"):
                    program.kernel("mm_kernel", KERNEL_NS)
        program.synchronize()
    return program


def communicating(*, overlapped: bool = False) -> Program:
    """What follows an all-reduce waits for it; in the twin it runs beside a longer kernel."""
    program = Program()
    for _ in range(STEPS):
        with program.step():
            with program.op("aten::mm"):
                program.kernel("mm_kernel", KERNEL_NS)
            with program.op("c10d::allreduce_"):
                program.kernel("ncclKernel_AllReduce(int)", REDUCE_NS, stream=OTHER_STREAM)
            if not overlapped:
                program.wait_event(stream=7, on_stream=OTHER_STREAM)
            with program.op("aten::add"):
                program.kernel("add_kernel", KERNEL_NS)
        program.synchronize()
    return program


def two_streams() -> Program:
    """A kernel on a second stream waits for one on the first."""
    program = Program()
    with program.step():
        with program.op("aten::first"):
            program.kernel("first_kernel", KERNEL_NS)
        program.wait_event(stream=OTHER_STREAM, on_stream=7)
        with program.op("aten::second"):
            program.kernel("second_kernel", 2 * KERNEL_NS, stream=OTHER_STREAM)
    return program


def backward_thread() -> Program:
    """Forward on the main thread, backward on its own, the optimizer on the main one again."""
    program = Program()
    with program.step():
        with program.op("aten::mul", edge_ns=10_000):
            program.kernel("mul_kernel", 2_000)
        program.wait(700)
        with program.thread(BACKWARD_THREAD):
            program.wait(100)
            with program.op(NODE, edge_ns=20_000):
                program.kernel("mul_backward_kernel", 2_000)
            program.wait(300)
        with program.annotation("Optimizer.step#SGD.step", edge_ns=6_000):
            program.kernel("add_kernel", 3_000)
    return program
