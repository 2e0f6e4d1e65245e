"""Run a program as if it had been typed: same streams, same terminal, its signals and its exit code."""

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
    """A program among the foreground processes of the terminal, if there is one.

    While it runs, an interrupt or a user's signal to this process is the program's, which decides what to do.
    It is ended, with all it started, when the block is left early or this process is killed.

    Args:
        command: The program and its arguments.
        environment: Its variables, all of them.
        scratch: A folder to remove if this process is killed.

    Yields:
        The process; its `returncode` is the program's.
    """
    receive, send = os.pipe()
    os.set_inheritable(receive, True)  # noqa: FBT003 (has no keyword)
    script = str(Path(foreground_guard.__file__))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _UNWINDING)
    try:
        process = subprocess.Popen(  # noqa: S603 (what the user asked for)
            [sys.executable, "-I", "-S", script, str(receive), str(scratch), *command],
            env=dict(environment),
            close_fds=False,  # the shell may have opened some for the program
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
    """Hand signals to the guard, which knows whether the program has had them already."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def forward(number: int, _frame: Any) -> None:
        with suppress(BrokenPipeError):
            os.write(send, bytes([number]))

    wanted = [one for one in foreground_guard.FORWARDED if signal.getsignal(one) is not signal.SIG_IGN]
    former = {number: signal.signal(number, forward) for number in wanted}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def exit_code(returncode: int) -> int:
    """How a shell tells how a program ended.

    Example:
        >>> exit_code(3), exit_code(-15)
        (3, 143)
    """
    return returncode if returncode >= 0 else 128 - returncode
