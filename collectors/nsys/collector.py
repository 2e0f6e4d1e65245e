"""Collector that records with Nsight Systems: CUDA activity, ops and steps as NVTX ranges, OS calls."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tracekit.errors import CollectionError, UnusableInputError
from tracekit.recording.collector import Program, Progress, Recording, Request
from tracekit.recording.doctor import Check, Status
from tracekit.runs import environment
from tracekit.runs.meta import Diagnostic, Level
from tracekit.workloads.base import LIBTORCH

from .. import program_report, torch_program
from ..assignment import assigned
from ..compilation import artifact_folder
from ..protocol import follow, result_of, run_process, samples, timings
from ..protocol import notes as protocol_notes
from . import tool
from .export import (
    REPORT,
    NsysResult,
    check_not_empty,
    check_processed,
    diagnostics,
    export_report,
    find_report,
    recorded_options,
    run_nsys,
    stacks_ignored,
)
from .measured import EVENTS, REQUEST

_SAMPLED = Diagnostic(
    Level.INFO,
    "samples_with_nsys",
    "sampled memory, threads and CPU time include those of nsys",
)


def _device() -> str:
    """Guess the device of a program before it runs; it opens a window only if it uses a GPU."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in {"", "-1"}:
        return "cpu"
    return "cuda" if environment.nvml_gpus() else "cpu"


_MEASURED = (sys.executable, "-P", "-m", "tracekit.collectors.nsys.measured")


class NsysCollector:
    """Records workloads and programs with Nsight Systems."""

    name = "nsys"

    def check(self) -> Check:
        """Check the installation of nsys for `tracekit doctor`."""
        try:
            nsys = tool.find()
        except CollectionError as error:
            return Check("nsys", Status.MISSING, error.message, error.hint)
        detail = f"{nsys.version}, {nsys.path}"
        if losses := tool.unsupported_settings(nsys):
            detail = f"{detail}; too old: {'; '.join(losses)}"
            return Check("nsys", Status.WARN, detail, "install a newer one")
        return Check("nsys", Status.OK, detail)

    def record(self, request: Request, directory: Path, *, progress: Progress) -> Recording:
        """See `tracekit.recording.collector.Collector.record`.

        Steps are timed in a process without nsys, then recorded in another one under nsys.
        """
        if request.level == LIBTORCH:
            raise UnusableInputError("nsys cannot record --level libtorch", hint="use --collector torch")
        if request.compile_artifacts:
            message = "nsys cannot record a workload with --compile-artifacts"
            raise UnusableInputError(message, hint="use --collector torch")
        nsys = tool.find()
        timed = run_process(_MEASURED, request, directory, progress)
        decided = replace(request, device=timed["device"], batch_size=timed["batch_size"])
        command = tool.profile_command(nsys, directory / REPORT, device=decided.device)
        done, result = _run_under_nsys(command, decided, directory, progress)
        if done.report is None:
            check_processed(directory)
            raise tool.recording_error(done.log, done.code, by_range=decided.device != "cpu")
        progress("export", 0, 1)
        trace = export_report(nsys, done.report)
        progress("export", 1, 1)
        check_not_empty(trace, device=decided.device)
        notes = (*result["notes"], *stacks_ignored(requested=request.stacks))
        sampled = [Diagnostic(**{**one, "level": Level(one["level"])}) for one in result["diagnostics"]]
        return Recording(
            traces=(trace,),
            device=decided.device,
            threads=timed["threads"],
            version=nsys.version,
            timings=timings(timed),
            compilation=timed["compilation"],
            batch_size=timed["batch_size"],
            samples=(*samples(timed), *samples(result)),
            environment=timed["environment"],
            options={"arguments": recorded_options(command)},
            diagnostics=(*sampled, *protocol_notes(timed), *diagnostics(nsys, done.code, notes)),
        )

    def record_program(self, program: Program, directory: Path, *, progress: Progress) -> Recording:
        """See `tracekit.recording.collector.Collector.record_program`."""
        nsys = tool.find()
        guessed = _device()
        command = tool.profile_command(nsys, directory.resolve() / REPORT, device=guessed)
        code, sampled = torch_program.run(program, directory, under=command)
        ranks = program_report.recorded_ranks(directory)
        if not ranks:
            raise program_report.failure(program, directory, code)
        first, report = ranks[0].facts, find_report(directory)
        if report is None:
            check_processed(directory)
            raise tool.missing_report_error(code, by_range=guessed != "cpu", device=first["device"])
        if guessed == "cpu" != first["device"]:
            raise tool.untraced_gpu_error()
        progress("export", 0, 1)
        trace = export_report(nsys, report)
        progress("export", 1, 1)
        check_not_empty(trace, device=first["device"])
        ignored = stacks_ignored(requested=program.stacks)
        problems = program_report.diagnostics(ranks, code)
        return Recording(
            traces=(trace,),
            device=first["device"],
            threads=first["threads"],
            version=nsys.version,
            timings=program_report.timings(ranks),
            samples=(
                *program_report.samples(ranks),
                *assigned(sampled.samples(), program_report.views(ranks)),
            ),
            environment=first["environment"],
            options={**first["options"], "step": first["source"], "arguments": recorded_options(command)},
            diagnostics=(*problems, _SAMPLED, *sampled.diagnostics(), *diagnostics(nsys, 0, ignored)),
            exit_code=code,
            compile_artifacts=artifact_folder(program, directory, os.environ),
        )


def _run_under_nsys(
    command: list[str], request: Request, directory: Path, progress: Progress
) -> tuple[NsysResult, dict[str, Any]]:
    """Run the steps under nsys; returns the result of nsys and that of the program.

    Raises:
        TracekitError: The program sent an error, or nsys or the program failed.
    """
    path, events = directory / REQUEST, directory / EVENTS
    final: list[dict[str, Any] | None] = []
    path.write_text(json.dumps(asdict(request)))

    def watch(lines: Iterator[str]) -> None:
        final.append(follow(lines, progress))

    done = run_nsys([*command, *_MEASURED, str(path)], directory, watch=watch, events=events)
    if final[0] is None and not events.stat().st_size:
        raise tool.recording_error(done.log, done.code)  # the program was not started
    code = 128 - done.code if done.code > 128 else done.code  # as `Popen.returncode` reports a signal
    return done, result_of(final[0], name=request.workload, code=code, log=tool.error_line(done.log))
