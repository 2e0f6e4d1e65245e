"""Inside a measured process: the device, the built workload, its steps timed without a profiler."""

from __future__ import annotations

import re
import resource
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit import environment, registry
from tracekit.errors import CollectionError, UnusableInputError
from tracekit.ingest import Sample

from .cuda_events import EventTimer
from .protocol import MEASURE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.collecting import Request
    from tracekit.workloads.base import Program, Workload

    from .protocol import Reporter

_OUT_OF_MEMORY = re.compile("out of memory|can't allocate memory")
"""torch's allocator of host memory raises a plain RuntimeError."""


@contextmanager
def built(request: Request, *, device: str) -> Iterator[Program]:
    """The workload of a decided request, to be run inside the block.

    Raises:
        CollectionError: Memory ran out.
    """
    workload: Workload = registry.load(registry.WORKLOADS, request.workload)
    import torch

    if request.threads is not None:
        torch.set_num_threads(request.threads)
    try:
        yield workload.build(request.options(device=device))
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _OUT_OF_MEMORY.search(str(error)):
            raise
        raise CollectionError(
            f"{request.workload} ran out of memory: {str(error).splitlines()[0]}",
            hint="lower --batch-size or --resolution",
        ) from error


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
            "torch is not installed, so there is nothing to profile",
            hint="pip install 'tracekit-torch[torch]'",
        ) from error
    # a CPU build has no CUDA to probe, and probing may warn
    usable = torch.version.cuda is not None and torch.cuda.is_available()
    if device == "cuda" and not usable:
        raise UnusableInputError(
            f"torch {torch.__version__} finds no CUDA device here",
            hint="use --device cpu, or see `tracekit doctor`",
        )
    return "cuda" if usable and device != "cpu" else "cpu"


def timed(program: Program, request: Request, device: str, reporter: Reporter) -> dict[str, Any]:
    """Run the warm-up and the timed steps; ns of each, the clock they are of, and the peaks of memory."""
    warmup = _times(program, request.warmup, device, part="warm-up", reporter=reporter)
    _reset_peaks(device)
    steps = _times(program, request.steps, device, part=MEASURE, reporter=reporter)
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


def _times(program: Program, count: int, device: str, *, part: str, reporter: Reporter) -> list[int]:
    if device == "cuda":
        return _event_times(program, count, part=part, reporter=reporter)
    taken: list[int] = []

    def run() -> None:
        start = time.perf_counter_ns()
        program.step()
        taken.append(time.perf_counter_ns() - start)

    reporter.steps(part, count, run)
    return taken


def _event_times(program: Program, count: int, *, part: str, reporter: Reporter) -> list[int]:
    """Time on the device's own clock, without making it wait for the host between steps."""
    timer = EventTimer()
    reporter.steps(part, count, lambda: timer.time(program.step))
    return timer.durations_ns()


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
