"""Commits and their order, asked of git."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit import gitinfo
from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_FIELD = "\x1f"


@dataclass(frozen=True)
class Commit:
    """One commit.

    Attributes:
        sha: Full sha.
        subject: First line of its message.
        author: Name of its author.
        author_date: When it was written, ISO 8601 with its time zone.
    """

    sha: str
    subject: str
    author: str
    author_date: str


def merge_base(one: str, other: str, *, cwd: Path | None = None) -> str:
    """The newest commit that both revisions descend from.

    Raises:
        UnusableInputError: They have none, as in a clone without its history.
    """
    code, text = _ask("merge-base", one, other, cwd=cwd)
    if code or not text:
        raise UnusableInputError(
            f"{one[:12]} and {other[:12]} have no common ancestor here",
            hint="a shallow clone lacks it: fetch all with `git fetch --unshallow`",
        )
    return text


def is_ancestor(old: str, new: str, *, cwd: Path | None = None) -> bool:
    """Whether the second commit descends from the first, or is it."""
    return _ask("merge-base", "--is-ancestor", old, new, cwd=cwd)[0] == 0


def nearest(commits: Iterable[str], head: str, *, cwd: Path | None = None) -> list[tuple[str, int]]:
    """Those of the commits that are ancestors of the head or it, with their distance, nearest first.

    The distance is the number of commits that the head has and the ancestor has not.
    """
    wanted = set(commits)
    reached = [sha for sha in _lines("rev-list", "--topo-order", head, cwd=cwd) if sha in wanted]
    counted = [(sha, int(_text("rev-list", "--count", f"{sha}..{head}", cwd=cwd))) for sha in reached]
    return sorted(counted, key=lambda one: one[1])


def between(
    good: str, bad: str, *, paths: Sequence[str] = (), first_parent: bool = True, cwd: Path | None = None
) -> tuple[Commit, ...]:
    """The commits after `good` up to `bad`, oldest first.

    Args:
        good: Full sha of an ancestor.
        bad: Full sha of the newest commit, which is listed in any case.
        paths: Only commits that change one of these files or folders.
        first_parent: Whether to follow first parents only, so that a merge counts as one commit.
        cwd: Folder inside the repository.

    Raises:
        UnusableInputError: `good` is no ancestor of `bad`, or not along its first parents.
    """
    how = ["--first-parent"] if first_parent else ["--topo-order"]
    reached = _lines("rev-list", *how, bad, cwd=cwd)
    if good not in reached or good == bad:
        along = " along first parents" if first_parent and is_ancestor(good, bad, cwd=cwd) else ""
        raise UnusableInputError(
            f"{good[:12]} is no ancestor of {bad[:12]}{along}",
            hint="name an older good commit of the same branch: GOOD..BAD",
        )
    how += ["--reverse"] if first_parent else ["--reverse", "--ancestry-path"]
    found = _lines("rev-list", *how, f"{good}..{bad}", *(["--", *paths] if paths else []), cwd=cwd)
    return describe([*(sha for sha in found if sha != bad), bad], cwd=cwd)


def describe(shas: Sequence[str], *, cwd: Path | None = None) -> tuple[Commit, ...]:
    """Subject, author and date of commits, in their order."""
    if not shas:
        return ()
    form = _FIELD.join(("%H", "%s", "%an", "%aI"))
    text = _text("show", "--no-patch", "--no-walk=unsorted", f"--format={form}", *shas, cwd=cwd)
    return tuple(Commit(*line.split(_FIELD)) for line in text.splitlines())


def _lines(*arguments: str, cwd: Path | None) -> list[str]:
    return _text(*arguments, cwd=cwd).splitlines()


def _text(*arguments: str, cwd: Path | None) -> str:
    code, text = _ask(*arguments, cwd=cwd)
    if code:
        raise UnusableInputError(
            f"`git {arguments[0]}` failed here", hint="run inside the repository, check `git log`"
        )
    return text


def _ask(*arguments: str, cwd: Path | None) -> tuple[int, str]:
    """Exit code and output of git."""
    try:
        done = subprocess.run(  # noqa: S603 (a fixed program; revisions are full shas)
            ["git", *arguments],  # noqa: S607 (the user's git)
            cwd=cwd or gitinfo.root(),
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise UnusableInputError(f"git cannot be run: {error}", hint="install git") from error
    return done.returncode, done.stdout.decode(errors="replace").strip()
