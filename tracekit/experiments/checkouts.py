"""Checkouts of commits as git worktrees in a folder of the store, with submodules and uncommitted changes.

The user's files, index, branches and stashes are not changed, and hooks do not run. Worktrees are removed at
exit; those of a killed process at the next use.

Submodules become repositories that borrow the objects of the user's clones, without network: `git submodule
update` would contact the address in .gitmodules and change the user's configuration. A snapshot of the
working tree contains the differences from HEAD, and untracked files that are not ignored.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tracekit.errors import UnusableInputError
from tracekit.recording.signals import blocked_signals
from tracekit.runs import revisions
from tracekit.runs.store import Store
from tracekit.storage import locks

FOLDER = ".worktrees"
_OFFLINE = ("-c", "protocol.allow=never")
_WITH_SUBMODULES = "--ignore-submodules=none"


def _check_out_submodules(source: Path, tree: Path) -> None:
    """Check out the submodules of a new tree recursively, if the user's tree has clones of them."""
    for name, sha in revisions.submodule_commits(tree).items():
        clone = _clone(source, name)
        if clone is not None:
            _borrow(clone, tree / name, sha)
            _check_out_submodules(source / name, tree / name)


def find_missing_submodules(tree: Path) -> list[str]:
    """Return the paths of submodules that are not checked out, recursively."""
    paths = []
    for name in revisions.submodule_commits(tree):
        if (tree / name / ".git").exists():
            paths += [f"{name}/{below}" for below in find_missing_submodules(tree / name)]
        else:
            paths.append(name)
    return paths


def _clone(source: Path, name: str) -> Path | None:
    """Return the git folder of a submodule, which exists even if the user's commit lacks the submodule."""
    here = source / name if (source / name / ".git").exists() else source
    if not here.is_dir():
        return None
    git_folder = revisions.line("rev-parse", "--path-format=absolute", "--git-common-dir", cwd=here)
    if git_folder is None:
        return None
    folder = Path(git_folder) if here != source else Path(git_folder, "modules", name)
    return folder if (folder / "objects").is_dir() else None


def _borrow(clone: Path, target: Path, sha: str) -> None:
    """Check out a commit in a new repository that reads the objects of a clone."""
    of_clone = (f"--git-dir={clone}", "--work-tree=.")  # its own work tree may be deleted
    if revisions.line(*of_clone, "cat-file", "-t", sha, cwd=target) != "commit":
        raise UnusableInputError(
            f"the submodule {target.name} has no commit {sha[:9]} in its local clone",
            hint="fetch it in your tree: git submodule foreach --recursive git fetch",
        )
    git(target, *_OFFLINE, "init", "--quiet", "--template=")
    (target / ".git/objects/info").mkdir(parents=True, exist_ok=True)
    (target / ".git/objects/info/alternates").write_text(f"{clone}/objects\n")
    if (clone / "shallow").is_file():
        shutil.copy(clone / "shallow", target / ".git/shallow")
    git(target, *_OFFLINE, "checkout", "--quiet", "--detach", sha)


@dataclass(frozen=True)
class Worktrees:
    """The worktrees of one process in a folder, of the repository with this root."""

    repository: Path
    folder: Path

    def add(self, revision: str, *, name: str = "") -> Path:
        """Check out a commit, with submodules that are cloned locally; return the worktree's root.

        The name is that of its folder; by default it is the commit's sha.

        Raises:
            RunNotFoundError: There is no such revision.
            UnusableInputError: git cannot check it out, or a clone of a submodule lacks its commit.
        """
        sha = revisions.commit(revision, self.repository)
        path = self.folder / (name or sha)
        git(self.repository, "worktree", "add", "--quiet", "--detach", str(path), sha)
        _check_out_submodules(self.repository, path)
        return path


@contextmanager
def worktrees(store: Store, repository: Path | None = None) -> Iterator[Worktrees]:
    """Create worktrees of a repository, by default the current one, in the store; removed at the end.

    Raises:
        UnusableInputError: This is no git repository, or the store cannot be written.

    Example:
        >>> with worktrees(store) as trees:  # doctest: +SKIP
        ...     base = trees.add("main", name="base")
    """
    root = repository_root(repository)
    place = store.folder(FOLDER).resolve()
    sweep(place)
    with locks.new_lock(place, content=f"{root}\n") as lock:
        folder = lock.with_suffix("")
        folder.mkdir()
        try:
            yield Worktrees(root, folder)
        finally:
            with blocked_signals():
                _remove_all(root, folder)


def repository_root(folder: Path | None = None) -> Path:
    """Return the root of the user's repository.

    Raises:
        UnusableInputError: There is none.
    """
    root = revisions.root(folder)
    if root is None:
        raise UnusableInputError(
            f"{folder or Path.cwd()} is not in a git repository", hint="run this in the repository to measure"
        )
    return root


def sweep(place: Path) -> None:
    """Remove worktrees of killed processes."""
    for lock in place.glob(f"*{locks.SUFFIX}"):
        with locks.hold_abandoned(lock) as free:
            if free:
                lines = lock.read_text().splitlines()  # the second one is the repository
                _remove_all(Path(lines[1]) if len(lines) > 1 else place, lock.with_suffix(""))
                lock.unlink(missing_ok=True)


def git(folder: Path, *arguments: str) -> bytes:
    """Return the output of git, run in a folder without hooks and without changing the index.

    Raises:
        UnusableInputError: git failed, or there is none.
    """
    command = ["git", "--no-optional-locks", "-c", f"core.hooksPath={os.devnull}"]
    # A monitor of files that a repository configures is a program that git would start.
    command += ["-c", "diff.autoRefreshIndex=false", "-c", "core.fsmonitor=false", *arguments]
    environment = revisions.environment()
    try:
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True).stdout  # noqa: S603
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"exit code {error.returncode}"
        raise UnusableInputError(
            f"git {' '.join(arguments[:2])} failed: {reason}", hint="see `git worktree list`"
        ) from error
    except OSError as error:
        raise UnusableInputError(f"git cannot run: {error.strerror}", hint="install git") from error


def _remove_all(repository: Path, folder: Path) -> None:
    try:
        listed = git(repository, "worktree", "list", "--porcelain").decode(errors="surrogateescape")
    except UnusableInputError:  # the repository was deleted
        listed = ""
    for line in listed.splitlines():
        path = Path(line.removeprefix("worktree "))
        if line.startswith("worktree ") and path.is_relative_to(folder):
            shutil.rmtree(path, ignore_errors=True)  # git fails on folders it cannot enter or does not track
            with suppress(UnusableInputError):
                git(repository, "worktree", "remove", "--force", "--force", str(path))
    shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Changes:
    """Uncommitted changes of the user's tree."""

    paths: tuple[str, ...]  # changed, new and deleted files, relative to the root, sorted
    sha256: str | None  # hash of their names, modes and contents; None where nothing is changed


def changes(repository: Path) -> Changes:
    """Return the differences of a tree from HEAD, including untracked files.

    Raises:
        UnusableInputError: A submodule has changes, or git fails.
    """
    changed = git(
        repository, "diff", "HEAD", "--name-only", "--no-renames", "--no-ext-diff", _WITH_SUBMODULES, "-z"
    )
    new = git(repository, "ls-files", "--others", "--exclude-standard", "-z")
    paths = sorted({os.fsdecode(name) for name in (changed + new).split(b"\0") if name})
    digest = hashlib.sha256()
    for name in paths:
        digest.update(os.fsencode(name) + b"\0" + _content(repository / name))
    return Changes(tuple(paths), digest.hexdigest() if paths else None)


def copy(trees: Worktrees, changes: Changes, *, name: str) -> Path:
    """Create a worktree of HEAD with these changes; return its root.

    Args:
        trees: The worktrees.
        changes: Changes of the user's tree.
        name: Folder of the worktree.
    """
    tree = trees.add("HEAD", name=name)
    for path in changes.paths:
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
