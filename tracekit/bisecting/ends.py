"""Subjects between two ends: commits of a range, or versions of a list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import gitinfo, history
from tracekit.bisecting.model import Subject
from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

RANGE = ".."


def commits(
    named: str, *, paths: Sequence[str] = (), first_parent: bool = True, repository: Path | None = None
) -> tuple[Subject, ...]:
    """Return the commits of `GOOD..BAD`, good first; BAD defaults to HEAD.

    Args:
        named: The range.
        paths: Only commits that change one of these files or folders, and the ends.
        first_parent: Whether to follow first parents only, so that a merge counts as one commit.
        repository: A folder of it; by default the current one.

    Raises:
        RunNotFoundError: A revision is unknown.
        UnusableInputError: This is no range, or good is no ancestor of bad.
    """
    good, dots, bad = named.partition(RANGE)
    if not good or not dots or bad.startswith("."):
        raise UnusableInputError(f"{named!r} is not a range of commits", hint="use GOOD..BAD")
    old, new = (gitinfo.commit(one, repository) for one in (good, bad or "HEAD"))
    found = history.between(old, new, paths=paths, first_parent=first_parent, cwd=repository)
    every = (*history.describe([old], cwd=repository), *found)
    return tuple(Subject(one.sha, one.subject, one.author, one.author_date) for one in every)


def versions(package: str, named: str) -> tuple[Subject, ...]:
    """Parse comma-separated versions of a package, from good to bad.

    Raises:
        UnusableInputError: There are fewer than two, or one twice.

    Example:
        >>> [one.title for one in versions("torch", "2.12.0, 2.13.0")]
        ['torch 2.12.0', 'torch 2.13.0']
    """
    found = [one.strip() for one in named.split(",") if one.strip()]
    if len(found) < 2 or len(set(found)) < len(found):
        raise UnusableInputError(
            f"--versions {named!r} are not two or more different versions",
            hint='list versions from good to bad: --versions "2.11.0,2.12.0,2.13.0"',
        )
    return tuple(Subject(one, f"{package} {one}") for one in found)


def skipped(subjects: Sequence[Subject], named: Sequence[str], *, git: bool) -> frozenset[str]:
    """Return the keys of the subjects to skip.

    Raises:
        RunNotFoundError: A revision is unknown.
        UnusableInputError: A version is none of the list.
    """
    keys = {one.key for one in subjects}
    found = frozenset(gitinfo.commit(one) if git else one for one in named)
    if not git and not found <= keys:
        raise UnusableInputError(
            f"--skip {', '.join(sorted(found - keys))}: no such version", hint="use one of --versions"
        )
    return found & keys
