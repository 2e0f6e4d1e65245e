"""Guard process between a collector and its program: ends the program and all of its descendants.

    python guard.py PIPE "" COMMAND...          in its own session
    python guard.py PIPE SCRATCH COMMAND...     in the foreground, in the process group of the collector

PIPE is the read end of a pipe whose other end only the collector has: reading its end means that the
collector has ended, however it did. The guard is a subreaper, so it adopts orphans, also those in other
sessions such as a profiler's daemons. It ends all descendants on SIGTERM or on request, when the program has
ended, and, by SIGKILL, when the collector has ended.

In the foreground, keys such as Ctrl-C reach the program, the guard and the collector, and the program may
read from the terminal. The collector then forwards signals as bytes of the pipe; the guard passes them on
unless it, and so the program, has received them as well, from the terminal or from what signals the whole
group. Descendants of a program that ends by itself keep running, as they do without a collector.

The guard ends as the program did: same exit code, same signal. It runs as a script without site packages, so
that it starts fast and cannot fail with them; so it reads /proc itself, where others use psutil.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

GRACE_SECONDS = 2.0
CANNOT_START = 126
NOT_FOUND = 127
"""Exit codes of shells for a program that cannot be started."""
ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Requests to end: the first one is the program's."""
FORWARDED = (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, *ENDING)
END = 0
"""Byte with which the collector asks to end the program and all of its descendants."""
_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36


class Guard:
    """Starts one program and keeps its exit status.

    Args:
        parent_pipe: Read end of a pipe that carries signal numbers and closes when the collector ends.
        command: The program and its arguments.
        scratch: Folder to remove if the collector is killed; None for a program in its own session.
    """

    def __init__(self, parent_pipe: int, command: list[str], *, scratch: Path | None = None) -> None:
        self._parent_pipe, self._scratch = parent_pipe, scratch
        self._received = Counter[int]()
        self._end_requested, self.status = False, 0
        # a signal also ends a `select` that begins just after the handler has run
        self._wakeup, wake = os.pipe()
        for end in (self._wakeup, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        if scratch is None:
            signal.signal(signal.SIGTERM, self._request_end)
        else:
            for number in FORWARDED:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup: stays ignored
                    signal.signal(number, self._count)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the collector blocks some while it starts the guard
        _control(_SET_CHILD_SUBREAPER, 1)
        self._program: int | None = _start(command)

    def watch(self) -> None:
        """Wait until the program has ended, then end its descendants."""
        while self._program is not None and not self._end_requested:
            self._wait(None)
            self._reap()
        if self._scratch and not self._end_requested:
            return
        _signal_all(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while self._reap() and (left := deadline - time.monotonic()) > 0:
            self._wait(left)
        self._kill()

    def _request_end(self, *_: object) -> None:
        self._end_requested = True

    def _count(self, number: int, _frame: object) -> None:
        self._received[number] += 1

    def _wait(self, seconds: float | None) -> None:
        """Sleep until a signal or a request of the collector arrives, or the collector has ended."""
        ready, _, _ = select.select([self._parent_pipe, self._wakeup], [], [], seconds)
        if self._parent_pipe in ready:
            self._obey(os.read(self._parent_pipe, 64))
        self._drain()

    def _obey(self, numbers: bytes) -> None:
        if not numbers:  # the collector has ended
            self._kill()
            self._end_requested = True
            if self._scratch:
                shutil.rmtree(self._scratch, ignore_errors=True)
        for number in numbers:
            if number == END:
                self._end_requested = True
            elif self._received[number]:
                self._received[number] -= 1
            elif self._program is not None:
                with suppress(ProcessLookupError):
                    os.kill(self._program, number)

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wakeup, 64)

    def _kill(self) -> None:
        while self._reap():  # again, for processes started in between
            _signal_all(signal.SIGKILL)
            select.select([self._wakeup], [], [], 0.05)
            self._drain()

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
    # the guard itself may be killed; if that happened before this line, the parent is another process
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
                # after the name of the program, which may contain any character
                state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                if state != "Z":
                    children.setdefault(int(parent), []).append(int(entry.name))
    pids = [os.getpid()]
    for pid in pids:  # which grows
        pids += children.get(pid, [])
    return pids[1:]


def _end_as(status: int) -> None:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        sys.exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has dumped its core
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


if __name__ == "__main__":
    _pipe, _scratch, *_command = sys.argv[1:]
    os.set_inheritable(int(_pipe), False)  # noqa: FBT003 (has no keyword)
    _guard = Guard(int(_pipe), _command, scratch=Path(_scratch) if _scratch else None)
    _guard.watch()
    _end_as(_guard.status)
