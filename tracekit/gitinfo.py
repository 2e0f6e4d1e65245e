"""The state of the git repository around a run, asked of git itself."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from tracekit.errors import RunNotFoundError
from tracekit.meta import Git

_LOCAL = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY",
)
"""Variables by which git, in a hook, tells its children which tree is meant."""
_SAME_FOR_ALL = (
    "--binary",
    "--diff-algorithm=myers",
    "--dst-prefix=b/",
    "--full-index",
    "--no-color",
    "--no-ext-diff",
    "--no-relative",
    "--no-renames",
    "--no-textconv",
    "--src-prefix=a/",
    "--submodule=diff",
    "--unified=3",
)
"""Options of `git diff` that no configuration of a user changes the bytes of."""
_OF_SUBMODULES = "--ignore-submodules=untracked"


def environment() -> dict[str, str]:
    """The variables of this process without those that point git at a certain tree."""
    return {name: value for name, value in os.environ.items() if name not in _LOCAL}


def output(*arguments: str, cwd: Path | None = None) -> bytes | None:
    """What git prints, run without refreshing the user's index; None where it fails or there is no git.

    Args:
        arguments: Of git.
        cwd: The folder whose repository is meant; by default, that of this process, as a hook may set it.
    """
    try:
        done = subprocess.run(  # noqa: S603 (a fixed program and arguments of our own)
            ["git", "--no-optional-locks", *arguments],  # noqa: S607 (the user's git)
            cwd=cwd,
            env=environment() if cwd else None,
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def line(*arguments: str, cwd: Path | None = None) -> str | None:
    """The line that git prints; None where it prints nothing or fails."""
    printed = output(*arguments, cwd=cwd)
    return printed.decode(errors="replace").strip() or None if printed is not None else None


def root(cwd: Path | None = None) -> Path | None:
    """Top folder of the repository around `cwd`; None outside of one."""
    top = line("rev-parse", "--show-toplevel", cwd=cwd)
    return Path(top) if top else None


def commit(revision: str, cwd: Path | None = None) -> str:
    """Full sha of a revision.

    Raises:
        RunNotFoundError: The revision is unknown, or this is no repository.
    """
    sha = line("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", cwd=cwd)
    if sha is None:
        raise RunNotFoundError(
            f"no git revision {revision!r}", hint="run this inside the repository, and check `git log`"
        )
    return sha


def state(cwd: Path | None = None) -> Git | None:
    """Commit, branch and uncommitted changes around `cwd`; None outside a repository with a commit.

    Files that git does not track do not count as changes, as for `git describe --dirty`.
    """
    sha = line("rev-parse", "--verify", "--quiet", "HEAD", cwd=cwd)
    if sha is None:
        return None
    changes = output("status", "--porcelain", "--untracked-files=no", _OF_SUBMODULES, cwd=cwd)
    difference = output("diff", "HEAD", *_SAME_FOR_ALL, _OF_SUBMODULES, cwd=cwd) or b""
    top = root(cwd)
    return Git(
        sha=sha,
        tree=line("rev-parse", "HEAD^{tree}", cwd=cwd) or "",
        branch=line("symbolic-ref", "--quiet", "--short", "HEAD", cwd=cwd),
        dirty=bool(changes),
        diff_sha256=hashlib.sha256(difference).hexdigest() if changes else None,
        commit_time=line("show", "-s", "--format=%cI", "HEAD", cwd=cwd) or "",
        submodules=submodules(top) if top else {},
    )


def submodules(tree: Path) -> dict[str, str]:
    """Commit that is checked out in each submodule of a tree and in theirs, by path."""
    found = {}
    for name in recorded_submodules(tree):
        sha = line("rev-parse", "--verify", "--quiet", "HEAD", cwd=tree / name) if _own(tree / name) else None
        if sha:
            found[name] = sha
            found |= {f"{name}/{below}": one for below, one in submodules(tree / name).items()}
    return found


def recorded_submodules(tree: Path) -> dict[str, str]:
    """Commit that the index of a tree wants of each of its own submodules, by path."""
    if not (tree / ".gitmodules").is_file():
        return {}
    entries = (output("ls-files", "--stage", "-z", cwd=tree) or b"").split(b"\0")
    links = [entry.split(b"\t", 1) for entry in entries if entry.startswith(b"160000 ")]
    return {os.fsdecode(name): words.split()[1].decode() for words, name in links}


def _own(folder: Path) -> bool:
    """Whether a folder is a repository of its own; in one that is empty, git would answer for the outer."""
    return (folder / ".git").exists()
