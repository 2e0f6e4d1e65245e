"""Build a workload in its own process, warm it up, and time its steps without a profiler."""

from __future__ import annotations

import re
import resource
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracekit import registry
from tracekit.errors import CollectionError, UnusableInputError
from tracekit.ingest.write import Sample
from tracekit.recording.agent.recorder import resident_peak
from tracekit.runs import environment
from tracekit.runs.compilation import TIMED, WARM_UP
from tracekit.workloads.base import COMPILE

from .protocol import MEASURE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.recording.collector import Request
    from tracekit.workloads.base import Program, Workload

    from .compilation import Compilations
    from .protocol import Reporter

_OUT_OF_MEMORY = re.compile("out of memory|can't allocate memory")
"""torch's host allocator raises a plain RuntimeError."""
_COMPILERS = ("torch._dynamo", "torch._inductor")
"""Modules that define the errors of compilation."""


@contextmanager
def built_workload(request: Request, *, device: str) -> Iterator[Program]:
    """Build the workload of a request, and explain errors of the block.

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
        explained = _explain(error, request)
        if explained is None:
            raise
        raise explained from error


def _explain(error: BaseException, request: Request) -> CollectionError | None:
    """Return an error with a hint for running out of memory and failed compilation; None for others."""
    summary = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if not isinstance(error, RuntimeError) or _OUT_OF_MEMORY.search(str(error)):
        message = f"{request.workload} ran out of memory: {summary}"
        return CollectionError(message, hint="lower --batch-size or --resolution")
    if request.level == COMPILE and any(kind.__module__.startswith(_COMPILERS) for kind in type(error).mro()):
        message = f"{request.backend} could not compile {request.workload}: {summary}"
        return CollectionError(message, hint="use --backend aot_eager or --backend eager")
    return None


def resolve_device(device: str) -> str:
    """Return the requested device, `cpu` or `cuda`; `auto` is `cuda` if there is a GPU.

    Raises:
        CollectionError: torch is not installed.
        UnusableInputError: There is no such device.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise CollectionError(
            "torch is not installed",
            hint="pip install 'tracekit-torch[torch]'",
        ) from error
    problem = "" if device == "cpu" else environment.gpu_problem(torch)
    if device == "cuda" and problem:
        raise UnusableInputError(
            f"torch can use no GPU: {problem}",
            hint="use --device cpu, or see `tracekit doctor`",
        )
    return "cpu" if device == "cpu" or problem else "cuda"


def time_steps(
    program: Program, request: Request, device: str, reporter: Reporter, compilations: Compilations
) -> dict[str, Any]:
    """Run warm-up and timed steps; returns the duration of each in ns, their clock, and peak memory."""
    warmup = _times(program, device, lambda step: _warm_up(step, request, compilations, reporter))
    _reset_peaks(device)
    compilations.begin_part(TIMED)
    steps = _times(program, device, lambda step: reporter.steps(MEASURE, request.steps, step))
    clock = "perf_counter" if device == "cpu" else "cuda_event"
    return {
        "warmup_ns": warmup,
        "step_ns": steps,
        "clock": clock,
        "samples": [vars(sample) for sample in _peak_memory(device)],
    }


def describe_process(device: str, *, requested: str) -> dict[str, Any]:
    """Return device, threads and environment of this process, and why `auto` did not choose a GPU."""
    import torch

    described = environment.capture()
    if requested == "auto" and device == "cpu" and environment.machine_gpus():
        described[environment.GPU_PROBLEM] = environment.gpu_problem(torch)
    return {"device": device, "threads": torch.get_num_threads(), "environment": described}


def _warm_up(
    step: Callable[[], object], request: Request, compilations: Compilations, reporter: Reporter
) -> None:
    """Run the requested warm-up steps, and more until a step compiles nothing."""
    done = 0
    reporter.send("progress", part=WARM_UP, done=done, total=request.warmup)
    while not compilations.is_warm(done, request.warmup):
        step()
        done += 1
        reporter.send("progress", part=WARM_UP, done=done, total=max(done, request.warmup))


def _times(program: Program, device: str, run: Callable[[Callable[[], None]], None]) -> list[int]:
    """Return the duration of each step that `run` runs, ns."""
    if device == "cuda":
        timer = EventTimer()
        run(lambda: timer.time(program.step))
        return timer.durations_ns()
    durations: list[int] = []

    def step() -> None:
        start = time.perf_counter_ns()
        program.step()
        durations.append(time.perf_counter_ns() - start)

    run(step)
    return durations


class EventTimer:
    """Time steps by CUDA events on the current stream, without synchronizing between steps.

    The duration of a step is the time between its two events. It includes the time in which the device waits
    for the host; steps do not overlap even if the host runs ahead.

    Example:
        >>> timer = EventTimer()  # doctest: +SKIP
        >>> for _ in range(5):  # doctest: +SKIP
        ...     timer.time(step)
        >>> timer.durations_ns()  # doctest: +SKIP
    """

    def __init__(self) -> None:
        import torch

        self._torch: Any = torch
        self._pairs: list[tuple[Any, Any]] = []
        torch.cuda.synchronize()  # earlier work belongs to no step

    def time(self, step: Callable[[], object]) -> None:
        """Run one step between two events."""
        start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step()
        end.record()
        self._pairs.append((start, end))

    def durations_ns(self) -> list[int]:
        """Return the duration of each step, ns, exact to about 500 ns; waits for the device."""
        self._torch.cuda.synchronize()
        return [round(start.elapsed_time(end) * 1e6) for start, end in self._pairs]


def _reset_peaks(device: str) -> None:
    if device == "cuda":
        import torch

        for index in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(index)


def _peak_memory(device: str) -> list[Sample]:
    """Return peak memory of this process and of its devices so far."""
    now = time.time_ns()
    resident = resident_peak() or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    samples = [Sample(now, "process", None, "host_peak_bytes", "bytes", float(resident))]
    if device == "cuda":
        import torch

        for index in range(torch.cuda.device_count()):
            allocated = torch.cuda.max_memory_allocated(index)
            reserved = torch.cuda.max_memory_reserved(index)
            samples += [
                Sample(now, "torch", index, "device_peak_allocated_bytes", "bytes", float(allocated)),
                Sample(now, "torch", index, "device_peak_reserved_bytes", "bytes", float(reserved)),
            ]
    return samples
