"""Lock files and folders, and name the process that owns a temporary one.

A lock ends with its process. Names of temporary files contain a mark: id and start time of the process, as
ids are reused. A lock also shows that a process of another container or machine, whose id means nothing here,
is running.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

MARK_PATTERN = r"(\d+)(?:\.(\d+))?-[0-9a-f]+"
"""Form of marks; those of older versions have no start time."""
SUFFIX = ".lock"
_MARK = re.compile(MARK_PATTERN)
_ENDED = -1


@contextmanager
def hold(path: Path, *, blocking: bool = True, create: bool = True) -> Iterator[bool | None]:
    """Hold an exclusive lock on a file or folder, which may be renamed meanwhile. Links are not followed.

    Args:
        path: The file, or an existing folder.
        blocking: Wait until no other process holds the lock.
        create: Create the file if it is missing.

    Yields:
        True while the lock is held; False if another process holds it, or its last holder has deleted the
        file; None if the file system has no locks.

    Raises:
        OSError: The file cannot be opened.
    """
    # NFS grants exclusive locks only on files that are open for writing.
    access = os.O_RDONLY if path.is_dir() else os.O_RDWR | (os.O_CREAT if create else 0)
    descriptor = os.open(path, access | os.O_NOFOLLOW, 0o666)
    try:
        yield _lock(descriptor, blocking=blocking) and _has_name(descriptor, path)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, blocking: bool) -> bool | None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _has_name(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


@contextmanager
def new_lock(folder: Path, *, content: str = "") -> Iterator[Path]:
    """Create a lock file with a new name, with text after the process id; it is deleted at the end."""
    name = f"{os.getpid()}-{os.urandom(4).hex()}"
    hidden, path = folder / f".{name}", folder / f"{name}{SUFFIX}"
    with hold(hidden):
        hidden.write_text(f"{os.getpid()}\n{content}")
        hidden.rename(path)  # visible under its name only once locked
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def hold_abandoned(path: Path) -> Iterator[bool]:
    """Yield whether no running process holds this lock file; others cannot take it meanwhile.

    A lock that cannot be tested counts as held, as what it protects is about to be deleted.
    """
    with ExitStack() as stack:
        held = None
        with suppress(OSError):  # just removed, or owned by another user
            held = stack.enter_context(hold(path, blocking=False, create=False))
        yield held is True


def new_mark() -> str:
    """Return a unique mark of this process: `<process>.<start>-<random>`.

    Example:
        >>> is_dead(new_mark()), is_dead("no mark"), is_dead(f"{os.getpid()}.1-0a")
        (False, False, True)
    """
    return f"{os.getpid()}.{start_ticks(os.getpid()) or 0}-{os.urandom(4).hex()}"


def is_dead(mark: str) -> bool:
    """Return whether the process of a mark has ended; False for other names."""
    match = _MARK.fullmatch(mark)
    if match is None:
        return False
    pid, expected = int(match[1]), int(match[2] or 0)
    ticks = start_ticks(pid)
    if expected and ticks:
        return ticks != expected
    import psutil  # for marks of older versions, and unknown start times

    return ticks == _ENDED or not psutil.pid_exists(pid)


def is_abandoned(path: Path, mark: str) -> bool:
    """Return whether a file or folder with this mark is abandoned: process ended, and not locked."""
    if not is_dead(mark):
        return False
    try:
        with hold(path, blocking=False, create=False) as held:
            return held is not False
    except OSError:
        return True


def start_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot, which no change of the clock changes.

    None if it is unknown; -1 of a process that has ended and that its parent has not waited for.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    state, ticks = fields[0], int(fields[19])
    return _ENDED if state in "ZX" else ticks
