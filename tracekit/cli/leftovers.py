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
from typing import NamedTuple

from tracekit.experiments import checkouts
from tracekit.runs.store import Store
from tracekit.storage import Place, RemotePath, cache_folder, locks
from tracekit.storage.atomic import TEMPORARY, delete


class Kind(StrEnum):
    """Kind of a leftover; scripts may rely on the values."""

    DRAFT = "draft"
    """Unfinished or partly deleted runs, and spools of imports."""
    RESULT = "result"
    """Cached results and indexes of deleted runs, states of calls not resumed, and unfinished files."""
    UPLOAD = "upload"
    """Browser uploads of a dashboard that has ended."""
    WORKTREE = "worktree"
    """Checkouts of `ab`, `check` and `bisect`."""
    TEMPORARY = "temporary"
    """Folders in the system's temporary folder."""
    CODE = "code"
    """Old compiled code that this installation does not use, and unfinished files, in the user's cache."""


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """File or folder that no running process needs."""

    kind: Kind
    path: Place
    remove: Callable[[], None]  # deletes it, unless a running process owns it by then
    min_age_s: float = 0  # age from which nobody can need it, in seconds
    bytes: int = 0
    age_s: float = 0  # seconds since the last write to any of them


PREFIX = "tracekit-"
"""Prefix of folders in the system's temporary folder; the owner's mark follows."""
UNKNOWN_S = 86_400.0
"""Age from which a writer on another machine has certainly ended."""
UNUSED_S = 7 * 86_400.0
"""Age of unused code; another installation may use it before."""
STALE_S = 30 * 86_400.0
"""Age of the state of a call that was not resumed: by then the code or the machine has mostly changed."""
CACHES = (".results", ".timeline")
"""Folders of the store that contain a folder per run."""
_UPLOADS, _SWEEPS = ".uploads", ".sweeps"
_CALLS = (".ab", ".try")
_STATES = (*_CALLS, ".bisect", _SWEEPS)
_UNFINISHED = re.compile(rf"\.tmp-({locks.MARK_PATTERN})(?:\.npz)?")
_DELETED = re.compile(r"\..+\.(\d+)")
_LOCK = re.compile(rf"\.({locks.MARK_PATTERN})")


def drafts(store: Store) -> Iterator[Leftover]:
    """Find unfinished runs, and partly deleted ones."""
    for path in _list(store.local_folder):
        mark = path.name.removeprefix(TEMPORARY)
        if mark != path.name and locks.is_abandoned(path, mark):
            yield _leftover(Kind.DRAFT, path, still=partial(locks.is_abandoned, path, mark))


def remote(store: Store) -> Iterator[Leftover]:
    """Find unfinished runs on object storage; those of other machines by their age."""
    for draft in store.leftovers() if isinstance(store.path, RemotePath) else ():
        if isinstance(draft.place, RemotePath) and not draft.alive:
            yield Leftover(
                kind=Kind.DRAFT,
                path=draft.place,
                remove=partial(store.delete_leftover, draft),
                min_age_s=0 if draft.alive is False else UNKNOWN_S,
                bytes=draft.bytes,
                age_s=draft.age_s,
            )


def caches(store: Store) -> Iterator[Leftover]:
    """Find caches of deleted runs, and unfinished files."""
    paths = [
        path for name in CACHES for path in _list(store.local_folder / name)
    ]  # before the runs are listed
    runs = {run.path.name for run in store.runs()}
    for path in paths:
        if _is_unfinished(path) or (path.name not in runs and not path.name.startswith(".")):
            yield _leftover(Kind.RESULT, path)
        elif path.name in runs:
            folders = [path, *(child for child in _list(path) if child.is_dir())]
            for file in (file for folder in folders for file in _list(folder) if _is_unfinished(file)):
                yield _leftover(Kind.RESULT, file)


def states(store: Store) -> Iterator[Leftover]:
    """Find unfinished files of measurements, and states of calls that were not resumed for long.

    Sweeps are results and bisections a cache of measurements: they are kept.
    """
    waiting = [store.local_folder / name for name in _STATES]
    while waiting:
        folder = waiting.pop()
        for path in _list(folder):
            if _is_unfinished(path):
                yield _leftover(Kind.RESULT, path)
            elif path.is_dir():
                waiting.append(path)
            elif folder.name in _CALLS and path.suffix == ".json":
                yield replace(_leftover(Kind.RESULT, path), min_age_s=STALE_S)


def uploads(store: Store) -> Iterator[Leftover]:
    """Find uploads whose dashboard has ended."""
    for path in _list(store.local_folder / _UPLOADS):
        if locks.is_dead(path.name):
            yield _leftover(Kind.UPLOAD, path)


def stale_checkouts(store: Store) -> Iterator[Leftover]:
    """Find worktrees without a lock holder, unused locks, and partly deleted sweeps."""
    place = store.local_folder / checkouts.FOLDER
    for lock in _list(place):
        if lock.name.endswith(locks.SUFFIX) and _is_free(lock):
            folder = lock.with_suffix("")
            sweep = partial(checkouts.sweep, place.resolve())
            yield Leftover(kind=Kind.WORKTREE, path=folder if folder.is_dir() else lock, remove=sweep)
        elif (match := _LOCK.fullmatch(lock.name)) and locks.is_dead(match[1]):
            yield _leftover(Kind.WORKTREE, lock)
    for path in _list(store.local_folder / _SWEEPS):
        if (match := _DELETED.fullmatch(path.name)) and locks.is_dead(f"{match[1]}-0"):
            yield _leftover(Kind.DRAFT, path)


def temporary(_store: Store) -> Iterator[Leftover]:
    """Find folders of this user in the system's temporary folder."""
    for path in _list(Path(tempfile.gettempdir())):
        mark = path.name.removeprefix(PREFIX)
        if mark != path.name and _is_mine(path) and locks.is_abandoned(path, mark):
            yield _leftover(Kind.TEMPORARY, path, still=partial(locks.is_abandoned, path, mark))


def code(_store: Store) -> Iterator[Leftover]:
    """Find compiled code that this installation does not use, and unfinished files."""
    scans = _list(cache_folder("scan"))
    current = _current() if scans else None
    for path in scans:
        name, unfinished, pid = path.name.partition(".o.")
        if unfinished and name and locks.is_dead(f"{pid}-0"):
            yield _leftover(Kind.CODE, path)
        elif path.suffix == ".o" and current not in {None, path.name}:
            yield replace(_leftover(Kind.CODE, path), min_age_s=UNUSED_S)
    for path in _list(cache_folder("libtorch")):
        lock = path.parent / f"{path.name.rsplit('.', 2)[0]}{locks.SUFFIX}"
        if path.name.endswith(".part") and _is_free(lock):
            yield _leftover(Kind.CODE, path, still=partial(_is_free, lock))


def _leftover(kind: Kind, path: Path, *, still: Callable[[], bool] = lambda: True) -> Leftover:
    def remove() -> None:
        if still():
            delete(path)

    return Leftover(kind=kind, path=path, remove=remove)


def _list(folder: Path) -> list[Path]:
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


def _current() -> str | None:
    """Return the name of the code that this installation uses; None if unknown."""
    try:
        from tracekit.ingest.kineto.scan import native
    except ImportError:
        return None
    return native.place().name


class Freed(NamedTuple):
    """Outcome of a deletion: the number of bytes freed, and whether everything was deleted."""

    bytes: int
    complete: bool


def leftovers(store: Store, *, older_than_s: float = 0) -> Iterator[Leftover]:
    """Find what ended processes left in the store and on this machine, last written that many seconds ago.

    Example:
        >>> from tracekit.runs.store import Store, locate
        >>> [leftover.bytes for leftover in leftovers(Store(locate()))]  # doctest: +SKIP
        [1048576]
    """
    for find in (drafts, remote, caches, states, uploads, stale_checkouts, temporary, code):
        for candidate in find(store):
            leftover = _measure(candidate)
            if leftover.age_s >= max(older_than_s, leftover.min_age_s):
                yield leftover


def free(leftover: Leftover) -> Freed:
    """Delete a leftover with its content, unless a process owns it by then."""
    leftover.remove()
    path = leftover.path
    if os.path.lexists(path) if isinstance(path, Path) else path.is_dir() or path.is_file():
        return Freed(max(0, leftover.bytes - _measure(leftover).bytes), complete=False)
    return Freed(leftover.bytes, complete=True)


def _measure(leftover: Leftover) -> Leftover:
    """Return a leftover with its size and age; those on object storage come with them."""
    if not isinstance(leftover.path, Path):
        return leftover
    sizes, times = zip(*_stats(leftover.path), strict=True)
    return replace(leftover, bytes=sum(sizes), age_s=max(0.0, time.time() - max(times)))


def _stats(path: Path) -> Iterator[tuple[int, float]]:
    """Yield size and time of a file, or of a folder and the files below it; links are not followed."""
    try:
        status = path.lstat()
        below = list(path.iterdir()) if path.is_dir() and not path.is_symlink() else []
    except OSError:  # it has just gone, or is another user's
        yield 0, 0.0
        return
    yield 0 if below else status.st_size, status.st_mtime
    for child in below:
        yield from _stats(child)
