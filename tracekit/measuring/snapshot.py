"""Checkout of the uncommitted state of the user's tree.

Files are copied as they are: what differs from HEAD, and what git neither knows nor ignores. The user's tree
is only read.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.errors import UnusableInputError
from tracekit.measuring.worktrees import git

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.measuring.worktrees import Worktrees


_ALL = "--ignore-submodules=none"


@dataclass(frozen=True)
class Changes:
    """Uncommitted changes of the user's tree.

    Attributes:
        paths: Changed, new and deleted files, relative to the root, sorted.
        sha256: Hash of their names, modes and contents; None where nothing is changed.
    """

    paths: tuple[str, ...]
    sha256: str | None


def changes(repository: Path) -> Changes:
    """Return the differences of a tree from HEAD, including untracked files.

    Raises:
        UnusableInputError: A submodule has changes, or git fails.
    """
    changed = git(repository, "diff", "HEAD", "--name-only", "--no-renames", "--no-ext-diff", _ALL, "-z")
    new = git(repository, "ls-files", "--others", "--exclude-standard", "-z")
    paths = sorted({os.fsdecode(name) for name in (changed + new).split(b"\0") if name})
    digest = hashlib.sha256()
    for name in paths:
        digest.update(os.fsencode(name) + b"\0" + _content(repository / name))
    return Changes(tuple(paths), digest.hexdigest() if paths else None)


def copy(trees: Worktrees, found: Changes, *, name: str) -> Path:
    """Create a worktree of HEAD with these changes; return its root."""
    tree = trees.add("HEAD", name=name)
    for path in found.paths:
        _copy(trees.repository / path, tree / path)
    return tree


def _copy(source: Path, target: Path) -> None:
    if target.is_symlink() or target.is_file():
        target.unlink()
    if source.is_symlink() or source.is_file():
        if target.is_dir():
            shutil.rmtree(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)


def _content(path: Path) -> bytes:
    """Return kind, mode and hash of a file, as far as git tracks them."""
    if path.is_symlink():
        return b"link " + os.fsencode(path.readlink())
    if path.is_dir():
        raise UnusableInputError(
            f"the repository {path} has uncommitted changes",
            hint="commit there and here, and compare commits",
        )
    if not path.is_file():
        return b"gone"
    mode = b"x" if os.access(path, os.X_OK) else b"-"
    return mode + hashlib.sha256(path.read_bytes()).digest()
