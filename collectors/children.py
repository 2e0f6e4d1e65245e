"""Run child processes that end, with all their descendants, no later than this process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tracekit.experiments.checkouts import undisturbed

from . import guard

if TYPE_CHECKING:
    Stream = int | IO[bytes] | None

_NOISE = re.compile(r"USDT:|\[?[WI]\d{4} |STAGE:|\s|$")
"""Start of lines of torch's own log, and of indented lines of a traceback."""
_ADVICE = re.compile(
    r"(?:CUDA|HIP) kernel errors might|For debugging consider passing|Compile with `?TORCH_USE_"
    r"|Device-side assertion|^Search for `|^Exception raised from|^frame #\d+:|^<omitting python frames>"
    r"|^terminate called|^Aborted|^Segmentation fault"
)
"""Lines that torch and the C++ library add to an error."""
_TRACEBACK, _WHAT = "Traceback (most recent call last):", "what():"
_ASSERTION = re.compile(r"Assertion `[^`]*` failed")
_RANK = re.compile(r"^\[(?:rank|default)\d+\]:\s?")
"""What torchrun puts before lines of a rank."""


@contextmanager
def child(
    command: Sequence[str],
    *,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Run a program in its own session; the end of the block ends it and all its descendants.

    This includes descendants that left the session, and holds even if this process is killed.

    Args:
        command: The program and its arguments.
        stdin: As for `subprocess.Popen`, like the next two; None shares the stream of this process.
        stdout: Standard output.
        stderr: Standard error.
        environment: All environment variables; None for those of this process.

    Yields:
        The process. Its `returncode` is the program's, or 127 or 126 if the program cannot be started; then
        a line on standard error says why.

    Example:
        >>> with child(["true"]) as process:
        ...     process.wait()
        0
    """
    options: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": stderr, "errors": "replace"}
    with guarded(
        guard.__file__, command, environment=environment, start_new_session=True, **options
    ) as process:
        yield process


@contextmanager
def guarded(
    script: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str] | None,
    while_running: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext(),
    inherit_files: bool = False,
    **options: Any,
) -> Iterator[subprocess.Popen[str]]:
    """Run a guard script with the read end of a lifeline and further arguments; end it after the block.

    Args:
        script: Path of the guard.
        arguments: Arguments after the lifeline.
        environment: All environment variables; None for those of this process.
        while_running: Makes a context for the block from the write end of the lifeline.
        inherit_files: Whether the guard inherits all open files.
        options: Further options of `subprocess.Popen`.
    """
    receive, send = os.pipe()
    if inherit_files:
        os.set_inheritable(receive, True)  # noqa: FBT003 (has no keyword)
        options["close_fds"] = False
    else:
        options["pass_fds"] = (receive,)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        process = subprocess.Popen(  # noqa: S603 (the command of the collector or the user)
            [sys.executable, "-I", "-S", str(Path(script)), str(receive), *arguments],
            env=None if environment is None else dict(environment),
            text=True,
            **options,
        )
        try:
            with while_running(send):
                # from here on, `finally` handles interrupts
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                yield process
        finally:
            with undisturbed():
                end(process)
    finally:
        for number in (receive, send):
            os.close(number)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end(process: subprocess.Popen[str]) -> None:
    """End a `child` by SIGTERM, then SIGKILL; does nothing if it has ended."""
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
    r"""Return the line of a log that most likely has the error.

    It is the exception of the last Python traceback, else of the last C++ exception, else the last line that
    is not advice or noise of torch. A failed assertion of a kernel is appended.

    Example:
        >>> last_line("RuntimeError: no kernel\nUSDT:2026 profiler_stop\n")
        'RuntimeError: no kernel'
        >>> last_line("CUDA error: unspecified launch failure\nCompile with `TORCH_USE_CUDA_DSA` to ...")
        'CUDA error: unspecified launch failure'
    """
    lines = [_RANK.sub("", line.rstrip()) for line in text.splitlines()]
    plain = [line.strip() for line in lines if not _NOISE.match(line) and not _ADVICE.search(line)]
    thrown = [line.partition(_WHAT)[2].strip() for line in lines if line.lstrip().startswith(_WHAT)]
    found = next((one[-1] for one in (_raised(lines), thrown, plain) if one), "no output")
    failed = next((match[0] for line in lines if (match := _ASSERTION.search(line))), "")
    return f"{found}: {failed}" if failed and failed not in found else found


def _raised(lines: Sequence[str]) -> list[str]:
    """Return the exceptions of Python tracebacks: the first line after each that is not indented."""
    found, inside = [], False
    for line in lines:
        if line.startswith(_TRACEBACK):
            inside = True
        elif inside and line and not line[0].isspace() and not _NOISE.match(line):
            inside = False
            found.append(line)
        elif not inside and found and found[-1].endswith(":") and line.strip():
            found[-1] = f"{found[-1]} {line.strip()}"  # the message begins on the next line
    return found
