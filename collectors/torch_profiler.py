"""Collector of torch.profiler: starts the measured process, follows it, and never leaves it behind."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tracekit.recording.collector import Recording, Request
from tracekit.workloads.base import LIBTORCH

from .libtorch import recorded as libtorch
from .protocol import MEASURE, PROFILE, converse, samples, timings
from .sampling import Watched

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.recording.collector import Program, Progress

_COMMAND = (sys.executable, "-P", "-m", "tracekit.collectors.torch_child")


class TorchProfilerCollector:
    """Records a built-in workload with torch.profiler in a fresh process."""

    name = "torch"

    def record(self, request: Request, directory: Path, *, progress: Progress) -> Recording:
        """See `tracekit.recording.collector.Collector.record`."""
        if request.level == LIBTORCH:
            return libtorch.record(request, directory, progress=progress)
        watched = Watched(progress, last=MEASURE if request.no_profile else PROFILE)
        told = converse(_COMMAND, request, directory, watched, beside=watched.sampling)
        return Recording(
            traces=() if request.no_profile else (directory / told["trace"],),
            device=told["device"],
            threads=told["threads"],
            version=told["version"],
            timings=timings(told),
            compilation=told["compilation"],
            samples=(*samples(told), *watched.taken.samples()),
            environment=told["environment"],
            options=told["options"],
            diagnostics=watched.taken.diagnostics(),
        )

    def record_program(self, program: Program, directory: Path, *, progress: Progress) -> Recording:
        """See `tracekit.recording.collector.Collector.record_program`."""
        from .torch_program import record_program

        return record_program(program, directory)
