"""Run the user's own program with the agent in it, and collect what the agent recorded."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from tracekit.errors import UnusableInputError
from tracekit.recording import agent
from tracekit.recording.collector import Recording
from tracekit.workloads.options import values

from .foreground import exit_code, foreground
from .program_report import diagnostics, failure, recorded_ranks, samples, timings
from .sampling import sampling, window_samplers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tracekit.recording.collector import Program

    from .sampling import SampleBuffer


def record_program(program: Program, directory: Path) -> Recording:
    """See `tracekit.recording.collector.Collector.record_program`."""
    code, sampled = run(program, directory)
    ranks = recorded_ranks(directory)
    if not ranks:
        raise failure(program, directory, code)
    first = ranks[0].facts
    return Recording(
        traces=tuple(rank.trace for rank in ranks),
        device=first["device"],
        threads=first["threads"],
        version=first["version"],
        timings=timings(ranks),
        samples=(*samples(ranks), *sampled.samples()),
        environment=first["environment"],
        options={**first["options"], "step": first["source"]},
        diagnostics=(*diagnostics(ranks, code), *sampled.diagnostics()),
        exit_code=code,
    )


def run(program: Program, directory: Path, *, under: Sequence[str] = ()) -> tuple[int, SampleBuffer]:
    """Run the program to its end; returns its exit code and samples.

    Args:
        program: Program and options.
        directory: Folder for the recordings of its processes.
        under: Command of a profiler to run it under, which records in place of torch.profiler.

    Raises:
        UnusableInputError: The program does not exist.
    """
    command = program.command
    if shutil.which(command[0]) is None:
        raise UnusableInputError(
            f"{command[0]} not found",
            hint="give a program on $PATH, or a path",
        )
    request = {
        **values(program),
        "directory": str(directory.resolve()),
        "profiler": "outside" if under else "torch",
    }
    environment = agent.environment_with_agent(request, dict(os.environ))
    with (
        foreground((*under, *command), environment=environment, scratch=directory.resolve()) as process,
        sampling(pid=process.pid, samplers=window_samplers(directory)) as sampled,
    ):
        code = exit_code(process.wait())
    return code, sampled
