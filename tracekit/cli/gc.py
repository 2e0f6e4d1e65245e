"""What can be freed.

Nothing of a process that lives is ever touched: `tracekit.storage.owners` tells, by id, beginning and lock.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.cli import lazy_click as click
from tracekit.cli.options import Age, format_option, open_store, store_option
from tracekit.experiments import checkouts
from tracekit.experiments.checkouts import SUFFIX, abandoned
from tracekit.runs.store import TEMPORARY, discard
from tracekit.storage import RemotePath, owners

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.analysis import Column
    from tracekit.runs.store import Store
    from tracekit.storage import Place

__all__ = ["Freed", "Kind", "Leftover", "free", "leftovers"]


class Kind(StrEnum):
    """What it is; scripts may rely on the words."""

    DRAFT = "draft"
    """A run that was never finished, or was being deleted, and what an import parked."""
    RESULT = "result"
    """Kept results and indexes of runs that are gone, and halves of such files."""
    UPLOAD = "upload"
    """Files that a browser sent to a dashboard that is gone."""
    WORKTREE = "worktree"
    """Checkouts of `ab`, `check` and `bisect`."""
    TEMPORARY = "temporary"
    """Folders in the system's temporary folder."""
    CODE = "code"
    """Compiled code in the user's cache that this installation does not use and is old, and halves of it."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Something that may be freed, as a finder tells it.

    Attributes:
        kind: What it is.
        path: Where it is.
        remove: Deletes it, unless a process that lives has it now.
        least_age_s: It is of no use to anybody once it is that old.
        known: Its bytes and its age in seconds, where asking for them again would take long.
    """

    kind: Kind
    path: Place
    remove: Callable[[], None]
    least_age_s: float = 0
    known: tuple[int, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """Something that is of no use to any living process.

    Attributes:
        found: What and where.
        bytes: Of its files.
        age_s: Seconds since anything in it was last written.
    """

    found: Found
    bytes: int
    age_s: float


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


def stale_checkouts(store: Store) -> Iterator[Found]:
    """Worktrees whose lock nobody holds, locks that were never taken, and graves of sweeps."""
    place = store.beside / checkouts.FOLDER
    for lock in _inside(place):
        if lock.name.endswith(SUFFIX) and _is_free(lock):
            folder = lock.with_suffix("")
            sweep = partial(checkouts.sweep, place.resolve())
            yield Found(kind=Kind.WORKTREE, path=folder if folder.is_dir() else lock, remove=sweep)
        elif (match := _LOCK.fullmatch(lock.name)) and owners.is_dead(match[1]):
            yield _found(Kind.WORKTREE, lock)
    for path in _inside(store.beside / _SWEEPS):
        if (match := _GRAVE.fullmatch(path.name)) and owners.is_dead(f"{match[1]}-0"):
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
    stale_checkouts,
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
    match = _HALF.fullmatch(path.name)
    return match is not None and owners.is_dead(match[1])


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
    """Name of the code that this installation uses; None if unknown."""
    try:
        from tracekit.ingest.kineto.scan import native
    except ImportError:
        return None
    return native.place().name


@dataclass(frozen=True, kw_only=True)
class Freed:
    """What became of a leftover.

    Attributes:
        leftover: What it was.
        bytes: How many bytes are free now.
        whole: Whether nothing of it is left.
    """

    leftover: Leftover
    bytes: int
    whole: bool


def leftovers(store: Store, *, older_than_s: float = 0) -> Iterator[Leftover]:
    """What dead processes left, in the store and on this machine.

    Args:
        store: The store.
        older_than_s: Only what nobody has written to for so many seconds.

    Example:
        >>> from tracekit.runs.store import Store, locate
        >>> [one.bytes for one in leftovers(Store(locate()))]  # doctest: +SKIP
        [1048576]
    """
    for find in ALL:
        for found in find(store):
            one = _weighed(found)
            if one.age_s >= max(older_than_s, found.least_age_s):
                yield one


def free(leftover: Leftover) -> Freed:
    """Delete a leftover, unless it got an owner meanwhile; what it has in it goes with it."""
    found = leftover.found
    found.remove()
    if not _is_there(found.path):
        return Freed(leftover=leftover, bytes=leftover.bytes, whole=True)
    return Freed(leftover=leftover, bytes=max(0, leftover.bytes - _weighed(found).bytes), whole=False)


def _is_there(path: Place) -> bool:
    return os.path.lexists(path) if isinstance(path, Path) else path.is_dir() or path.is_file()


def _weighed(found: Found) -> Leftover:
    if found.known or not isinstance(found.path, Path):
        size, age = found.known or (0, 0.0)
        return Leftover(found=found, bytes=size, age_s=age)
    size, newest = 0, 0.0
    for status in _stats(found.path):
        size += status.st_size
        newest = max(newest, status.st_mtime)
    return Leftover(found=found, bytes=size, age_s=max(0.0, time.time() - newest))


def _stats(path: Path) -> Iterator[os.stat_result]:
    """Of a file, or of the folder and the files below it; links are not followed."""
    try:
        status = path.lstat()
        below = list(path.iterdir()) if path.is_dir() and not path.is_symlink() else []
    except OSError:  # it has just gone, or is another user's
        return
    yield status if not below else _weightless(status)
    for one in below:
        yield from _stats(one)


def _weightless(status: os.stat_result) -> os.stat_result:
    fields = list(status)
    fields[6] = 0
    return os.stat_result(fields)


@click.command("gc")
@click.option("--dry-run", is_flag=True, help="List what would be deleted, without deleting.")
@click.option(
    "--older-than",
    type=Age(),
    metavar="AGE",
    default="0s",
    help="Delete only what was last written longer ago than this, such as 30m, 12h, 7d or 2w.",
)
@format_option
@store_option
def command(*, dry_run: bool, older_than: float, output_format: str, store: str | None) -> None:
    """Delete leftovers of killed processes and caches of deleted runs.

    In the store: unfinished or half-deleted runs (draft), cached results and indexes of deleted runs
    (result), interrupted uploads (upload), worktrees of `ab`, `check` and `bisect` (worktree). In the
    system's temporary folder: tracekit's folders (temporary). In the user's cache: compiled code over a week
    old that this installation does not use (code); another installation compiles it again if needed.

    Runs and files of running processes are never deleted. Prints one row per deletion.

    \b
    tracekit gc --dry-run
    tracekit gc --older-than 7d

    JSON: {"schema": "tracekit.gc/1", "freed": [{"kind": ..., "path": ..., "size": ...}]}.
    """  # noqa: D301 (click reads the \b)
    from tracekit import render

    opened = open_store(store)
    rows: list[dict[str, Any]] = []
    failed: list[Place] = []
    for one in list(leftovers(opened, older_than_s=older_than)):
        freed = one.bytes
        if not dry_run:
            done = free(one)
            freed = done.bytes
            if not done.whole:
                failed.append(one.found.path)
        rows.append(_row(opened, one, freed))
    if rows or output_format != "table":
        click.echo(render.rows(rows, _columns(), output_format, command="gc", key="freed", limit=0), nl=False)
    _report(rows, failed, dry_run=dry_run)


def _row(store: Store, one: Leftover, freed: int) -> dict[str, Any]:
    path = one.found.path
    inside = path.parts[: len(store.path.parts)] == store.path.parts
    shown = "/".join(path.parts[len(store.path.parts) :]) if inside else str(path)
    return {"kind": str(one.found.kind), "path": shown, "size": freed, "age": int(one.age_s * 1e9)}


def _report(rows: list[dict[str, Any]], failed: list[Place], *, dry_run: bool) -> None:
    """Print a summary on stderr.

    Raises:
        UnusableInputError: Something could not be deleted.
    """
    from tracekit.errors import UnusableInputError
    from tracekit.render import human

    size = human(sum(row["size"] for row in rows), "bytes")
    if not rows:
        click.echo("tracekit: nothing to delete", err=True)
        return
    done = "would be freed" if dry_run else "freed"
    click.echo(f"tracekit: {size} {done}, {len(rows)} leftover{'s' * (len(rows) != 1)}", err=True)
    if failed:
        raise UnusableInputError(
            f"{failed[0]} could not be deleted completely",
            hint="check its permissions and whether it is in use",
        )


def _columns() -> list[Column]:
    from tracekit.analysis import Column

    return [
        Column("kind", "", "kind of leftover"),
        Column("path", "", "path in the store, else absolute"),
        Column("size", "bytes", "bytes freed"),
        Column("age", "ns", "time since the last write"),
    ]
