"""Look for what was left, and free it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.freeing import finders
from tracekit.freeing.model import Found, Leftover

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.places import Place
    from tracekit.store import Store


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
        >>> from tracekit.store import Store, locate
        >>> [one.bytes for one in leftovers(Store(locate()))]  # doctest: +SKIP
        [1048576]
    """
    for find in finders.ALL:
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
    for told in _stats(found.path):
        size += told.st_size
        newest = max(newest, told.st_mtime)
    return Leftover(found=found, bytes=size, age_s=max(0.0, time.time() - newest))


def _stats(path: Path) -> Iterator[os.stat_result]:
    """Of a file, or of the folder and the files below it; links are not followed."""
    try:
        told = path.lstat()
        below = list(path.iterdir()) if path.is_dir() and not path.is_symlink() else []
    except OSError:  # it has just gone, or is another user's
        return
    yield told if not below else _weightless(told)
    for one in below:
        yield from _stats(one)


def _weightless(told: os.stat_result) -> os.stat_result:
    fields = list(told)
    fields[6] = 0
    return os.stat_result(fields)
