"""One recording: prepare in Python, then run the C++ program and follow it as any measured process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tracekit.recording.collector import Recording
from tracekit.runs.meta import Diagnostic, Level

from ..protocol import converse, samples, timings
from ..sampling import Watched

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.recording.collector import Progress, Request

OUTPUT, TRACE = "output.pt", "trace.json"
_PREPARE = (sys.executable, "-P", "-m", "tracekit.collectors.libtorch.prepare")


def record(request: Request, directory: Path, *, progress: Progress) -> Recording:
    """Record a built-in workload at level `libtorch`; see `tracekit.recording.collector.Collector.record`.

    The output of the last step is left in the directory for `torch.load`, as `OUTPUT`.
    """
    prepared = converse(_PREPARE, request, directory, progress)
    watched, trace = Watched(progress), directory / TRACE
    command = (prepared["program"], prepared["job"], str(trace), str(directory / OUTPUT))
    told = converse(command, request, directory, watched, beside=watched.sampling)
    return Recording(
        traces=(trace,),
        device=prepared["device"],
        threads=told["threads"],
        version=prepared["version"],
        timings=timings(told),
        samples=(*samples(told), *watched.taken.samples()),
        environment=prepared["environment"],
        options={"record_shapes": True, "profile_memory": True, "with_stack": False},
        diagnostics=(*watched.taken.diagnostics(), *_stacks_ignored(asked=request.stacks)),
    )


def _stacks_ignored(*, asked: bool) -> list[Diagnostic]:
    message = "--stacks was left out: a C++ program has no Python call stacks"
    return [Diagnostic(Level.INFO, "stacks_ignored", message)] * asked
