"""Process of a workload: build it, warm it up, time its steps, then record them with torch.profiler.

Follows `protocol`: request on standard input, events on standard output, all other output on standard error.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

from tracekit import registry
from tracekit.errors import CollectionError, UnusableInputError
from tracekit.ingest.write import Sample
from tracekit.recording import changes
from tracekit.recording.agent.changes import apply_changes, end_step
from tracekit.recording.agent.cpu_load import CpuLoad, describe_cpus
from tracekit.recording.agent.device import CPU, CUDA, DeviceClock, HostClock, resident_peak
from tracekit.recording.agent.device import summary as error_summary
from tracekit.recording.agent.recorder import profiler_options
from tracekit.recording.agent.settings import SCRIPT, read_settings
from tracekit.recording.collector import Request, is_out_of_memory
from tracekit.runs import environment
from tracekit.runs.compilation import PROFILED, TIMED, WARM_UP
from tracekit.workloads.base import COMPILE, GPU, Program, Workload

from .compilation import Compilations
from .protocol import MEASURE, PROFILE, Reporter, serve_request

COMMAND = (sys.executable, "-P", "-m", "tracekit.collectors.workload_process")
TRACE = "trace.json"
GIB = 1 << 30
MIN_DEVICE_NS = 1_000_000_000
"""Shortest warm-up and timing on a device: its clocks rise only after some time under load."""
_COMPILERS = ("torch._dynamo", "torch._inductor")  # modules that define the errors of compilation


def record(request: Request, directory: Path, reporter: Reporter) -> dict[str, Any]:
    """Time the steps of a workload and, unless `no_profile`, record as many again with torch.profiler.

    Args:
        request: Workload and options.
        directory: Folder of the trace.
        reporter: Receives the progress.

    Returns:
        The result, as `protocol` hands it over.
    """
    reporter.send("progress", part="start", done=0, total=1)
    device = resolve_device(request.device)
    import torch

    steps = request.steps if request.alternate else 0
    apply_changes(torch, changes.locate(request.change), steps=steps, seed=str(directory))
    request, notes = fit_batch_size(request, device)
    compilations = Compilations(request.level)
    with build_workload(request, device=device) as program:
        times = time_steps(program, request, device, reporter, compilations)
        if not request.no_profile:
            compilations.begin_part(PROFILED)
            _profile(program, request, device, directory / TRACE, reporter)
        settings = read_settings(torch)
    return {
        "trace": TRACE,
        "version": str(torch.__version__),
        "options": {} if request.no_profile else profiler_options(stacks=request.stacks, light=request.light),
        "compilation": compilations.facts(times["warmup_ns"]),
        **times,
        "notes": [*notes, *times["notes"]],
        "batch_size": request.batch_size,
        **describe_process(device, requested=request.device, settings=settings),
    }


def _profile(program: Program, request: Request, device: str, trace: Path, reporter: Reporter) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == CUDA else [])]
    with profile(
        activities=activities,
        schedule=schedule(wait=0, warmup=1, active=request.steps, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(trace)),
        **profiler_options(stacks=request.stacks, light=request.light),
    ) as profiler:

        def run() -> None:
            program.step()
            if device != CPU and not profiler.step_num:
                DeviceClock(torch, device).wait()  # work of the step before recording is not recorded
            profiler.step()

        reporter.steps(PROFILE, request.steps + 1, run)


@contextmanager
def build_workload(request: Request, *, device: str) -> Iterator[Program]:
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
    summary = error_summary(error)
    if isinstance(error, MemoryError) or is_out_of_memory(str(error)):
        message = f"{request.workload} ran out of memory: {summary}"
        return CollectionError(message, hint="lower --batch-size or --resolution")
    if request.level == COMPILE and any(kind.__module__.startswith(_COMPILERS) for kind in type(error).mro()):
        message = f"{request.backend} could not compile {request.workload}: {summary}"
        return CollectionError(message, hint="use --backend aot_eager or --backend eager")
    return None


def fit_batch_size(request: Request, device: str) -> tuple[Request, list[tuple[str, str]]]:
    """Reduce the batch size of size `gpu` to what the current device has free memory for.

    Returns:
        The request, and notes as pairs of code and message.
    """
    if device == CPU or not request.fit_batch or request.batch_size is None:
        return request, []
    workload: Workload = registry.load(registry.WORKLOADS, request.workload)
    memory, batch = workload.memory.get(request.mode), request.batch_size
    if memory is None or request.resolution != workload.sizes[GPU]["resolution"]:
        return request, []
    import torch

    free, _ = torch.cuda.mem_get_info()
    fits = memory.fit_batch(batch, request.dtype, free)
    if fits == batch:
        return request, []
    needed = memory.required_bytes(batch, request.dtype)
    message = (
        f"batch size {fits} instead of {batch}, which needs {needed / GIB:.1f} GiB of device memory: "
        f"{free / GIB:.1f} GiB are free"
    )
    return replace(request, batch_size=fits), [("batch_reduced", message)]


def resolve_device(device: str) -> str:
    """Return the requested device, `cpu` or `cuda`; `auto` is `cuda` if there is a GPU.

    Raises:
        CollectionError: torch is not installed.
        UnusableInputError: There is no such device.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        message = "torch is not installed"
        raise CollectionError(message, hint="pip install 'tracekit-torch[torch]'") from error
    problem = "" if device == "cpu" else environment.gpu_problem(torch)
    if device == "cuda" and problem:
        message = f"torch can use no GPU: {problem}"
        raise UnusableInputError(message, hint="use --device cpu, or see `tracekit doctor`")
    return "cpu" if device == "cpu" or problem else "cuda"


def time_steps(
    program: Program, request: Request, device: str, reporter: Reporter, compilations: Compilations
) -> dict[str, Any]:
    """Run warm-up and timed steps; returns the duration of each in ns, their clock, and peak memory.

    On a device, warm-up goes on for `MIN_DEVICE_NS` after the requested steps, and timing lasts at least as
    long, unless no warm-up is requested.

    Args:
        program: The built workload.
        request: Its options.
        device: Its device.
        reporter: Receives the progress.
        compilations: Counts compilations in each part, and decides when the workload is warm.
    """
    clock = StepTimer(device)
    pace_ns = _warm_up(lambda: clock.time(program.step), request, device, compilations, reporter)
    warmup = clock.durations_ns()
    _reset_peaks(device)
    compilations.begin_part(TIMED)
    timer = StepTimer(device)
    load = CpuLoad()
    load.begin()
    count, began = max(request.steps, ceil(MIN_DEVICE_NS / pace_ns) if pace_ns else 0), time.perf_counter_ns()

    def step() -> None:
        timer.time(program.step)
        end_step()  # changes may take turns

    reporter.steps(MEASURE, count, step)
    steps = timer.durations_ns()
    while pace_ns and (spent := time.perf_counter_ns() - began) < MIN_DEVICE_NS:
        for _ in range(ceil((MIN_DEVICE_NS - spent) * count / spent)):
            timer.time(program.step)
        steps = timer.durations_ns()
    load.step_ended()
    load.end()
    return {
        "warmup_ns": warmup,
        "step_ns": steps,
        "clock": timer.name,
        "samples": [vars(sample) for sample in _peak_memory(device)],
        "notes": timer.notes,
        "cpu_load": load.facts(),
    }


def describe_process(
    device: str, *, requested: str, settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return device, threads and environment of this process, with why `auto` chose no GPU."""
    import torch

    values = environment.capture()
    if settings:
        values[environment.PROGRAM] = {name: value for name, value in settings.items() if name != SCRIPT}
    values[environment.CPUS] = {**describe_cpus(), "inter_op": torch.get_num_interop_threads()}
    if requested == "auto" and device == "cpu" and environment.machine_gpus():
        values[environment.GPU_PROBLEM] = environment.gpu_problem(torch)
    return {"device": device, "threads": torch.get_num_threads(), "environment": values}


def _warm_up(
    step: Callable[[], object],
    request: Request,
    device: str,
    compilations: Compilations,
    reporter: Reporter,
) -> int:
    """Run the requested warm-up steps, and more until a step compiles nothing; returns as `keep_busy`."""
    done = 0
    reporter.send("progress", part=WARM_UP, done=done, total=request.warmup)
    while not compilations.is_warm(done, request.warmup):
        step()
        done += 1
        reporter.send("progress", part=WARM_UP, done=done, total=max(done, request.warmup))
    return keep_busy(step, device) if request.warmup and device != CPU else 0


def keep_busy(step: Callable[[], object], device: str, *, least_ns: int | None = None) -> int:
    """Run steps on a device for `least_ns`, by default `MIN_DEVICE_NS`; returns their mean duration in ns.

    The host waits for the device only after 1, 2, 4, ... steps: a wait after each would leave it idle.

    Args:
        step: Runs one step.
        device: Type of the accelerator.
        least_ns: Least time, ns.
    """
    import torch

    clock, wanted = DeviceClock(torch, device), MIN_DEVICE_NS if least_ns is None else least_ns
    clock.wait()
    began, done, spent, count = time.perf_counter_ns(), 0, 0, 1
    while spent < wanted:
        for _ in range(count):
            step()
        clock.wait()
        done, spent = done + count, time.perf_counter_ns() - began
        count = max(1, min(count * 2, ceil((wanted - spent) * done / spent)))
    return max(1, spent // max(1, done))


class StepTimer:
    """Time steps by the clock of the host, or by events on the current stream of a device.

    Events do not synchronize between steps. The duration of a step is the time between its two events. It
    includes the time in which the device waits for the host; steps do not overlap even if the host runs
    ahead.

    Args:
        device: `cpu`, or the type of an accelerator.

    Attributes:
        name: Name of the clock.
        notes: Diagnostics as pairs of code and message.
    """

    def __init__(self, device: str) -> None:
        import torch

        self.notes: list[tuple[str, str]] = []
        self._clock = HostClock() if device == CPU else DeviceClock(torch, device)
        self.name = self._clock.name
        self._pairs: list[tuple[Any, Any]] = []
        self._clock.wait()  # earlier work belongs to no step

    def time(self, step: Callable[[], object]) -> None:
        """Run one step between two readings of the clock."""
        start = self._clock.now()
        step()
        self._pairs.append((start, self._clock.now()))

    def durations_ns(self) -> list[int]:
        """Return the duration of each step, ns, exact to about 500 ns; waits for the device.

        A note says how many could not be read.
        """
        durations, reason = self._clock.elapsed_ns(self._pairs)
        if reason:
            unread = f"{len(self._pairs) - len(durations)} of {len(self._pairs)} steps"
            self.notes = [("steps_not_timed", f"{unread} could not be timed: {reason}")]
        return durations


def _reset_peaks(device: str) -> None:
    if device == CUDA:
        import torch

        for index in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(index)


def _peak_memory(device: str) -> list[Sample]:
    """Return peak memory of this process and of its devices so far."""
    now = time.time_ns()
    resident = resident_peak() or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    samples = [Sample(now, "process", None, "host_peak_bytes", "bytes", float(resident))]
    if device == CUDA:
        import torch

        for index in range(torch.cuda.device_count()):
            allocated = torch.cuda.max_memory_allocated(index)
            reserved = torch.cuda.max_memory_reserved(index)
            samples += [
                Sample(now, "torch", index, "device_peak_allocated_bytes", "bytes", float(allocated)),
                Sample(now, "torch", index, "device_peak_reserved_bytes", "bytes", float(reserved)),
            ]
    return samples


if __name__ == "__main__":
    sys.exit(serve_request(record))
