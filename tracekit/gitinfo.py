"""The state of the git repository around a run, asked of git itself."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from tracekit.errors import RunNotFoundError
from tracekit.meta import Git


def _git(*arguments: str, cwd: Path | None = None) -> bytes | None:
    try:
        done = subprocess.run(  # noqa: S603 (a fixed program and arguments of our own)
            ["git", *arguments],  # noqa: S607 (the user's git)
            cwd=cwd,
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def _line(*arguments: str, cwd: Path | None = None) -> str | None:
    output = _git(*arguments, cwd=cwd)
    return output.decode(errors="replace").strip() or None if output is not None else None


def root(cwd: Path | None = None) -> Path | None:
    """Top folder of the repository around `cwd`; None outside of one."""
    top = _line("rev-parse", "--show-toplevel", cwd=cwd)
    return Path(top) if top else None


def commit(revision: str, cwd: Path | None = None) -> str:
    """Full sha of a revision.

    Raises:
        RunNotFoundError: The revision is unknown, or this is no repository.
    """
    sha = _line("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", cwd=cwd)
    if sha is None:
        raise RunNotFoundError(
            f"git knows no revision {revision!r} here", hint="run inside the repository, check `git log`"
        )
    return sha


def state(cwd: Path | None = None) -> Git | None:
    """Commit, branch and uncommitted changes around `cwd`; None outside a repository with a commit.

    Files that git does not track do not count as changes, as for `git describe --dirty`.
    """
    sha = _line("rev-parse", "--verify", "--quiet", "HEAD", cwd=cwd)
    if sha is None:
        return None
    changes = _git("status", "--porcelain", "--untracked-files=no", cwd=cwd)
    difference = _git("diff", "HEAD", "--binary", cwd=cwd) or b""
    return Git(
        sha=sha,
        tree=_line("rev-parse", "HEAD^{tree}", cwd=cwd) or "",
        branch=_line("symbolic-ref", "--quiet", "--short", "HEAD", cwd=cwd),
        dirty=bool(changes),
        diff_sha256=hashlib.sha256(difference).hexdigest() if changes else None,
        commit_time=_line("show", "-s", "--format=%cI", "HEAD", cwd=cwd) or "",
    )
