"""The two commits of a comparison, and their worktrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit import gitinfo
from tracekit.errors import UnusableInputError
from tracekit.measuring import snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.measuring.snapshot import Changes
    from tracekit.measuring.worktrees import Worktrees

WORKING_TREE = "."


@dataclass(frozen=True)
class Commit:
    """One side of a comparison.

    Attributes:
        revision: Revision as given by the user.
        sha: Commit id; that of HEAD for the working tree.
        changes: Uncommitted changes on top of it, if it is the working tree.
    """

    revision: str
    sha: str
    changes: Changes | None = None

    @property
    def dirty(self) -> bool:
        """Whether it has uncommitted changes."""
        return self.changes is not None

    @property
    def name(self) -> str:
        """Name for display.

        Example:
            >>> Commit("main", "1a2b3c4d5e6f").name
            'main (1a2b3c4d5)'
        """
        short = self.sha[:9] + "+" * self.dirty
        return short if self.sha.startswith(self.revision) else f"{self.revision} ({short})"

    def entry(self) -> dict[str, object]:
        """Convert to JSON values."""
        sha256 = self.changes.sha256 if self.changes else None
        return {
            "revision": self.revision,
            "commit": self.sha,
            "dirty": self.dirty,
            "diff_sha256": sha256,
            "changed_files": len(self.changes.paths) if self.changes else 0,
        }


def commit(revision: str, repository: Path, *, allow_dirty: bool = False) -> Commit:
    """Resolve a revision, or `.` for the working tree.

    Raises:
        RunNotFoundError: There is no such revision.
        UnusableInputError: The working tree has changes, and that is not allowed.
    """
    if revision != WORKING_TREE:
        return Commit(revision, gitinfo.commit(revision, repository))
    found, sha = snapshot.changes(repository), gitinfo.commit("HEAD", repository)
    if not found.paths:
        return Commit(revision, sha)
    if not allow_dirty:
        count = len(found.paths)
        raise UnusableInputError(
            f"the working tree has uncommitted changes in {count} file{'s' * (count != 1)}",
            hint="commit them, or use --allow-dirty to measure them uncommitted",
        )
    return Commit(revision, sha, found)


def base_commit(revision: str, repository: Path) -> Commit:
    """Resolve the base, which must be a commit.

    Raises:
        RunNotFoundError: There is no such revision.
        UnusableInputError: It is the working tree, with changes.
    """
    found = commit(revision, repository, allow_dirty=True)
    if found.dirty:
        raise UnusableInputError(
            "the base must be a commit, but the working tree has uncommitted changes",
            hint="use a commit as the base, and `.` as the head",
        )
    return found


def check_out(trees: Worktrees, side: Commit, *, name: str) -> Path:
    """Check out the worktree of a side; return its root.

    Raises:
        UnusableInputError: The working tree changed since the side was resolved.
    """
    if side.changes is None:
        return trees.add(side.sha, name=name)
    tree = snapshot.copy(trees, side.changes, name=name)
    if snapshot.changes(tree) != side.changes:
        raise UnusableInputError("the working tree changed while it was copied", hint="run the command again")
    return tree
