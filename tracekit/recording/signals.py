"""Defer requests to end this process while something must be completed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a process to end."""


@contextmanager
def blocked_signals() -> Iterator[None]:
    """Block requests to end during the context, so that a second Ctrl-C does not stop a cleanup."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
