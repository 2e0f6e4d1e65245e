"""Give every test the same process environment, however pytest was started.

A shell starts background jobs with SIGINT ignored, cron closes stdin, a git hook sets GIT_DIR: each of them
is inherited by the programs that tests start and changes what those do.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

INHERITED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM, signal.SIGCHLD)
"""Signals that a parent process may have left ignored or blocked."""
REMOVED = {
    *("TRACEKIT_STORE", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONOPTIMIZE"),
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"),
}
"""Variables that change what tracekit, the Python of a child process or their output does."""
REMOVED_PREFIXES = ("GIT_",)
HANG_SECONDS = 240
"""Limit of a wait that only something that hangs reaches; pytest ends a test after 300 seconds."""
FIXED = {
    "OMP_NUM_THREADS": "1",
    "TERM": "dumb",
    "PYTHONWARNINGS": "error::RuntimeWarning,error::FutureWarning",
}
"""One OpenMP thread, as more than processors slow programs down, and a terminal without colors. Warnings of
numpy and pandas are errors in child processes as in tests; commands would not show them to a user."""


def normalize() -> None:
    """Set signals, standard streams, umask and variables of this process, which its children inherit."""
    default_signals()
    open_standard_streams()
    os.umask(0o022)
    sys.dont_write_bytecode = False
    normalize_variables(os.environ)


def default_signals() -> None:
    """Restore the default action of signals that are ignored, and unblock all."""
    for number in INHERITED:
        if signal.getsignal(number) == signal.SIG_IGN:
            action = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, action)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())


def open_standard_streams() -> None:
    """Open /dev/null at each closed standard stream: the next file opened would get its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:  # a lower number was free too
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)


def normalize_variables(variables: MutableMapping[str, str]) -> None:
    """Remove the variables that change behavior, and set those that all tests rely on."""
    for name in list(variables):
        if name in REMOVED or name.startswith(REMOVED_PREFIXES):
            del variables[name]
    variables.update(FIXED)
