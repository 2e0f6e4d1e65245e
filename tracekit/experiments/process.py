"""Execution of a command in a new process: wall time, peak memory and output."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, TypeAlias

from tracekit.errors import CollectionError, UnusableInputError
from tracekit.experiments import launcher
from tracekit.recording.agent.cpu_load import MIN_CORE_TIME_NS, read_cores
from tracekit.recording.signals import blocked_signals
from tracekit.runs.meta import CpuLoad

TAIL_LINES = 12
_GRACE_SECONDS = 2.0


class ProgramError(CollectionError):
    """The measured program failed; `tail` holds the last lines of its standard error."""

    def __init__(self, message: str, *, hint: str = "", tail: str = "") -> None:
        super().__init__(message, hint=hint)
        self.tail = tail


@dataclass(frozen=True)
class Finished:
    """Result of a successful command."""

    wall_ns: int  # time that it took
    peak_bytes: int  # peak of the resident memory of its largest process
    output: str  # what it wrote to standard output
    load: CpuLoad  # use of the CPU while it ran


def run(command: Sequence[str], *, folder: Path, environment: Mapping[str, str]) -> Finished:
    """Run a command in its own process group, which never outlives this process.

    Args:
        command: The program and its arguments.
        folder: Working directory.
        environment: All of its environment variables.

    Raises:
        ProgramError: It failed; `tail` holds the last lines of its standard error.
        UnusableInputError: There is no such program.
    """
    with TemporaryFile() as output, TemporaryFile() as errors:
        before, began_ns = (_children_ns(), *read_cores()), time.perf_counter_ns()
        report = _launch(command, folder, environment, output, errors)
        if report is None:
            raise ProgramError("the program and its launcher were killed", tail=_tail(errors))
        if "error" in report:
            reason = os.strerror(report["error"])
            raise UnusableInputError(
                f"{command[0]} cannot be started: {reason}",
                hint="after --, give a program on $PATH or in the commit",
            )
        if report["code"]:
            code = report["code"]
            ended = (
                f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
            )
            raise ProgramError(f"the program {ended}", tail=_tail(errors))
        output.seek(0)
        return Finished(
            wall_ns=report["wall_ns"],
            peak_bytes=report["peak_bytes"],
            output=output.read().decode(errors="replace"),
            load=_describe_load(time.perf_counter_ns() - began_ns, before, (_children_ns(), *read_cores())),
        )


_Times: TypeAlias = tuple[int, int | None, int | None]


def _children_ns() -> int:
    """Return the CPU time of the processes that this one has started and waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((usage.ru_utime + usage.ru_stime) * 1e9)


def _describe_load(wall_ns: int, before: _Times, after: _Times) -> CpuLoad:
    """Return the use of the CPU by a command and others, from the times before and after it."""
    cpu_ns, is_short = after[0] - before[0], wall_ns < MIN_CORE_TIME_NS
    busy_ns, stolen_ns = (
        None if is_short or start is None or end is None else end - start
        for start, end in zip(before[1:], after[1:], strict=True)
    )
    return CpuLoad(
        rank=0,
        cores=len(os.sched_getaffinity(0)),
        wall_ns=wall_ns,
        cpu_ns=cpu_ns,
        program_ns=cpu_ns,
        others_ns=None if busy_ns is None else max(0, busy_ns - cpu_ns),
        steal_ns=stolen_ns,
    )


def _launch(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], output: IO[bytes], errors: IO[bytes]
) -> dict[str, Any] | None:
    """Return the launcher's report; None if it was killed."""
    with TemporaryFile() as report:
        script = [sys.executable, "-I", "-S", str(Path(launcher.__file__)), str(report.fileno())]
        process = subprocess.Popen(  # noqa: S603 (what the user asked to measure)
            [*script, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            cwd=folder,
            env=dict(environment),
            pass_fds=(report.fileno(),),
            start_new_session=True,
        )
        try:
            process.wait()
        finally:
            with blocked_signals():
                _end(process)
        report.seek(0)
        words = report.readline() if process.returncode == 0 else b""
    return json.loads(words) if words else None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process group, then kill what is left of it."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
    _signal(process, signal.SIGKILL)
    process.wait()
    if process.stdin:
        process.stdin.close()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _tail(errors: IO[bytes]) -> str:
    errors.seek(0, os.SEEK_END)
    errors.seek(max(0, errors.tell() - (1 << 16)))
    lines = errors.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-TAIL_LINES:])
