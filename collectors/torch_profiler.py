"""Collector that records with torch.profiler, or at level `libtorch` with Kineto in a C++ program."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracekit.recording import cupti
from tracekit.recording.collector import Program, Progress, Recording, Request
from tracekit.recording.logs import LOG
from tracekit.runs.meta import Diagnostic, Level
from tracekit.workloads.base import LIBTORCH

from . import program as programs
from . import workload_process
from .assignment import View, assign_samples, report_unsampled
from .compilation import artifact_folder
from .protocol import MEASURE, PROFILE, read_result, run_process
from .sampling import SampledProgress

OUTPUT = "output.pt"
_PREPARE = (sys.executable, "-P", "-m", "tracekit.collectors.libtorch.prepare")


class TorchProfilerCollector:
    """Records workloads and programs with torch.profiler, and level `libtorch` with Kineto in C++."""

    name = "torch"

    def record(self, request: Request, directory: Path, *, progress: Progress) -> Recording:
        """See `tracekit.recording.collector.Collector.record`."""
        if request.level == LIBTORCH:
            return _record_libtorch(request, directory, progress=progress)
        sampled = SampledProgress(progress, last=MEASURE if request.no_profile else PROFILE)
        result = run_process(
            workload_process.COMMAND, request, directory, sampled, while_running=sampled.sampling
        )
        recording = _make_recording(result, directory, sampled)
        return replace(
            recording,
            traces=() if request.no_profile else (directory / result["trace"],),
            compile_artifacts=artifact_folder(request, directory, os.environ),
        )

    def record_program(self, program: Program, directory: Path, *, progress: Progress) -> Recording:
        """See `tracekit.recording.collector.Collector.record_program`."""
        code, sampled = programs.run(program, directory)
        jobs = programs.read_jobs(directory)
        if not jobs:
            raise programs.failure(program, directory, code)

        def make(ranks: list[programs.Rank]) -> Recording:
            recording = programs.make_recording(program, directory, ranks, code=code, sampled=sampled)
            missing = report_unsampled(sampled.samples(), [rank.view for rank in ranks])
            diagnostics = (*programs.diagnostics(directory, ranks, code), *sampled.diagnostics(), *missing)
            return replace(recording, diagnostics=diagnostics)

        recordings = [
            replace(make(ranks), process=process, window=window)
            for ranks, (process, window) in zip(jobs, programs.number_jobs(jobs), strict=True)
        ]
        first, *others = recordings
        return replace(first, others=tuple(others))


def _record_libtorch(request: Request, directory: Path, *, progress: Progress) -> Recording:
    """Prepare a workload in Python, then run the C++ program, which saves its last output as `OUTPUT`."""
    prepared = run_process(_PREPARE, request, directory, progress)
    sampled, trace = SampledProgress(progress), directory / workload_process.TRACE
    command = (prepared["program"], prepared["job"], str(trace), str(directory / OUTPUT))
    result = run_process(command, request, directory, sampled, while_running=sampled.sampling)
    options = {"record_shapes": True, "profile_memory": True, "with_stack": False}
    message = "--stacks was left out: a C++ program has no Python call stacks"
    ignored = [Diagnostic(Level.INFO, "stacks_ignored", message)] if request.stacks else []
    recording = _make_recording({**prepared, **result, "options": options}, directory, sampled)
    return replace(recording, traces=(trace,), diagnostics=(*recording.diagnostics, *ignored))


def _make_recording(result: dict[str, Any], directory: Path, sampled: SampledProgress) -> Recording:
    """Return the recording of a workload, without traces, with what was sampled and what CUPTI said."""
    recording = read_result(result, version=result["version"], options=result["options"])
    log = (directory / LOG).read_text(errors="replace")
    view = View.of(0, recording.environment, (sample.device for sample in recording.samples if sample.value))
    return replace(
        recording,
        samples=(*recording.samples, *assign_samples(sampled.buffer.samples(), [view])),
        diagnostics=(*sampled.buffer.diagnostics(), *recording.diagnostics, *cupti.diagnostics(log)),
    )
