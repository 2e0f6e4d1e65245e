"""Run a program in the foreground of the terminal, with the streams of this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.experiments.checkouts import undisturbed

from . import foreground_guard
from .children import end

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_UNWINDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def foreground(
    command: Sequence[str], *, environment: Mapping[str, str], scratch: Path
) -> Iterator[subprocess.Popen[str]]:
    """Run a program in the foreground process group of the terminal, if there is one.

    While it runs, SIGINT, SIGUSR1 and SIGUSR2 to this process are forwarded to the program. The program and
    its descendants are ended if the block is left early or this process is killed.

    Args:
        command: The program and its arguments.
        environment: All environment variables.
        scratch: Folder to remove if this process is killed.

    Yields:
        The process; its `returncode` is the program's.
    """
    receive, send = os.pipe()
    os.set_inheritable(receive, True)  # noqa: FBT003 (has no keyword)
    script = str(Path(foreground_guard.__file__))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _UNWINDING)
    try:
        process = subprocess.Popen(  # noqa: S603 (the user's command)
            [sys.executable, "-I", "-S", script, str(receive), str(scratch), *command],
            env=dict(environment),
            close_fds=False,  # the shell may have opened files for the program
            text=True,
        )
        try:
            with _forwarding(send):
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                yield process
        finally:
            with undisturbed():
                end(process)
    finally:
        for number in (receive, send):
            os.close(number)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _forwarding(send: int) -> Iterator[None]:
    """Forward signals to the guard, which drops those that the program has received already."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def forward(number: int, _frame: Any) -> None:
        with suppress(BrokenPipeError):
            os.write(send, bytes([number]))

    handled = [one for one in foreground_guard.FORWARDED if signal.getsignal(one) is not signal.SIG_IGN]
    former = {number: signal.signal(number, forward) for number in handled}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def exit_code(returncode: int) -> int:
    """Return the exit code as a shell reports it.

    Example:
        >>> exit_code(3), exit_code(-15)
        (3, 143)
    """
    return returncode if returncode >= 0 else 128 - returncode
