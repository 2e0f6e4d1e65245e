"""Commits of the recorded program and their runs."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracekit.errors import RunNotFoundError, UnusableInputError
from tracekit.runs.meta import Git

_HOOK_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY",
)
"""Environment variables of git hooks that select a working tree."""
_STABLE_DIFF = (
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
"""Options of `git diff` for output that does not depend on the user's configuration."""
_OF_SUBMODULES = "--ignore-submodules=untracked"
_HEAD = ("rev-parse", "--verify", "--quiet", "HEAD")


def environment() -> dict[str, str]:
    """Return the environment variables of this process without those of `_HOOK_VARIABLES`."""
    return {name: value for name, value in os.environ.items() if name not in _HOOK_VARIABLES}


def _run(
    *arguments: str, cwd: Path | None, text: str = "", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run git without refreshing the user's index; `text` is its input."""
    return subprocess.run(  # noqa: S603 (a fixed program and arguments of our own)
        ["git", "--no-optional-locks", *arguments],  # noqa: S607 (the user's git)
        cwd=cwd,
        env=env,
        input=text.encode(),
        capture_output=True,
        check=False,
    )


def output(*arguments: str, cwd: Path | None = None) -> bytes | None:
    """Return git's output; None if git fails or is missing.

    Args:
        arguments: Arguments of git.
        cwd: Folder of the repository; by default that of this process, which a hook may set.
    """
    try:
        done = _run(*arguments, cwd=cwd, env=environment() if cwd else None)
    except OSError:
        return None
    return None if done.returncode else done.stdout


def line(*arguments: str, cwd: Path | None = None) -> str | None:
    """Return git's output without the newline; None if it is empty or git fails."""
    printed = output(*arguments, cwd=cwd)
    return printed.decode(errors="replace").strip() or None if printed is not None else None


def root(cwd: Path | None = None) -> Path | None:
    """Return the top folder of the repository; None outside of one."""
    top = line("rev-parse", "--show-toplevel", cwd=cwd)
    return Path(top) if top else None


def commit(revision: str, cwd: Path | None = None) -> str:
    """Return the full sha of a revision.

    Raises:
        RunNotFoundError: The revision is unknown, or there is no repository.
    """
    sha = line("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", cwd=cwd)
    if sha is None:
        message = f"no git revision {revision!r}"
        raise RunNotFoundError(message, hint="run this inside the repository, and check `git log`")
    return sha


def state(cwd: Path | None = None) -> Git | None:
    """Return commit, branch and uncommitted changes; None outside of a repository with a commit.

    Untracked files are not changes, as for `git describe --dirty`.
    """
    sha = line(*_HEAD, cwd=cwd)
    if sha is None:
        return None
    changes = output("status", "--porcelain", "--untracked-files=no", _OF_SUBMODULES, cwd=cwd)
    difference = b""
    if changes:  # without any, `git diff` would write the index where a file has only another time
        difference = output("diff", "HEAD", *_STABLE_DIFF, _OF_SUBMODULES, cwd=cwd) or b""
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
    """Return the checked-out commit of each submodule, recursively, by path."""
    commits = {}
    for name in submodule_commits(tree):
        folder = tree / name
        # In an empty folder, git would use the enclosing repository.
        sha = line(*_HEAD, cwd=folder) if (folder / ".git").exists() else None
        if sha:
            commits[name] = sha
            commits |= {f"{name}/{inner}": commit for inner, commit in submodules(folder).items()}
    return commits


def submodule_commits(tree: Path) -> dict[str, str]:
    """Return the recorded commit of each direct submodule, by path."""
    if not (tree / ".gitmodules").is_file():
        return {}
    entries = (output("ls-files", "--stage", "-z", cwd=tree) or b"").split(b"\0")
    links = [entry.split(b"\t", 1) for entry in entries if entry.startswith(b"160000 ")]
    return {os.fsdecode(name): words.split()[1].decode() for words, name in links}


_FORM = "%H%x00%s%x00%an%x00%aI"  # fields separated by NUL, which messages cannot contain


@dataclass(frozen=True)
class Commit:
    """One commit."""

    sha: str  # full sha
    subject: str  # first line of its message
    author: str  # name of its author
    author_date: str  # author date, ISO 8601 with time zone


def merge_base(first: str, second: str) -> str:
    """Return the newest common ancestor of two commits, given by their full shas.

    Raises:
        UnusableInputError: There is none, as in a shallow clone.
    """
    code, base = _ask("merge-base", first, second)
    if code > 1:
        exists = {sha: not _ask("cat-file", "-e", f"{sha}^{{commit}}")[0] for sha in (first, second)}
        lost = next((sha for sha in exists if not exists[sha]), second)
        hint = "run `git fetch --unshallow` in a shallow clone; after a rebase, record its runs again"
        raise UnusableInputError(f"commit {lost[:12]} is not in this repository", hint=hint)
    if code or not base:
        message = f"{first[:12]} and {second[:12]} have no common ancestor"
        raise UnusableInputError(message, hint="if the clone is shallow, run `git fetch --unshallow`")
    return base


def is_shallow(*, cwd: Path | None = None) -> bool:
    """Return whether the clone is shallow, as often in CI."""
    return _ask("rev-parse", "--is-shallow-repository", cwd=cwd) == (0, "true")


def nearest(commits: Iterable[str], head: str) -> list[tuple[str, int]]:
    """Return the full shas that are the head or its ancestors, with their distance, nearest first.

    Returns:
        Commit and distance: the number of commits that are ancestors of the head but not of the commit.
    """
    lines = [line.split() for line in _lines("rev-list", "--parents", "--topo-order", head)]
    bits = {sha: 1 << place for place, sha in enumerate(sorted(set(commits)))}
    reached = [sha for sha, *_ in lines if sha in bits]
    ancestors = _ancestors(lines, {sha: bits[sha] for sha in reached})
    return sorted(((sha, len(lines) - ancestors[sha]) for sha in reached), key=lambda commit: commit[1])


def _ancestors(lines: Sequence[Sequence[str]], bits: Mapping[str, int]) -> dict[str, int]:
    """Return the number of ancestors, with itself, of each commit with a bit; `lines` have children first."""
    masks: dict[str, int] = dict(bits)  # the commits that it is, or is an ancestor of
    sizes: Counter[int] = Counter()
    for sha, *parents in lines:
        mask = masks.pop(sha, 0)
        if mask:
            sizes[mask] += 1
            for parent in parents:
                masks[parent] = masks.get(parent, 0) | mask
    return {sha: sum(n for mask, n in sizes.items() if mask & bit) for sha, bit in bits.items()}


def between(
    good: str, bad: str, *, paths: Sequence[str] = (), first_parent: bool = True
) -> tuple[Commit, ...]:
    """Return the commits after `good` up to `bad`, oldest first.

    Args:
        good: Full sha of an ancestor.
        bad: Full sha of the newest commit, which is always included.
        paths: Include only commits that change one of these files or folders.
        first_parent: Follow first parents only, so that a merge is one commit.

    Raises:
        UnusableInputError: `good` is not an ancestor of `bad`, or not along first parents.
    """
    how = ["--first-parent"] if first_parent else ["--topo-order"]
    if good == bad or good not in _lines("rev-list", *how, bad):
        raise _range_error(good, bad)
    how += ["--reverse"] if first_parent else ["--reverse", "--ancestry-path"]
    shas = _lines("rev-list", *how, f"{good}..{bad}", *(["--", *paths] if paths else []))
    return describe([*(sha for sha in shas if sha != bad), bad])


def _range_error(good: str, bad: str) -> UnusableInputError:
    start, end = good[:12], bad[:12]
    if good == bad:
        hint = "choose an older good commit: GOOD..BAD"
        return UnusableInputError(f"both ends are {start}", hint=hint)
    if _ask("merge-base", "--is-ancestor", good, bad)[0] == 0:
        hint = "use the commit that merged it, or --all-parents"
        return UnusableInputError(f"{start} is not an ancestor of {end} along first parents", hint=hint)
    code, base = _ask("merge-base", good, bad)
    if base == bad:
        hint = f"the ends are reversed: use {end}..{start}"
    elif base and not code:
        hint = f"their branches diverged at {base[:12]}: use {base[:12]}..{end} if that commit is good"
    else:
        hint = (
            "choose an older good commit of the same branch; in a shallow clone run `git fetch --unshallow`"
        )
    return UnusableInputError(f"{start} is not an ancestor of {end}", hint=hint)


def describe(shas: Sequence[str], *, cwd: Path | None = None) -> tuple[Commit, ...]:
    """Return subject, author and date of commits, in their order."""
    if not shas:
        return ()
    how = ("--no-walk=unsorted", "--stdin", "-z", "--no-show-signature", "--encoding=UTF-8")
    text = _text("log", *how, f"--format={_FORM}", cwd=cwd, text="\n".join(shas))
    fields = text.removesuffix("\0").split("\0")
    return tuple(Commit(*fields[first : first + 4]) for first in range(0, len(fields), 4))


def _lines(*arguments: str) -> list[str]:
    return _text(*arguments).splitlines()


def _text(*arguments: str, cwd: Path | None = None, text: str = "") -> str:
    code, printed = _ask(*arguments, cwd=cwd, text=text)
    if code:
        message = f"`git {arguments[0]}` failed"
        raise UnusableInputError(message, hint="run this inside the repository, and check `git log`")
    return printed


def _ask(*arguments: str, cwd: Path | None = None, text: str = "") -> tuple[int, str]:
    """Return exit code and output of git, with input, as command lines are limited to 2 MB."""
    try:
        done = _run(*arguments, cwd=cwd or root(), text=text)
    except OSError as error:
        raise UnusableInputError(f"git cannot be run: {error}", hint="install git") from error
    return done.returncode, done.stdout.decode(errors="replace").strip()
