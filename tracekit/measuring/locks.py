"""File locks that are released when their process ends."""

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
    """Create a new locked file in a folder, deleted at the end.

    Args:
        folder: Folder of the file.
        content: Text after the process id.
    """
    name = f"{os.getpid()}-{secrets.token_hex(4)}"
    fresh, path = folder / f".{name}", folder / f"{name}{SUFFIX}"
    with fresh.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.write(f"{os.getpid()}\n{content}")
        stream.flush()
        fresh.rename(path)  # visible under its name only once locked
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def abandoned(path: Path) -> Iterator[bool]:
    """Tell whether no running process holds this lock; others cannot take it meanwhile."""
    try:
        stream = path.open("r+")
    except OSError:  # just removed, or owned by another user
        yield False
        return
    with stream:
        yield _taken(stream.fileno()) and _is(stream.fileno(), path)


@contextmanager
def only_one(path: Path) -> Iterator[bool]:
    """Hold a lock with a fixed name; yield False if another process holds it. The file is kept."""
    with path.open("a") as stream:
        yield _taken(stream.fileno())


@contextmanager
def undisturbed() -> Iterator[None]:
    """Defer interrupts until the end, so that a second Ctrl-C does not stop the cleanup."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _DEFERRED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is(descriptor: int, path: Path) -> bool:
    """Tell whether an open file still has this name; the lock's last holder may have removed it."""
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
