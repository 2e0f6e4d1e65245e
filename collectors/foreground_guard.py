"""Guard of a foreground program, in the process group of the collector.

So keys such as Ctrl-C reach the program, the guard and the collector, and the program may read from the
terminal. The collector forwards signals as bytes on the lifeline; the guard passes them on unless it, and so
the program, has received them as well, from the terminal or from what signals the whole group. Descendants of
a program that ends by itself keep running.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

if __package__:
    from . import guard
else:  # a script without site packages
    sys.path.insert(0, str(Path(__file__).parent))
    import guard  # type: ignore[import-not-found,no-redef]

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Requests to end: the first one is the program's."""
FORWARDED = (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, *ENDING)
END = 0
"""Byte with which the collector asks to end the program and all of its descendants."""


class ForegroundGuard(guard.Guard):
    """Guard of a program in the foreground process group.

    Args:
        lifeline: Read end of a pipe that carries signal numbers and closes when the collector ends.
        scratch: Folder to remove if the collector is killed.
        command: The program and its arguments.
    """

    def __init__(self, lifeline: int, scratch: Path, command: list[str]) -> None:
        self._scratch, self._received = scratch, Counter[int]()
        super().__init__(lifeline, command)

    def _handle_signals(self) -> None:
        for number in FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._count)

    def watch(self) -> None:
        """Wait until the program has ended; on request, end it and its descendants."""
        while self._program is not None and not self._end_requested:
            self._wait(None)
            self._reap()
        if self._end_requested:
            super().watch()

    def _count(self, number: int, _frame: object) -> None:
        self._received[number] += 1

    def _wait(self, seconds: float | None) -> None:
        ready, _, _ = select.select([self._lifeline, self._wakeup], [], [], seconds)
        if self._lifeline in ready:
            self._forward(os.read(self._lifeline, 64))
        with suppress(BlockingIOError):
            os.read(self._wakeup, 64)

    def _forward(self, numbers: bytes) -> None:
        if not numbers:  # the collector has ended
            self._kill()
            self._end_requested = True
            shutil.rmtree(self._scratch, ignore_errors=True)
        for number in numbers:
            if number == END:
                self._end_requested = True
            elif self._received[number]:
                self._received[number] -= 1
            elif self._program is not None:
                with suppress(ProcessLookupError):
                    os.kill(self._program, number)


if __name__ == "__main__":
    os.set_inheritable(int(sys.argv[1]), False)  # noqa: FBT003 (has no keyword)
    _guard = ForegroundGuard(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
    _guard.watch()
    guard._end_as(_guard.status)
