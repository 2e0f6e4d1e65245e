"""The plug-in: records with Nsight Systems."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tracekit.collecting import Recording, Request
from tracekit.doctor import Check, Status
from tracekit.errors import CollectionError, UnusableInputError
from tracekit.workloads.base import LIBTORCH

from ..protocol import converse, follow, result, samples, timings
from . import options, problems
from .capture import REPORT, Captured, captured
from .export import exported
from .measured import REQUEST, TOLD
from .outcome import diagnostics, refuse_empty, sampled, stacks_ignored, told_options
from .program import record_program
from .tool import located

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tracekit.collecting import Program, Progress

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
        if lost := options.lost(nsys):
            return Check("nsys", Status.WARN, f"{found}; too old: {'; '.join(lost)}", "install a newer one")
        return Check("nsys", Status.OK, found)

    def record(self, request: Request, directory: Path, *, progress: Progress) -> Recording:
        """See `tracekit.collecting.Collector.record`.

        Steps are timed in a process without nsys, then run again in one that nsys watches.
        """
        if request.level == LIBTORCH:
            raise UnusableInputError("nsys cannot record --level libtorch", hint="use --collector torch")
        nsys = located()
        timed = converse(_MEASURED, request, directory, progress)
        decided = replace(request, device=timed["device"])
        command = options.recording(nsys, directory / REPORT, device=decided.device)
        done, told = _watched(command, decided, directory, progress)
        if done.report is None:
            raise problems.not_recorded(done.log, done.code)
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
        """See `tracekit.collecting.Collector.record_program`."""
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
        raise problems.not_recorded(done.log, done.code)  # the program was not even started
    code = 128 - done.code if done.code > 128 else done.code  # as a shell tells of a signal
    return done, result(last[0], name=request.workload, code=code, log=problems.telling(done.log))
