"""The guard of a program that keeps the terminal: it shares the process group of the one who asked for it.

So a key such as Ctrl-C reaches the program, the guard and the collector alike, and the terminal lets the
program read. A signal that was meant for the collector alone comes as a byte on the lifeline, and is given to
the program unless the guard, and so the program, has had it too. What the program leaves running when it ends
by itself keeps running, as without a guard.
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

FORWARDED = (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


class ForegroundGuard(guard.Guard):
    """Starts one program among the processes of the terminal's foreground.

    Args:
        lifeline: Read end of a pipe; it closes when the collector is gone, and carries numbers of signals.
        scratch: A folder that goes with the collector, if that is killed.
        command: The program and its arguments.
    """

    def __init__(self, lifeline: int, scratch: Path, command: list[str]) -> None:
        self._scratch, self._seen = scratch, Counter[int]()
        for number in FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._see)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._ask)
        super().__init__(lifeline, command)

    def watch(self) -> None:
        """Return once the program has ended; if it was asked to, with all that it started."""
        while self._program is not None and not self._asked:
            self._wait(None)
            self._reap()
        if self._asked:
            super().watch()

    def _see(self, number: int, _frame: object) -> None:
        self._seen[number] += 1

    def _wait(self, seconds: float | None) -> None:
        ready, _, _ = select.select([self._lifeline, self._woken], [], [], seconds)
        if self._lifeline in ready:
            self._hear(os.read(self._lifeline, 64))
        with suppress(BlockingIOError):
            os.read(self._woken, 64)

    def _hear(self, numbers: bytes) -> None:
        if not numbers:  # the collector is gone
            self._kill()
            self._asked = True
            shutil.rmtree(self._scratch, ignore_errors=True)
        for number in numbers:
            if self._seen[number]:
                self._seen[number] -= 1
            elif self._program is not None:
                with suppress(ProcessLookupError):
                    os.kill(self._program, number)


if __name__ == "__main__":
    os.set_inheritable(int(sys.argv[1]), False)  # noqa: FBT003 (has no keyword)
    _guard = ForegroundGuard(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
    _guard.watch()
    guard._end_as(_guard.status)
