"""Locks that end with the process that holds them, however it ends."""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SUFFIX = ".lock"
_DEFERRED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def new_lock(folder: Path, *, content: str = "") -> Iterator[Path]:
    """A new locked file in a folder, with a name of its own; it vanishes at the end.

    Args:
        folder: Where the file goes.
        content: What it says after the process id, for whoever finds it.
    """
    name = f"{os.getpid()}-{secrets.token_hex(4)}"
    fresh, path = folder / f".{name}", folder / f"{name}{SUFFIX}"
    with fresh.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.write(f"{os.getpid()}\n{content}")
        stream.flush()
        fresh.rename(path)  # under its name it is never seen unlocked
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def abandoned(path: Path) -> Iterator[bool]:
    """Whether no living process holds this lock; while asking, nobody else can take it."""
    try:
        stream = path.open("r+")
    except OSError:  # it has just been removed, or is another user's
        yield False
        return
    with stream:
        yield _taken(stream.fileno()) and _is(stream.fileno(), path)


@contextmanager
def only_one(path: Path) -> Iterator[bool]:
    """Hold a lock that has a fixed name; False where another process has it. The file stays."""
    with path.open("a") as stream:
        yield _taken(stream.fileno())


@contextmanager
def undisturbed() -> Iterator[None]:
    """Puts interrupts off until the end, so that a second Ctrl-C does not stop the cleaning up."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _DEFERRED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one of this name: who held the lock may have removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
