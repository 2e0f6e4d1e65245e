"""Record a workload at level `libtorch`: prepare it in Python, then run the C++ program."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tracekit.recording.collector import Recording
from tracekit.runs.meta import Diagnostic, Level

from ..protocol import run_process, samples, timings
from ..sampling import SampledProgress

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.recording.collector import Progress, Request

OUTPUT, TRACE = "output.pt", "trace.json"
_PREPARE = (sys.executable, "-P", "-m", "tracekit.collectors.libtorch.prepare")


def record_libtorch(request: Request, directory: Path, *, progress: Progress) -> Recording:
    """Record a workload; see `tracekit.recording.collector.Collector.record`.

    The output of the last step is saved in the directory as `OUTPUT`, for `torch.load`.
    """
    prepared = run_process(_PREPARE, request, directory, progress)
    sampled, trace = SampledProgress(progress), directory / TRACE
    command = (prepared["program"], prepared["job"], str(trace), str(directory / OUTPUT))
    result = run_process(command, request, directory, sampled, while_running=sampled.sampling)
    message = "--stacks was left out: a C++ program has no Python call stacks"
    ignored = [Diagnostic(Level.INFO, "stacks_ignored", message)] if request.stacks else []
    return Recording(
        traces=(trace,),
        device=prepared["device"],
        threads=result["threads"],
        version=prepared["version"],
        timings=timings(result),
        samples=(*samples(result), *sampled.buffer.samples()),
        environment=prepared["environment"],
        options={"record_shapes": True, "profile_memory": True, "with_stack": False},
        diagnostics=(*sampled.buffer.diagnostics(), *ignored),
    )
