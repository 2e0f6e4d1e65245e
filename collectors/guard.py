"""Guard process between a collector and its program: ends the program and all of its descendants.

It is a subreaper, so it adopts orphans, also those in other sessions such as a profiler's daemons. It ends
all descendants on SIGTERM, when the program has ended, and, by SIGKILL, when the collector has ended, which
closes the other end of the lifeline, a pipe.

It runs as a script without site packages and ends as the program did: same exit code, same signal.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

GRACE_SECONDS = 2.0
CANNOT_START = 126
NOT_FOUND = 127
"""Exit codes of shells for a program that cannot be started."""
_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36


class Guard:
    """Starts one program and keeps its exit status.

    Args:
        lifeline: Read end of a pipe that closes when the collector ends.
        command: The program and its arguments.
    """

    def __init__(self, lifeline: int, command: list[str]) -> None:
        self._lifeline, self._end_requested, self.status = lifeline, False, 0
        self._wakeup, wake = os.pipe()
        for end in (self._wakeup, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._handle_signals()
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the collector blocks some while it starts the guard
        _control(_SET_CHILD_SUBREAPER, 1)
        self._program: int | None = _start(command)

    def _handle_signals(self) -> None:
        signal.signal(signal.SIGTERM, self._request_end)

    def watch(self) -> None:
        """Wait until the program has ended, then end its descendants."""
        while self._program is not None and not self._end_requested:
            self._wait(None)
            self._reap()
        _signal_all(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while self._reap() and (left := deadline - time.monotonic()) > 0:
            self._wait(left)
        self._kill()

    def _request_end(self, *_: object) -> None:
        self._end_requested = True

    def _wait(self, seconds: float | None) -> None:
        """Sleep until a signal arrives; kill all descendants if the collector has ended."""
        ready, _, _ = select.select([self._lifeline, self._wakeup], [], [], seconds)
        if self._lifeline in ready:
            self._kill()
            self._end_requested = True
        with suppress(BlockingIOError):
            os.read(self._wakeup, 64)

    def _kill(self) -> None:
        while self._reap():  # again, for processes started in between
            _signal_all(signal.SIGKILL)
            select.select([self._wakeup], [], [], 0.05)
            with suppress(BlockingIOError):
                os.read(self._wakeup, 64)

    def _reap(self) -> bool:
        """Reap ended processes; returns whether any are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._program:
                self._program, self.status = None, status


def _start(command: list[str]) -> int:
    guard = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    _control(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(CANNOT_START)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 (the collector's command)
    except OSError as error:
        os.write(2, f"{command[0]}: {os.strerror(error.errno or 0)}\n".encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_START)


def _control(option: int, value: int) -> None:
    """Set an attribute of this process, if the kernel supports it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _signal_all(number: int) -> None:
    for pid in descendants():
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def descendants() -> list[int]:
    """Return the ids of all living descendants of this process, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended
                state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                if state != "Z":
                    children.setdefault(int(parent), []).append(int(entry.name))
    found, pending = [], [os.getpid()]
    while pending:
        own = children.get(pending.pop(), [])
        found += own
        pending += own
    return found


def _end_as(status: int) -> None:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        sys.exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has dumped its core
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


if __name__ == "__main__":
    os.set_inheritable(int(sys.argv[1]), False)  # noqa: FBT003 (has no keyword)
    _guard = Guard(int(sys.argv[1]), sys.argv[2:])
    _guard.watch()
    _end_as(_guard.status)
