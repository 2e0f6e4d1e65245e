"""The user's own program under nsys: its steps are marked from inside, nsys records the window they open."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tracekit.errors import CollectionError, UnusableInputError
from tracekit.recording.collector import Recording, Request
from tracekit.recording.doctor import Check, Status
from tracekit.runs import environment
from tracekit.runs.meta import Diagnostic, Level
from tracekit.workloads.base import LIBTORCH

from .. import program_report, torch_program
from ..protocol import converse, follow, result, samples, timings
from . import tool
from .export import (
    REPORT,
    Captured,
    captured,
    diagnostics,
    exported,
    refuse_empty,
    report_in,
    sampled,
    stacks_ignored,
    told_options,
)
from .measured import REQUEST, TOLD
from .tool import located

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tracekit.recording.collector import Program, Progress


_SAMPLED = Diagnostic(
    Level.INFO,
    "samples_with_nsys",
    "sampled memory, threads and CPU time of the process are those of the program and nsys together",
)


def record_program(program: Program, directory: Path, *, progress: Progress) -> Recording:
    """See `tracekit.recording.collector.Collector.record_program`."""
    nsys = located()
    command = tool.recording(nsys, directory.resolve() / REPORT, device=_device())
    code, taken = torch_program.run(program, directory, under=command)
    ranks = program_report.recorded_ranks(directory)
    if not ranks:
        raise program_report.failure(program, directory, code)
    report = report_in(directory)
    if report is None:
        raise tool.unreported(code)
    progress("export", 0, 1)
    trace = exported(nsys, report)
    progress("export", 1, 1)
    first = ranks[0].facts
    refuse_empty(trace, device=first["device"])
    ignored = stacks_ignored(asked=program.stacks)
    said = program_report.diagnostics(ranks, code)
    return Recording(
        traces=(trace,),
        device=first["device"],
        threads=first["threads"],
        version=nsys.version,
        timings=program_report.timings(ranks),
        samples=(*program_report.samples(ranks), *taken.samples()),
        environment=first["environment"],
        options={**first["options"], "step": first["source"], "arguments": told_options(command)},
        diagnostics=(*said, _SAMPLED, *taken.diagnostics(), *diagnostics(nsys, 0, ignored)),
        exit_code=code,
    )


def _device() -> str:
    """What the program can use, as far as can be known before it runs: it opens a window on a GPU only."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in {"", "-1"}:
        return "cpu"
    return "cuda" if environment.nvml_gpus() else "cpu"


_MEASURED = (sys.executable, "-P", "-m", "tracekit.collectors.nsys.measured")


class NsysCollector:
    """Records with Nsight Systems: CUDA activity, ops and steps as NVTX ranges, and calls of the system."""

    name = "nsys"

    def check(self) -> Check:
        """Which nsys is here, and what it cannot do, for `tracekit doctor`."""
        try:
            nsys = located()
        except CollectionError as error:
            return Check("nsys", Status.MISSING, error.message, error.hint)
        found = f"{nsys.version}, {nsys.path}"
        if lost := tool.lost_options(nsys):
            return Check("nsys", Status.WARN, f"{found}; too old: {'; '.join(lost)}", "install a newer one")
        return Check("nsys", Status.OK, found)

    def record(self, request: Request, directory: Path, *, progress: Progress) -> Recording:
        """See `tracekit.recording.collector.Collector.record`.

        Steps are timed in a process without nsys, then run again in one that nsys watches.
        """
        if request.level == LIBTORCH:
            raise UnusableInputError("nsys cannot record --level libtorch", hint="use --collector torch")
        nsys = located()
        timed = converse(_MEASURED, request, directory, progress)
        decided = replace(request, device=timed["device"])
        command = tool.recording(nsys, directory / REPORT, device=decided.device)
        done, told = _watched(command, decided, directory, progress)
        if done.report is None:
            raise tool.not_recorded(done.log, done.code)
        progress("export", 0, 1)
        trace = exported(nsys, done.report)
        progress("export", 1, 1)
        refuse_empty(trace, device=decided.device)
        notes = (*told["notes"], *stacks_ignored(asked=request.stacks))
        return Recording(
            traces=(trace,),
            device=decided.device,
            threads=timed["threads"],
            version=nsys.version,
            timings=timings(timed),
            compilation=timed["compilation"],
            samples=(*samples(timed), *samples(told)),
            environment=timed["environment"],
            options={"arguments": told_options(command)},
            diagnostics=(*sampled(told), *diagnostics(nsys, done.code, notes)),
        )

    def record_program(self, program: Program, directory: Path, *, progress: Progress) -> Recording:
        """See `tracekit.recording.collector.Collector.record_program`."""
        return record_program(program, directory, progress=progress)


def _watched(
    command: list[str], request: Request, directory: Path, progress: Progress
) -> tuple[Captured, dict[str, Any]]:
    """Run the steps under nsys; how that ended, and what the program told.

    Raises:
        TracekitError: What the program told, or how it or nsys ended.
    """
    asked, told = directory / REQUEST, directory / TOLD
    last: list[dict[str, Any] | None] = []
    asked.write_text(json.dumps(asdict(request)))

    def watch(lines: Iterator[str]) -> None:
        last.append(follow(lines, progress))

    done = captured([*command, *_MEASURED, str(asked)], directory, watch=watch, told=told)
    if last[0] is None and not told.stat().st_size:
        raise tool.not_recorded(done.log, done.code)  # the program was not even started
    code = 128 - done.code if done.code > 128 else done.code  # as a shell tells of a signal
    return done, result(last[0], name=request.workload, code=code, log=tool.telling(done.log))
