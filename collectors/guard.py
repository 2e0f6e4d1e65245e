"""The small process between a collector and the program it runs; with it ends everything the program started.

It adopts what its descendants leave behind, also what moved to a session of its own, as a profiler's daemons
do. It ends all of them when it is asked to (SIGTERM), when the program is done, and, at once, when the
collector is gone: then nobody holds the other end of its lifeline, a pipe.

It runs as a script without site packages and ends as the program ended: same exit code, same signal.
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
"""Exit codes for a program that never ran, as shells have them."""
_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36


class Guard:
    """Starts one program and knows how it ended.

    Args:
        lifeline: Read end of a pipe that closes when the collector is gone.
        command: The program and its arguments.
    """

    def __init__(self, lifeline: int, command: list[str]) -> None:
        self._lifeline, self._asked, self.status = lifeline, False, 0
        self._woken, wake = os.pipe()
        for end in (self._woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._ask)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the collector blocks some while it starts this
        _control(_SET_CHILD_SUBREAPER, 1)
        self._program: int | None = _start(command)

    def watch(self) -> None:
        """Return once nothing that the program started is left."""
        while self._program is not None and not self._asked:
            self._wait(None)
            self._reap()
        _signal_all(signal.SIGTERM)
        give_up = time.monotonic() + GRACE_SECONDS
        while self._reap() and (left := give_up - time.monotonic()) > 0:
            self._wait(left)
        self._kill()

    def _ask(self, *_: object) -> None:
        self._asked = True

    def _wait(self, seconds: float | None) -> None:
        """Sleep until something changes; without the collector nothing is waited for."""
        ready, _, _ = select.select([self._lifeline, self._woken], [], [], seconds)
        if self._lifeline in ready:
            self._kill()
            self._asked = True
        with suppress(BlockingIOError):
            os.read(self._woken, 64)

    def _kill(self) -> None:
        while self._reap():  # again, for what was started in between
            _signal_all(signal.SIGKILL)
            select.select([self._woken], [], [], 0.05)
            with suppress(BlockingIOError):
                os.read(self._woken, 64)

    def _reap(self) -> bool:
        """Take leave of what has ended; whether anything is left."""
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
        os.execvp(command[0], command)  # noqa: S606 (what the collector asked for)
    except OSError as error:
        os.write(2, f"{command[0]}: {os.strerror(error.errno or 0)}\n".encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_START)


def _control(option: int, value: int) -> None:
    """Set an attribute of this process; kernels without it lose only that protection."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _signal_all(number: int) -> None:
    for pid in descendants():
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def descendants() -> list[int]:
    """Ids of all living processes below this one, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it ended in between
                state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                if state != "Z":
                    children.setdefault(int(parent), []).append(int(entry.name))
    found, ahead = [], [os.getpid()]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


def _end_as(status: int) -> None:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        sys.exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has dumped its own
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


if __name__ == "__main__":
    os.set_inheritable(int(sys.argv[1]), False)  # noqa: FBT003 (has no keyword)
    _guard = Guard(int(sys.argv[1]), sys.argv[2:])
    _guard.watch()
    _end_as(_guard.status)
