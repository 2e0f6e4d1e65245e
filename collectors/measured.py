"""Inside a measured process: the device, the built workload, its steps timed without a profiler."""

from __future__ import annotations

import re
import resource
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit import registry
from tracekit.errors import CollectionError, UnusableInputError
from tracekit.ingest.write import Sample
from tracekit.runs import environment
from tracekit.runs.compilation import TIMED, WARM_UP
from tracekit.workloads.base import COMPILE

from .cuda_events import EventTimer
from .protocol import MEASURE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.recording.collector import Request
    from tracekit.workloads.base import Program, Workload

    from .compilation import Compilations
    from .protocol import Reporter

_OUT_OF_MEMORY = re.compile("out of memory|can't allocate memory")
"""torch's allocator of host memory raises a plain RuntimeError."""
_COMPILERS = ("torch._dynamo", "torch._inductor")
"""Where the errors of compiling are defined."""


@contextmanager
def built(request: Request, *, device: str) -> Iterator[Program]:
    """The workload of a decided request, to be run inside the block.

    Raises:
        CollectionError: Memory ran out, or the program cannot be compiled.
    """
    workload: Workload = registry.load(registry.WORKLOADS, request.workload)
    import torch

    if request.threads is not None:
        torch.set_num_threads(request.threads)
    try:
        yield workload.build(request.options(device=device))
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        told = _told(error, request)
        if told is None:
            raise
        raise told from error


def _told(error: BaseException, request: Request) -> CollectionError | None:
    """What a person is told of a failure that has a remedy; None of another."""
    said = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if not isinstance(error, RuntimeError) or _OUT_OF_MEMORY.search(str(error)):
        message = f"{request.workload} ran out of memory: {said}"
        return CollectionError(message, hint="lower --batch-size or --resolution")
    if request.level == COMPILE and any(kind.__module__.startswith(_COMPILERS) for kind in type(error).mro()):
        message = f"{request.backend} could not compile {request.workload}: {said}"
        return CollectionError(message, hint="use --backend aot_eager or --backend eager")
    return None


def found(device: str) -> str:
    """The device that is meant here: `cpu` or `cuda`.

    Raises:
        CollectionError: There is no torch.
        UnusableInputError: There is no such device.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise CollectionError(
            "torch is not installed",
            hint="pip install 'tracekit-torch[torch]'",
        ) from error
    # a CPU build has no CUDA to probe, and probing may warn
    usable = torch.version.cuda is not None and torch.cuda.is_available()
    if device == "cuda" and not usable:
        raise UnusableInputError(
            f"torch {torch.__version__} finds no CUDA device",
            hint="use --device cpu, or see `tracekit doctor`",
        )
    return "cuda" if usable and device != "cpu" else "cpu"


def timed(
    program: Program, request: Request, device: str, reporter: Reporter, compilations: Compilations
) -> dict[str, Any]:
    """Run the warm-up and the timed steps; ns of each, the clock they are of, and the peaks of memory."""
    warmup = _times(program, device, lambda step: warm(step, request, compilations, reporter))
    _reset_peaks(device)
    compilations.begin(TIMED)
    steps = _times(program, device, lambda step: reporter.steps(MEASURE, request.steps, step))
    clock = "perf_counter" if device == "cpu" else "cuda_event"
    return {
        "warmup_ns": warmup,
        "step_ns": steps,
        "clock": clock,
        "samples": [vars(one) for one in peaks(device)],
    }


def surroundings(device: str) -> dict[str, Any]:
    """What a recording says of the process and the machine."""
    import torch

    return {
        "device": device,
        "threads": torch.get_num_threads(),
        "environment": environment.capture(),
    }


def warm(
    step: Callable[[], object], request: Request, compilations: Compilations, reporter: Reporter
) -> None:
    """Run as many warm-up steps as were asked for, and more until nothing is compiled in them."""
    done = 0
    reporter.tell("progress", part=WARM_UP, done=done, total=request.warmup)
    while not compilations.warm(done, request.warmup):
        step()
        done += 1
        reporter.tell("progress", part=WARM_UP, done=done, total=max(done, request.warmup))


def _times(program: Program, device: str, run: Callable[[Callable[[], None]], None]) -> list[int]:
    """Time of each step that `run` makes, ns."""
    if device == "cuda":
        # the device's own clock, without making it wait for the host between steps
        timer = EventTimer()
        run(lambda: timer.time(program.step))
        return timer.durations_ns()
    taken: list[int] = []

    def step() -> None:
        start = time.perf_counter_ns()
        program.step()
        taken.append(time.perf_counter_ns() - start)

    run(step)
    return taken


def _reset_peaks(device: str) -> None:
    if device == "cuda":
        import torch

        for index in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(index)


def peaks(device: str) -> list[Sample]:
    """Peak memory of this process and of its devices until now."""
    now = time.time_ns()
    taken = [Sample(now, "process", None, "host_peak_bytes", "bytes", float(_host_peak()))]
    if device == "cuda":
        import torch

        for index in range(torch.cuda.device_count()):
            allocated = torch.cuda.max_memory_allocated(index)
            reserved = torch.cuda.max_memory_reserved(index)
            taken += [
                Sample(now, "torch", index, "device_peak_allocated_bytes", "bytes", float(allocated)),
                Sample(now, "torch", index, "device_peak_reserved_bytes", "bytes", float(reserved)),
            ]
    return taken


def _host_peak() -> int:
    """Peak resident bytes of this process; `ru_maxrss` would count the parent that started it too."""
    try:
        status = Path("/proc/self/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(line.split()[1]) * 1024
