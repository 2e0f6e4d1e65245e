"""Children of a collector: programs that end, with all they started, no later than the collector does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tracekit.experiments.checkouts import undisturbed

from . import guard

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Stream = int | IO[bytes] | None

_NOISE = re.compile(r"USDT:|\[?[WI]\d{4} |STAGE:|\s|$")
"""Lines of torch's own log, and the indented lines of a traceback."""


@contextmanager
def child(
    command: Sequence[str],
    *,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """A program in a session of its own; at the end of the block nothing that it started is left.

    That holds too for what left its session, and when this process is killed in the middle.

    Args:
        command: The program and its arguments.
        stdin: As `subprocess.Popen` takes it, like the next two; None shares this process' own.
        stdout: Where its output goes.
        stderr: Where its errors go.
        environment: Its variables, all of them; None for this process' own.

    Yields:
        The process. Its `returncode` is the program's; 127 and 126 mean that it could not be started, and
        a line of its errors says why.

    Example:
        >>> with child(["true"]) as process:
        ...     process.wait()
        0
    """
    receive, send = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        process = subprocess.Popen(  # noqa: S603 (what the collector asked for)
            [sys.executable, "-I", "-S", str(Path(guard.__file__)), str(receive), *command],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=None if environment is None else dict(environment),
            pass_fds=(receive,),
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            signal.pthread_sigmask(
                signal.SIG_SETMASK, before
            )  # an interrupt from here on meets the `finally`
            yield process
        finally:
            with undisturbed():
                end(process)
    finally:
        for number in (receive, send):
            os.close(number)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end(process: subprocess.Popen[str]) -> None:
    """End a `child`, politely and then for good; harmless when it already has ended."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(2 * guard.GRACE_SECONDS)
    if process.returncode is None or process.returncode < 0:  # the guard may have been killed
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            with suppress(OSError):
                stream.close()


def last_line(text: str) -> str:
    r"""The line of a log that says what went wrong.

    Example:
        >>> last_line("RuntimeError: no kernel\nUSDT:2026 profiler_stop\n")
        'RuntimeError: no kernel'
    """
    said = [line.strip() for line in text.splitlines() if not _NOISE.match(line)]
    return said[-1] if said else "it said nothing"
