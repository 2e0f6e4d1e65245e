"""Where leftovers are: one function for each kind of place."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit import owners
from tracekit.freeing.model import Found, Kind
from tracekit.measuring import worktrees
from tracekit.measuring.locks import SUFFIX, abandoned
from tracekit.places import RemotePath
from tracekit.store import TEMPORARY, discard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.store import Store

PREFIX = "tracekit-"
"""How folders in the system's temporary folder begin; the owner's mark follows."""
UNKNOWN_S = 86_400.0
"""A writer of another machine delivers something within a day."""
UNUSED_S = 7 * 86_400.0
"""Another installation may use the code that this one does not."""
KEPT = (".results", ".timeline")
"""Folders of the store with a folder for each run."""
_UPLOADS, _SWEEPS = ".uploads", ".sweeps"
_HALF = re.compile(rf"\.tmp-({owners.PATTERN})(?:\.npz)?")
_GRAVE = re.compile(r"\..+\.(\d+)")
_LOCK = re.compile(rf"\.({owners.PATTERN})")


def drafts(store: Store) -> Iterator[Found]:
    """Runs that were never finished, and graves of those that were being deleted."""
    for path in _inside(store.beside):
        mark = path.name.removeprefix(TEMPORARY)
        if mark != path.name and owners.is_abandoned(path, mark):
            yield _found(Kind.DRAFT, path, still=partial(owners.is_abandoned, path, mark))


def remote(store: Store) -> Iterator[Found]:
    """What is no run on object storage; of processes of other machines only the age speaks."""
    for one in store.leftovers() if isinstance(store.path, RemotePath) else ():
        if isinstance(one.place, RemotePath) and not one.alive:
            yield Found(
                kind=Kind.DRAFT,
                path=one.place,
                remove=partial(store.free, one),
                least_age_s=0 if one.alive is False else UNKNOWN_S,
                known=(one.bytes, one.age_s),
            )


def kept(store: Store) -> Iterator[Found]:
    """What is kept of runs that are gone, and halves of kept files."""
    there = [path for name in KEPT for path in _inside(store.beside / name)]  # before the runs are listed
    runs = {run.path.name for run in store.runs()}
    for path in there:
        if _is_half(path) or (path.name not in runs and not path.name.startswith(".")):
            yield _found(Kind.RESULT, path)
        elif path.name in runs:
            below = [one for one in _inside(path) if one.is_dir()]
            for one in [half for folder in (path, *below) for half in _inside(folder) if _is_half(half)]:
                yield _found(Kind.RESULT, one)


def uploads(store: Store) -> Iterator[Found]:
    """Files on their way into the store whose dashboard is gone."""
    for path in _inside(store.beside / _UPLOADS):
        if owners.is_dead(path.name):
            yield _found(Kind.UPLOAD, path)


def checkouts(store: Store) -> Iterator[Found]:
    """Worktrees whose lock nobody holds, locks that were never taken, and graves of sweeps."""
    place = store.beside / worktrees.FOLDER
    for lock in _inside(place):
        if lock.name.endswith(SUFFIX) and _is_free(lock):
            folder = lock.with_suffix("")
            sweep = partial(worktrees.sweep, place.resolve())
            yield Found(kind=Kind.WORKTREE, path=folder if folder.is_dir() else lock, remove=sweep)
        elif (told := _LOCK.fullmatch(lock.name)) and owners.is_dead(told[1]):
            yield _found(Kind.WORKTREE, lock)
    for path in _inside(store.beside / _SWEEPS):
        if (told := _GRAVE.fullmatch(path.name)) and owners.is_dead(f"{told[1]}-0"):
            yield _found(Kind.DRAFT, path)


def temporary(_store: Store) -> Iterator[Found]:
    """Folders of this user in the system's temporary folder."""
    for path in _inside(Path(tempfile.gettempdir())):
        mark = path.name.removeprefix(PREFIX)
        if mark != path.name and _is_mine(path) and owners.is_abandoned(path, mark):
            yield _found(Kind.TEMPORARY, path, still=partial(owners.is_abandoned, path, mark))


def code(_store: Store) -> Iterator[Found]:
    """Compiled code that this installation does not use, and what was never finished."""
    root = _cache()
    scans = _inside(root / "scan")
    current = _current() if scans else None
    for path in scans:
        name, half, pid = path.name.partition(".o.")
        if half and name and owners.is_dead(f"{pid}-0"):
            yield _found(Kind.CODE, path)
        elif path.suffix == ".o" and current not in {None, path.name}:
            yield replace(_found(Kind.CODE, path), least_age_s=UNUSED_S)
    for path in _inside(root / "libtorch"):
        lock = path.parent / f"{path.name.rsplit('.', 2)[0]}{SUFFIX}"
        if path.name.endswith(".part") and _is_free(lock):
            yield _found(Kind.CODE, path, still=partial(_is_free, lock))


ALL: tuple[Callable[[Store], Iterator[Found]], ...] = (
    drafts,
    remote,
    kept,
    uploads,
    checkouts,
    temporary,
    code,
)


def _found(kind: Kind, path: Path, *, still: Callable[[], bool] = lambda: True) -> Found:
    def remove() -> None:
        if still():
            discard(path)

    return Found(kind=kind, path=path, remove=remove)


def _inside(folder: Path) -> list[Path]:
    """What is in a folder, by name; nothing in what is none, is a link, or may not be read."""
    try:
        return [] if folder.is_symlink() else sorted(folder.iterdir())
    except OSError:
        return []


def _is_half(path: Path) -> bool:
    told = _HALF.fullmatch(path.name)
    return told is not None and owners.is_dead(told[1])


def _is_free(lock: Path) -> bool:
    with abandoned(lock) as free:
        return free


def _is_mine(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.getuid()
    except OSError:
        return False


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tracekit"


def _current() -> str | None:
    """Name of the code that this installation uses; None where that cannot be told."""
    try:
        from tracekit.ingest.kineto.scan import native
    except ImportError:
        return None
    return native.place().name
