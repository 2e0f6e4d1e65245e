"""Submodules of a checkout, from the local clones of the user's tree, without network.

Each becomes a repository of its own that borrows the objects of the user's clone. `git submodule update`
would ask the address in .gitmodules, and note what it did in the user's configuration.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tracekit import gitinfo
from tracekit.errors import UnusableInputError

_NEVER_ASK = ("-c", "protocol.allow=never")


def check_out(source: Path, tree: Path) -> None:
    """Check out the submodules of a tree recursively, if the user's tree has clones of them.

    Args:
        source: The user's tree.
        tree: A new checkout of one of its commits.

    Raises:
        UnusableInputError: A clone lacks the commit that the tree wants of it.
    """
    for name, sha in gitinfo.recorded_submodules(tree).items():
        clone = _clone(source, name)
        if clone is not None:
            _borrow(clone, tree / name, sha)
            check_out(source / name, tree / name)


def missing(tree: Path) -> list[str]:
    """Return the paths of submodules that are not checked out, recursively."""
    found = []
    for name in gitinfo.recorded_submodules(tree):
        if (tree / name / ".git").exists():
            found += [f"{name}/{below}" for below in missing(tree / name)]
        else:
            found.append(name)
    return found


def _clone(source: Path, name: str) -> Path | None:
    """Return the git folder of a submodule, which exists even if the user's commit lacks the submodule."""
    here = source / name if (source / name / ".git").exists() else source
    if not here.is_dir():
        return None
    found = gitinfo.line("rev-parse", "--path-format=absolute", "--git-common-dir", cwd=here)
    if found is None:
        return None
    folder = Path(found) if here != source else Path(found, "modules", name)
    return folder if (folder / "objects").is_dir() else None


def _borrow(clone: Path, target: Path, sha: str) -> None:
    as_it_is = (f"--git-dir={clone}", "--work-tree=.")  # its work tree may be deleted
    if gitinfo.line(*as_it_is, "cat-file", "-t", sha, cwd=target) != "commit":
        raise UnusableInputError(
            f"the submodule {target.name} has no commit {sha[:9]} in its local clone",
            hint="fetch it in your tree: git submodule foreach --recursive git fetch",
        )
    _git(target, "init", "--quiet", "--template=")
    (target / ".git/objects/info").mkdir(parents=True, exist_ok=True)
    (target / ".git/objects/info/alternates").write_text(f"{clone}/objects\n")
    if (clone / "shallow").is_file():
        shutil.copy(clone / "shallow", target / ".git/shallow")
    _git(target, "checkout", "--quiet", "--detach", sha)


def _git(folder: Path, *arguments: str) -> None:
    if gitinfo.output(*_NEVER_ASK, "-c", f"core.hooksPath={os.devnull}", *arguments, cwd=folder) is None:
        raise UnusableInputError(
            f"the submodule {folder.name} cannot be checked out", hint="see `git submodule status`"
        )
