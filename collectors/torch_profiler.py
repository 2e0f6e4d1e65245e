"""Collector that records with torch.profiler."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tracekit.recording.collector import Recording, Request
from tracekit.workloads.base import LIBTORCH

from .libtorch.record import record_libtorch
from .protocol import MEASURE, PROFILE, run_process, samples, timings
from .sampling import SampledProgress

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.recording.collector import Program, Progress

_COMMAND = (sys.executable, "-P", "-m", "tracekit.collectors.torch_child")


class TorchProfilerCollector:
    """Records workloads and programs with torch.profiler, and level `libtorch` with Kineto in C++."""

    name = "torch"

    def record(self, request: Request, directory: Path, *, progress: Progress) -> Recording:
        """See `tracekit.recording.collector.Collector.record`."""
        if request.level == LIBTORCH:
            return record_libtorch(request, directory, progress=progress)
        sampled = SampledProgress(progress, last=MEASURE if request.no_profile else PROFILE)
        result = run_process(_COMMAND, request, directory, sampled, while_running=sampled.sampling)
        return Recording(
            traces=() if request.no_profile else (directory / result["trace"],),
            device=result["device"],
            threads=result["threads"],
            version=result["version"],
            timings=timings(result),
            compilation=result["compilation"],
            samples=(*samples(result), *sampled.buffer.samples()),
            environment=result["environment"],
            options=result["options"],
            diagnostics=sampled.buffer.diagnostics(),
        )

    def record_program(self, program: Program, directory: Path, *, progress: Progress) -> Recording:
        """See `tracekit.recording.collector.Collector.record_program`."""
        from .torch_program import record_program

        return record_program(program, directory)
