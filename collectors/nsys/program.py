"""The user's own program under nsys: its steps are marked from inside, nsys records the window they open."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tracekit import environment
from tracekit.collecting import Recording
from tracekit.meta import Diagnostic, Level

from .. import program_report, torch_program
from . import options, problems
from .capture import REPORT, report_in
from .export import exported
from .outcome import diagnostics, refuse_empty, stacks_ignored, told_options
from .tool import located

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.collecting import Program, Progress

_SAMPLED = Diagnostic(
    Level.INFO,
    "samples_with_nsys",
    "sampled memory, threads and CPU time of the process are those of the program and nsys together",
)


def record_program(program: Program, directory: Path, *, progress: Progress) -> Recording:
    """See `tracekit.collecting.Collector.record_program`."""
    nsys = located()
    command = options.recording(nsys, directory.resolve() / REPORT, device=_device())
    code, taken = torch_program.run(program, directory, under=command)
    ranks = program_report.recorded(directory)
    if not ranks:
        raise program_report.failure(program, directory, code)
    report = report_in(directory)
    if report is None:
        raise problems.unreported(code)
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
