"""What can be freed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.places import Place


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
