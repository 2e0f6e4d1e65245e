"""The process that is measured: times a workload without a profiler, then records it with torch's.

Reads a request (JSON) on standard input and tells its progress, result or error as lines of JSON on
standard output; whatever else prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tracekit import environment, registry
from tracekit.collecting import Request
from tracekit.errors import CollectionError, TracekitError, UnusableInputError
from tracekit.ingest import Sample

from .cuda_events import EventTimer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.workloads.base import Program, Workload

TRACE = "trace.json"
MEASURE, PROFILE = "measure", "profile"
"""Parts of the progress: the timed steps, and the profiled ones after them."""
_OUT_OF_MEMORY = re.compile("out of memory|can't allocate memory")
"""torch's allocator of host memory raises a plain RuntimeError."""


@dataclass(frozen=True)
class Reporter:
    """Writes one JSON object per line to the parent."""

    stream: TextIO

    def tell(self, event: str, **content: Any) -> None:
        """Send one event."""
        self.stream.write(json.dumps({"event": event, **content}) + "\n")
        self.stream.flush()

    def steps(self, part: str, total: int, run: Callable[[], None]) -> None:
        """Run a step `total` times, telling how many are done."""
        self.tell("progress", part=part, done=0, total=total)
        for done in range(1, total + 1):
            run()
            self.tell("progress", part=part, done=done, total=total)


def main() -> int:
    """Serve one request; returns the exit code."""
    reporter = Reporter(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)  # a library that prints must not reach the parent's protocol
    content = json.load(sys.stdin)
    try:
        reporter.tell(
            "result", **_record(Request(**content["request"]), Path(content["directory"]), reporter)
        )
    except TracekitError as error:
        reporter.tell("error", kind=type(error).__name__, message=error.message, hint=error.hint)
        return int(error.exit_code)
    return 0


def _record(request: Request, directory: Path, reporter: Reporter) -> dict[str, Any]:
    reporter.tell("progress", part="start", done=0, total=1)
    workload: Workload = registry.load(registry.WORKLOADS, request.workload)
    device = _device(request.device)
    options = request.options(device=device)
    import torch

    if request.threads is not None:
        torch.set_num_threads(request.threads)
    try:
        program = workload.build(options)
        warmup = _time(program, request.warmup, device, part="warm-up", reporter=reporter)
        _reset_peaks(device)
        steps = _time(program, request.steps, device, part=MEASURE, reporter=reporter)
        samples = _peaks(device)
        _profile(program, request, device, directory / TRACE, reporter)
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _OUT_OF_MEMORY.search(str(error)):
            raise
        raise CollectionError(
            f"{request.workload} ran out of memory: {str(error).splitlines()[0]}",
            hint="lower --batch-size or --resolution",
        ) from error
    return {
        "trace": TRACE,
        "device": device,
        "threads": torch.get_num_threads(),
        "version": str(torch.__version__),
        "step_ns": steps,
        "warmup_ns": warmup,
        "clock": "perf_counter" if device == "cpu" else "cuda_event",
        "samples": [asdict(sample) for sample in samples],
        "environment": environment.capture(),
        "options": {"record_shapes": True, "profile_memory": True, "with_stack": request.stacks},
    }


def _device(wanted: str) -> str:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise CollectionError(
            "torch is not installed, so there is nothing to profile",
            hint="pip install 'tracekit-torch[torch]'",
        ) from error
    # a CPU build has no CUDA to probe, and probing may warn
    found = torch.version.cuda is not None and torch.cuda.is_available()
    if wanted == "cuda" and not found:
        raise UnusableInputError(
            f"torch {torch.__version__} finds no CUDA device here",
            hint="use --device cpu, or see `tracekit doctor`",
        )
    return "cuda" if found and wanted != "cpu" else "cpu"


def _time(program: Program, count: int, device: str, *, part: str, reporter: Reporter) -> list[int]:
    if device == "cuda":
        return _time_events(program, count, part=part, reporter=reporter)
    taken: list[int] = []

    def run() -> None:
        start = time.perf_counter_ns()
        program.step()
        taken.append(time.perf_counter_ns() - start)

    reporter.steps(part, count, run)
    return taken


def _time_events(program: Program, count: int, *, part: str, reporter: Reporter) -> list[int]:
    """Time on the device's own clock, without making it wait for the host between steps."""
    timer = EventTimer()
    reporter.steps(part, count, lambda: timer.time(program.step))
    return timer.durations_ns()


def _reset_peaks(device: str) -> None:
    if device == "cuda":
        import torch

        for index in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(index)


def _peaks(device: str) -> list[Sample]:
    now = time.time_ns()
    found = [Sample(now, "process", None, "host_peak_bytes", "bytes", float(_host_peak()))]
    if device == "cuda":
        import torch

        for index in range(torch.cuda.device_count()):
            allocated, reserved = (
                torch.cuda.max_memory_allocated(index),
                torch.cuda.max_memory_reserved(index),
            )
            found += [
                Sample(now, "torch", index, "device_peak_allocated_bytes", "bytes", float(allocated)),
                Sample(now, "torch", index, "device_peak_reserved_bytes", "bytes", float(reserved)),
            ]
    return found


def _host_peak() -> int:
    """Peak resident bytes of this process; `ru_maxrss` would count the parent that started it too."""
    try:
        status = Path("/proc/self/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(line.split()[1]) * 1024


def _profile(program: Program, request: Request, device: str, trace: Path, reporter: Reporter) -> None:
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with profile(
        activities=activities,
        schedule=schedule(wait=0, warmup=1, active=request.steps, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(trace)),
        with_stack=request.stacks,
        record_shapes=True,
        profile_memory=True,
    ) as profiler:

        def run() -> None:
            program.step()
            profiler.step()

        reporter.steps(PROFILE, request.steps + 1, run)


if __name__ == "__main__":
    sys.exit(main())
