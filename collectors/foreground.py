"""Run a program in the foreground of the terminal, with the streams of this process."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from . import foreground_guard
from .children import guarded

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


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
    with guarded(
        foreground_guard.__file__,
        [str(scratch), *command],
        environment=environment,
        while_running=_forwarding,
        inherit_files=True,  # the shell may have opened files for the program
    ) as process:
        yield process


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
