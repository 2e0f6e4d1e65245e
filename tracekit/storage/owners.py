"""Encode the owning process in names of temporary files and folders, and lock folders.

Names contain the process id and the start time of the process, as ids are reused. A lock on a folder ends
with its process; it shows that a process of another container or machine, whose id is meaningless here, is
running.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATTERN = r"(\d+)(?:\.(\d+))?-[0-9a-f]+"
"""Form of marks; those of older versions have no time."""
_MARK = re.compile(PATTERN)


def mark() -> str:
    """Return a unique mark of this process: `<process>.<start>-<random>`.

    Example:
        >>> is_dead(mark()), is_dead("no mark"), is_dead(f"{os.getpid()}.1-0a")
        (False, False, True)
    """
    return f"{os.getpid()}.{_began(os.getpid()) or 0}-{secrets.token_hex(4)}"


def is_dead(name: str) -> bool:
    """Return whether the process of a mark has ended; False for other names."""
    match = _MARK.fullmatch(name)
    if match is None:
        return False
    pid, began = int(match[1]), int(match[2] or 0)
    now = _began(pid)
    if began and now:
        return now != began
    import psutil  # for marks of older versions, and unknown start times

    return now == _ENDED or not psutil.pid_exists(pid)


def is_abandoned(path: Path, name: str) -> bool:
    """Return whether a folder with the mark `name` is abandoned: process ended, and not locked."""
    return is_dead(name) and not _is_held(path)


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Lock a folder during the context, also if it is renamed; does nothing without support for locks."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _locked(descriptor)
        yield
    finally:
        os.close(descriptor)


_ENDED = -1


def _began(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    state, began = fields[0], int(fields[19])
    return _ENDED if state in "ZX" else began


def _is_held(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not _locked(descriptor)
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    """Acquire the lock; return False if another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system does not support locks
        return True
    return True
