"""Run child processes that end, with all their descendants, no later than this process.

A profiler inside of a program may never end, as it waits for a thread or a driver: its process is then ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, TypeAlias

import psutil

from tracekit.recording.agent.agent import BUSY
from tracekit.recording.signals import REQUESTS, blocked_signals

from . import guard

Stream: TypeAlias = int | IO[bytes] | None

STUCK = ".stuck"
"""Suffix of the file of a process whose profiler did not end in time."""
_POLL_S = 0.5


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
    streams: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": stderr, "errors": "replace"}
    with run_guarded(command, environment=environment, start_new_session=True, **streams) as process:
        yield process


@contextmanager
def run_guarded(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None,
    scratch: Path | None = None,
    while_running: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext(),
    **options: Any,
) -> Iterator[subprocess.Popen[str]]:
    """Run a program under `guard.py`; end it after the block, or if this process is killed.

    Args:
        command: The program and its arguments.
        environment: All environment variables; None for those of this process.
        scratch: For a foreground program, the folder to remove if this process is killed; else None.
        while_running: Makes a context for the block from the write end of the guard's pipe.
        options: Further options of `subprocess.Popen`.
    """
    receive, send = os.pipe()
    if scratch is None:
        options["pass_fds"] = (receive,)
    else:  # the shell may have opened files for a foreground program
        os.set_inheritable(receive, True)  # noqa: FBT003 (has no keyword)
        options["close_fds"] = False
    # a request to end between the start of the guard and `try` would leave the guard running
    before = signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
    try:
        process = subprocess.Popen(  # noqa: S603 (the command of the collector or the user)
            [sys.executable, "-I", "-S", guard.__file__, str(receive), str(scratch or ""), *command],
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
            with blocked_signals():
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


@contextmanager
def end_stuck_profilers(directory: Path, root: int, limit_s: float) -> Iterator[None]:
    """End each process of a program whose profiler neither begins nor ends in time, during the context.

    Args:
        directory: Folder for the recordings of its processes.
        root: Process of which all processes of the program are descendants.
        limit_s: Time for which a profiler may neither work nor write.
    """
    stop = threading.Event()
    thread = threading.Thread(target=_watch_profilers, args=(directory, root, limit_s, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _watch_profilers(directory: Path, root: int, limit_s: float, stop: threading.Event) -> None:
    poll_s = min(_POLL_S, limit_s / 4)
    watched: dict[Path, _BusyProcess] = {}
    while not stop.wait(poll_s):
        watched = {mark: watched.get(mark) or _BusyProcess(mark) for mark in directory.glob(f"*{BUSY}")}
        for busy in watched.values():
            with suppress(OSError, ValueError, psutil.Error):  # it has just ended
                busy.update(poll_s)
                if busy.waited_s >= limit_s:
                    busy.end(root)


class _BusyProcess:
    """A process in which a profiler begins or ends.

    Attributes:
        waited_s: Time for which it has neither written nor worked, without the time in which it, or this
            process, was suspended.
    """

    def __init__(self, mark: Path) -> None:
        self._mark, self._pid = mark, int(mark.stem.removeprefix("process-"))
        self.waited_s = 0.0
        self._signs: object = None

    def update(self, poll_s: float) -> None:
        """Update `waited_s`, so many seconds after the last update."""
        facts, process = json.loads(self._mark.read_text()), psutil.Process(self._pid)
        files = [self._mark, *sorted(self._mark.parent.glob(f"{facts['name']}.*"))]
        written = [(file.name, stat.st_size, stat.st_mtime_ns) for file in files for stat in [file.stat()]]
        worked_s = sum(
            times.user_time + times.system_time for times in process.threads() if times.id == facts["thread"]
        )
        suspended = process.status() in {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP}
        signs = (written, worked_s)
        self.waited_s = 0.0 if suspended or signs != self._signs else self.waited_s + poll_s
        self._signs = signs

    def end(self, root: int) -> None:
        """End the process, if it is a descendant of `root`, and keep its mark."""
        if self._pid in {process.pid for process in psutil.Process(root).children(recursive=True)}:
            self._mark.rename(self._mark.with_suffix(STUCK))
            os.kill(self._pid, signal.SIGKILL)
