"""Git worktrees of commits, separate from the user's tree.

They are git worktrees in a folder of the store. The user's files, index, branches and stashes are never
touched, and hooks do not run. Whatever ends the process, they go: at once, or, after a kill that cannot
be caught, when worktrees are asked for next.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit import gitinfo
from tracekit.errors import UnusableInputError
from tracekit.measuring import submodules
from tracekit.measuring.locks import SUFFIX, abandoned, new_lock, undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.store import Store

FOLDER = ".worktrees"


@dataclass(frozen=True)
class Worktrees:
    """The worktrees of one process.

    Attributes:
        repository: Root of the user's tree.
        folder: Folder of the worktrees.
    """

    repository: Path
    folder: Path

    def add(self, revision: str, *, name: str = "") -> Path:
        """Check out a commit, with submodules that are cloned locally; return the worktree's root.

        Args:
            revision: What git knows the commit by.
            name: Folder of the worktree; by default the commit's sha.

        Raises:
            RunNotFoundError: There is no such revision.
            UnusableInputError: git cannot check it out, or a clone of a submodule lacks its commit.
        """
        sha = gitinfo.commit(revision, self.repository)
        path = self.folder / (name or sha)
        git(self.repository, "worktree", "add", "--quiet", "--detach", str(path), sha)
        submodules.check_out(self.repository, path)
        return path

    def remove(self, path: Path) -> None:
        """Remove a worktree with all files in it."""
        with undisturbed():
            _remove(self.repository, path)


@contextmanager
def worktrees(store: Store, repository: Path | None = None) -> Iterator[Worktrees]:
    """Create worktrees that are removed at the end.

    Args:
        store: Store that holds them, in a hidden folder.
        repository: A folder of the user's repository; by default the current one.

    Raises:
        UnusableInputError: This is no git repository, or the store cannot be written.

    Example:
        >>> with worktrees(store) as trees:  # doctest: +SKIP
        ...     base = trees.add("main", name="base")
    """
    root = repository_root(repository)
    place = store.folder(FOLDER).resolve()
    sweep(place)
    with new_lock(place, content=f"{root}\n") as lock:
        folder = lock.with_suffix("")
        folder.mkdir()
        try:
            yield Worktrees(root, folder)
        finally:
            with undisturbed():
                _remove_all(root, folder)


def repository_root(folder: Path | None = None) -> Path:
    """Return the root of the user's repository.

    Raises:
        UnusableInputError: There is none.
    """
    root = gitinfo.root(folder)
    if root is None:
        raise UnusableInputError(
            f"{folder or Path.cwd()} is not in a git repository", hint="run this in the repository to measure"
        )
    return root


def sweep(place: Path) -> None:
    """Remove worktrees of killed processes."""
    for lock in place.glob(f"*{SUFFIX}"):
        with abandoned(lock) as free:
            if free:
                words = lock.read_text().splitlines()
                _remove_all(Path(words[1]) if len(words) > 1 else place, lock.with_suffix(""))
                lock.unlink(missing_ok=True)


def git(folder: Path, *arguments: str) -> bytes:
    """Return the output of git, run in a folder without hooks and without changing the index.

    Raises:
        UnusableInputError: git failed, or there is none.
    """
    words = ["git", "--no-optional-locks", "-c", f"core.hooksPath={os.devnull}"]
    words += ["-c", "diff.autoRefreshIndex=false", *arguments]
    try:
        done = subprocess.run(words, cwd=folder, env=gitinfo.environment(), capture_output=True, check=True)  # noqa: S603
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        reason = said[-1] if said else f"exit code {error.returncode}"
        raise UnusableInputError(
            f"git {' '.join(arguments[:2])} failed: {reason}", hint="see `git worktree list`"
        ) from error
    except OSError as error:
        raise UnusableInputError(f"git cannot run: {error.strerror}", hint="install git") from error
    return done.stdout


def _remove_all(repository: Path, folder: Path) -> None:
    try:
        listed = git(repository, "worktree", "list", "--porcelain").decode(errors="surrogateescape")
    except UnusableInputError:  # the repository was deleted
        listed = ""
    known = [Path(line.removeprefix("worktree ")) for line in listed.splitlines() if line[:9] == "worktree "]
    for path in known:
        if path.is_relative_to(folder):
            _remove(repository, path)
    shutil.rmtree(folder, ignore_errors=True)


def _remove(repository: Path, path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)  # git fails on folders it cannot enter or does not track
    try:
        git(repository, "worktree", "remove", "--force", "--force", str(path))
    except UnusableInputError:
        shutil.rmtree(path, ignore_errors=True)
