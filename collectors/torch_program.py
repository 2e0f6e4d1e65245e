"""Run the user's own program in the foreground with the agent in it, and collect what the agent recorded."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from tracekit.errors import UnusableInputError
from tracekit.recording import agent
from tracekit.recording.collector import Program, Recording
from tracekit.workloads.options import values

from . import foreground_guard
from .assignment import assigned, not_sampled
from .children import guarded
from .compilation import artifact_environment, artifact_folder
from .program_report import diagnostics, failure, recorded_ranks, samples, timings, views
from .sampling import SampleBuffer, sampling, window_samplers

ONE_REQUEST_S = 0.5
"""Signals within this time are one request: `timeout` sends one to the process, and one to its group."""


def record_program(program: Program, directory: Path) -> Recording:
    """See `tracekit.recording.collector.Collector.record_program`."""
    code, sampled = run(program, directory)
    ranks = recorded_ranks(directory)
    if not ranks:
        raise failure(program, directory, code)
    first, seen = ranks[0].facts, views(ranks)
    return Recording(
        traces=tuple(rank.trace for rank in ranks),
        device=first["device"],
        threads=first["threads"],
        version=first["version"],
        timings=timings(ranks),
        samples=(*samples(ranks), *assigned(sampled.samples(), seen)),
        environment=first["environment"],
        options={**first["options"], "step": first["source"]},
        diagnostics=(
            *diagnostics(ranks, code),
            *sampled.diagnostics(),
            *not_sampled(sampled.samples(), seen),
        ),
        exit_code=code,
        compile_artifacts=artifact_folder(program, directory, os.environ),
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
    given = artifact_environment(program, directory, os.environ)
    environment = agent.environment_with_agent(request, given)
    scratch = directory.resolve()
    forwarded: Sequence[signal.Signals] = foreground_guard.FORWARDED
    if under:  # the profiler would end, and leave the program running
        forwarded = tuple(one for one in forwarded if one not in foreground_guard.ENDING)
    with (
        foreground((*under, *command), environment, scratch=scratch, forwarded=forwarded) as process,
        sampling(pid=process.pid, samplers=window_samplers(directory)) as sampled,
    ):
        code = exit_code(process.wait())
    return code, sampled


@contextmanager
def foreground(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    scratch: Path,
    forwarded: Sequence[signal.Signals] = foreground_guard.FORWARDED,
) -> Iterator[subprocess.Popen[str]]:
    """Run a program in the foreground process group of the terminal, if there is one.

    While it runs, signals to this process are forwarded to the program; a second SIGTERM or SIGHUP exits. The
    program and its descendants are ended if the block is left early or this process is killed.

    Args:
        command: The program and its arguments.
        environment: All environment variables.
        scratch: Folder to remove if this process is killed.
        forwarded: The signals.

    Yields:
        The process; its `returncode` is the program's.
    """
    with guarded(
        foreground_guard.__file__,
        [str(scratch), *command],
        environment=environment,
        while_running=partial(_forwarding, forwarded),
        inherit_files=True,  # the shell may have opened files for the program
    ) as process:
        yield process


@contextmanager
def _forwarding(forwarded: Sequence[signal.Signals], send: int) -> Iterator[None]:
    """Forward signals to the guard, which drops those that the program has received already."""
    asked_s: float | None = None

    def tell(number: int) -> None:
        with suppress(BrokenPipeError):
            os.write(send, bytes([number]))

    def forward(number: int, _frame: Any) -> None:
        nonlocal asked_s
        if number in foreground_guard.ENDING:
            now_s = time.monotonic()
            if asked_s is None:
                asked_s = now_s
            elif now_s - asked_s > ONE_REQUEST_S:
                sys.exit(128 + number)
            else:
                return
        tell(number)

    in_main = threading.current_thread() is threading.main_thread()
    handled = [one for one in forwarded if in_main and signal.getsignal(one) is not signal.SIG_IGN]
    former = {number: signal.signal(number, forward) for number in handled}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        tell(foreground_guard.END)


def exit_code(returncode: int) -> int:
    """Return the exit code as a shell reports it.

    Example:
        >>> exit_code(3), exit_code(-15)
        (3, 143)
    """
    return returncode if returncode >= 0 else 128 - returncode
