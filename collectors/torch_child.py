"""Process of a workload: time its steps without a profiler, then record them with torch.profiler.

Follows `protocol`: request on standard input, events on standard output, all other output on standard error.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tracekit.recording.agent.device import CPU, CUDA, DeviceClock
from tracekit.recording.agent.recorder import profiler_options
from tracekit.recording.collector import Request
from tracekit.runs.compilation import PROFILED
from tracekit.workloads.base import Program

from .compilation import Compilations
from .protocol import PROFILE, Reporter, receive_request, serve
from .workload_process import built_workload, describe_process, fitted, resolve_device, time_steps

TRACE = "trace.json"


def main() -> int:
    """Serve one request; returns the exit code."""
    reporter, content = receive_request()
    request, directory = Request(**content["request"]), Path(content["directory"])
    return serve(reporter, lambda: _record(request, directory, reporter))


def _record(request: Request, directory: Path, reporter: Reporter) -> dict[str, Any]:
    reporter.send("progress", part="start", done=0, total=1)
    device = resolve_device(request.device)
    import torch

    request, reduced = fitted(request, device)
    compilations = Compilations(request.level)
    with built_workload(request, device=device) as program:
        times = time_steps(program, request, device, reporter, compilations)
        if not request.no_profile:
            compilations.begin_part(PROFILED)
            _profile(program, request, device, directory / TRACE, reporter)
    return {
        "trace": TRACE,
        "version": str(torch.__version__),
        "options": {} if request.no_profile else profiler_options(vars(request)),
        "compilation": compilations.facts(times["warmup_ns"]),
        **times,
        "notes": [*reduced, *times["notes"]],
        "batch_size": request.batch_size,
        **describe_process(device, requested=request.device),
    }


def _profile(program: Program, request: Request, device: str, trace: Path, reporter: Reporter) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == CUDA else [])]
    with profile(
        activities=activities,
        schedule=schedule(wait=0, warmup=1, active=request.steps, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(trace)),
        **profiler_options(vars(request)),
    ) as profiler:

        def run() -> None:
            program.step()
            if device != CPU and not profiler.step_num:
                DeviceClock(torch, device).wait()  # work of the step before recording is not recorded
            profiler.step()

        reporter.steps(PROFILE, request.steps + 1, run)


if __name__ == "__main__":
    sys.exit(main())
