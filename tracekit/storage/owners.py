"""Whose a temporary file or folder is: its name tells the process that made it.

A name holds the process's id and when that process began, so that another one which got the same id later is
not taken for it. A folder can be held by a lock besides, which ends with the process however it ends: by it,
one of another container or machine, whose ids mean nothing here, is known to live.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PATTERN = r"(\d+)(?:\.(\d+))?-[0-9a-f]+"
"""What `mark` gives; the time is missing in what older versions made."""
_MARK = re.compile(PATTERN)


def mark() -> str:
    """A name for something of this process, new each time: `<process>.<began>-<random>`.

    Example:
        >>> is_dead(mark()), is_dead("no mark"), is_dead(f"{os.getpid()}.1-0a")
        (False, False, True)
    """
    return f"{os.getpid()}.{_began(os.getpid()) or 0}-{secrets.token_hex(4)}"


def is_dead(name: str) -> bool:
    """Whether the process that a mark names has ended; what is no mark names none."""
    told = _MARK.fullmatch(name)
    if told is None:
        return False
    pid, began = int(told[1]), int(told[2] or 0)
    now = _began(pid)
    if began and now:
        return now != began
    import psutil  # for what an older version left, and where the kernel does not tell

    return now == _ENDED or not psutil.pid_exists(pid)


def is_abandoned(path: Path, name: str) -> bool:
    """Whether a folder whose mark is `name` was left behind: its process has ended and nobody holds it."""
    return is_dead(name) and not _is_held(path)


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Hold a folder until the end, under whatever name it has then; without a lock where there is none."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _locked(descriptor)
        yield
    finally:
        os.close(descriptor)


_ENDED = -1


def _began(pid: int) -> int | None:
    """When a process began, in the kernel's ticks since the machine did; None where that is not told."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    state, began = told[0], int(told[19])
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
    """Take the lock; False where another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
