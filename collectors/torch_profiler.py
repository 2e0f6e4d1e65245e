"""Collector that records with torch.profiler, or at level `libtorch` with Kineto in a C++ program."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tracekit.ingest.write import Sample
from tracekit.recording import cupti
from tracekit.recording.collector import Program, Progress, Recording, Request
from tracekit.recording.failed_logs import LOG
from tracekit.runs.meta import Diagnostic, Level
from tracekit.workloads.base import LIBTORCH

from .assignment import View, assigned
from .compilation import artifact_folder
from .protocol import MEASURE, PROFILE, notes, run_process, samples, timings
from .sampling import SampledProgress

_COMMAND = (sys.executable, "-P", "-m", "tracekit.collectors.torch_child")
OUTPUT, TRACE = "output.pt", "trace.json"
_PREPARE = (sys.executable, "-P", "-m", "tracekit.collectors.libtorch.prepare")


class TorchProfilerCollector:
    """Records workloads and programs with torch.profiler, and level `libtorch` with Kineto in C++."""

    name = "torch"

    def record(self, request: Request, directory: Path, *, progress: Progress) -> Recording:
        """See `tracekit.recording.collector.Collector.record`."""
        if request.level == LIBTORCH:
            return _record_libtorch(request, directory, progress=progress)
        sampled = SampledProgress(progress, last=MEASURE if request.no_profile else PROFILE)
        result = run_process(_COMMAND, request, directory, sampled, while_running=sampled.sampling)
        own = samples(result)
        return Recording(
            traces=() if request.no_profile else (directory / result["trace"],),
            device=result["device"],
            threads=result["threads"],
            version=result["version"],
            timings=timings(result),
            compilation=result["compilation"],
            batch_size=result["batch_size"],
            compile_artifacts=artifact_folder(request, directory, os.environ),
            samples=(*own, *assigned(sampled.buffer.samples(), [_view(result["environment"], own)])),
            environment=result["environment"],
            options=result["options"],
            diagnostics=(
                *sampled.buffer.diagnostics(),
                *notes(result),
                *cupti.diagnostics(_log(directory)),
            ),
        )

    def record_program(self, program: Program, directory: Path, *, progress: Progress) -> Recording:
        """See `tracekit.recording.collector.Collector.record_program`."""
        from .torch_program import record_program

        return record_program(program, directory)


def _record_libtorch(request: Request, directory: Path, *, progress: Progress) -> Recording:
    """Prepare a workload in Python, then run the C++ program.

    The output of the last step is saved in the directory as `OUTPUT`, for `torch.load`.
    """
    prepared = run_process(_PREPARE, request, directory, progress)
    sampled, trace = SampledProgress(progress), directory / TRACE
    command = (prepared["program"], prepared["job"], str(trace), str(directory / OUTPUT))
    result = run_process(command, request, directory, sampled, while_running=sampled.sampling)
    own = samples(result)
    message = "--stacks was left out: a C++ program has no Python call stacks"
    ignored = [Diagnostic(Level.INFO, "stacks_ignored", message)] if request.stacks else []
    return Recording(
        traces=(trace,),
        device=prepared["device"],
        threads=result["threads"],
        version=prepared["version"],
        timings=timings(result),
        samples=(*own, *assigned(sampled.buffer.samples(), [_view(prepared["environment"], own)])),
        environment=prepared["environment"],
        batch_size=prepared["batch_size"],
        options={"record_shapes": True, "profile_memory": True, "with_stack": False},
        diagnostics=(
            *sampled.buffer.diagnostics(),
            *notes(prepared),
            *cupti.diagnostics(_log(directory)),
            *ignored,
        ),
    )


def _log(directory: Path) -> str:
    """Return what the recorded process and its libraries wrote to standard error."""
    return (directory / LOG).read_text(errors="replace")


def _view(environment: Mapping[str, Any], own: Iterable[Sample]) -> View:
    """Return the devices that a workload, a single process, saw and used."""
    return View.of(0, environment, (sample.device for sample in own if sample.value))
