"""Leftovers of ended processes: unfinished runs, caches of deleted runs, worktrees, temporary files.

Files of running processes are never deleted; `tracekit.storage.locks` identifies their process.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path

from tracekit.experiments import checkouts
from tracekit.runs.store import Store
from tracekit.storage import Place, RemotePath, locks
from tracekit.storage.atomic import TEMPORARY, delete


class Kind(StrEnum):
    """Kind of a leftover; scripts may rely on the values."""

    DRAFT = "draft"
    """Unfinished or partly deleted runs, and spools of imports."""
    RESULT = "result"
    """Cached results and indexes of deleted runs, and unfinished files."""
    UPLOAD = "upload"
    """Browser uploads of a dashboard that has ended."""
    WORKTREE = "worktree"
    """Checkouts of `ab`, `check` and `bisect`."""
    TEMPORARY = "temporary"
    """Folders in the system's temporary folder."""
    CODE = "code"
    """Old compiled code that this installation does not use, and unfinished files, in the user's cache."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Candidate for deletion.

    Attributes:
        kind: Its kind.
        path: Its location.
        remove: Deletes it, unless a running process owns it by then.
        least_age_s: Age from which nobody can need it.
        known: Size in bytes and age in seconds, if requesting them again would be slow.
    """

    kind: Kind
    path: Place
    remove: Callable[[], None]
    least_age_s: float = 0
    known: tuple[int, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """File or folder that no running process needs.

    Attributes:
        found: The candidate.
        bytes: Size of its files.
        age_s: Seconds since the last write to any of them.
    """

    found: Found
    bytes: int
    age_s: float


PREFIX = "tracekit-"
"""Prefix of folders in the system's temporary folder; the owner's mark follows."""
UNKNOWN_S = 86_400.0
"""Age from which a writer on another machine has certainly ended."""
UNUSED_S = 7 * 86_400.0
"""Age of unused code; another installation may use it before."""
CACHES = (".results", ".timeline")
"""Folders of the store that contain a folder per run."""
_UPLOADS, _SWEEPS = ".uploads", ".sweeps"
_UNFINISHED = re.compile(rf"\.tmp-({locks.MARK_PATTERN})(?:\.npz)?")
_DELETED = re.compile(r"\..+\.(\d+)")
_LOCK = re.compile(rf"\.({locks.MARK_PATTERN})")


def drafts(store: Store) -> Iterator[Found]:
    """Find unfinished runs, and partly deleted ones."""
    for path in _inside(store.local_folder):
        mark = path.name.removeprefix(TEMPORARY)
        if mark != path.name and locks.is_abandoned(path, mark):
            yield _found(Kind.DRAFT, path, still=partial(locks.is_abandoned, path, mark))


def remote(store: Store) -> Iterator[Found]:
    """Find unfinished runs on object storage; those of other machines by their age."""
    for one in store.leftovers() if isinstance(store.path, RemotePath) else ():
        if isinstance(one.place, RemotePath) and not one.alive:
            yield Found(
                kind=Kind.DRAFT,
                path=one.place,
                remove=partial(store.delete_leftover, one),
                least_age_s=0 if one.alive is False else UNKNOWN_S,
                known=(one.bytes, one.age_s),
            )


def caches(store: Store) -> Iterator[Found]:
    """Find caches of deleted runs, and unfinished files."""
    there = [
        path for name in CACHES for path in _inside(store.local_folder / name)
    ]  # before the runs are listed
    runs = {run.path.name for run in store.runs()}
    for path in there:
        if _is_unfinished(path) or (path.name not in runs and not path.name.startswith(".")):
            yield _found(Kind.RESULT, path)
        elif path.name in runs:
            below = [one for one in _inside(path) if one.is_dir()]
            for one in [
                file for folder in (path, *below) for file in _inside(folder) if _is_unfinished(file)
            ]:
                yield _found(Kind.RESULT, one)


def uploads(store: Store) -> Iterator[Found]:
    """Find uploads whose dashboard has ended."""
    for path in _inside(store.local_folder / _UPLOADS):
        if locks.is_dead(path.name):
            yield _found(Kind.UPLOAD, path)


def stale_checkouts(store: Store) -> Iterator[Found]:
    """Find worktrees without a lock holder, unused locks, and partly deleted sweeps."""
    place = store.local_folder / checkouts.FOLDER
    for lock in _inside(place):
        if lock.name.endswith(locks.SUFFIX) and _is_free(lock):
            folder = lock.with_suffix("")
            sweep = partial(checkouts.sweep, place.resolve())
            yield Found(kind=Kind.WORKTREE, path=folder if folder.is_dir() else lock, remove=sweep)
        elif (match := _LOCK.fullmatch(lock.name)) and locks.is_dead(match[1]):
            yield _found(Kind.WORKTREE, lock)
    for path in _inside(store.local_folder / _SWEEPS):
        if (match := _DELETED.fullmatch(path.name)) and locks.is_dead(f"{match[1]}-0"):
            yield _found(Kind.DRAFT, path)


def temporary(_store: Store) -> Iterator[Found]:
    """Find folders of this user in the system's temporary folder."""
    for path in _inside(Path(tempfile.gettempdir())):
        mark = path.name.removeprefix(PREFIX)
        if mark != path.name and _is_mine(path) and locks.is_abandoned(path, mark):
            yield _found(Kind.TEMPORARY, path, still=partial(locks.is_abandoned, path, mark))


def code(_store: Store) -> Iterator[Found]:
    """Find compiled code that this installation does not use, and unfinished files."""
    root = _cache()
    scans = _inside(root / "scan")
    current = _current() if scans else None
    for path in scans:
        name, unfinished, pid = path.name.partition(".o.")
        if unfinished and name and locks.is_dead(f"{pid}-0"):
            yield _found(Kind.CODE, path)
        elif path.suffix == ".o" and current not in {None, path.name}:
            yield replace(_found(Kind.CODE, path), least_age_s=UNUSED_S)
    for path in _inside(root / "libtorch"):
        lock = path.parent / f"{path.name.rsplit('.', 2)[0]}{locks.SUFFIX}"
        if path.name.endswith(".part") and _is_free(lock):
            yield _found(Kind.CODE, path, still=partial(_is_free, lock))


ALL: tuple[Callable[[Store], Iterator[Found]], ...] = (
    drafts,
    remote,
    caches,
    uploads,
    stale_checkouts,
    temporary,
    code,
)


def _found(kind: Kind, path: Path, *, still: Callable[[], bool] = lambda: True) -> Found:
    def remove() -> None:
        if still():
            delete(path)

    return Found(kind=kind, path=path, remove=remove)


def _inside(folder: Path) -> list[Path]:
    """Return the content of a folder, sorted; empty if it is no folder, a link, or not readable."""
    try:
        return [] if folder.is_symlink() else sorted(folder.iterdir())
    except OSError:
        return []


def _is_unfinished(path: Path) -> bool:
    match = _UNFINISHED.fullmatch(path.name)
    return match is not None and locks.is_dead(match[1])


def _is_free(lock: Path) -> bool:
    with locks.hold_abandoned(lock) as free:
        return free


def _is_mine(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.getuid()
    except OSError:
        return False


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tracekit"


def _current() -> str | None:
    """Return the name of the code that this installation uses; None if unknown."""
    try:
        from tracekit.ingest.kineto.scan import native
    except ImportError:
        return None
    return native.place().name


@dataclass(frozen=True, kw_only=True)
class Freed:
    """Outcome of a deletion.

    Attributes:
        leftover: The leftover.
        bytes: Number of bytes freed.
        complete: Whether it was deleted completely.
    """

    leftover: Leftover
    bytes: int
    complete: bool


def leftovers(store: Store, *, older_than_s: float = 0) -> Iterator[Leftover]:
    """Find what ended processes left in the store and on this machine.

    Args:
        store: The store.
        older_than_s: Minimum age in seconds since the last write.

    Example:
        >>> from tracekit.runs.store import Store, locate
        >>> [one.bytes for one in leftovers(Store(locate()))]  # doctest: +SKIP
        [1048576]
    """
    for find in ALL:
        for found in find(store):
            one = _measured(found)
            if one.age_s >= max(older_than_s, found.least_age_s):
                yield one


def free(leftover: Leftover) -> Freed:
    """Delete a leftover with its content, unless a process owns it by then."""
    found = leftover.found
    found.remove()
    if not _exists(found.path):
        return Freed(leftover=leftover, bytes=leftover.bytes, complete=True)
    return Freed(leftover=leftover, bytes=max(0, leftover.bytes - _measured(found).bytes), complete=False)


def _exists(path: Place) -> bool:
    return os.path.lexists(path) if isinstance(path, Path) else path.is_dir() or path.is_file()


def _measured(found: Found) -> Leftover:
    if found.known or not isinstance(found.path, Path):
        size, age = found.known or (0, 0.0)
        return Leftover(found=found, bytes=size, age_s=age)
    size, newest = 0, 0.0
    for own, written in _stats(found.path):
        size, newest = size + own, max(newest, written)
    return Leftover(found=found, bytes=size, age_s=max(0.0, time.time() - newest))


def _stats(path: Path) -> Iterator[tuple[int, float]]:
    """Yield size and time of a file, or of a folder and the files below it; links are not followed."""
    try:
        status = path.lstat()
        below = list(path.iterdir()) if path.is_dir() and not path.is_symlink() else []
    except OSError:  # it has just gone, or is another user's
        return
    yield 0 if below else status.st_size, status.st_mtime
    for one in below:
        yield from _stats(one)
