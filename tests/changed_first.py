"""The tests of changed packages run first, so that what a change breaks shows early.

A package is changed if a file of it differs from the commit before the last, in the last one or since then.
"""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
KEY = pytest.StashKey[list[str]]()
"""Files and folders whose tests run first."""
_WORKER_KEY = "changed_tests"
_OTHER_FOLDERS = {"analyses": ["tests/golden"], "dashboards": ["tests/browser"]}
"""Folders of tests of packages beside those in `tests/unit`."""


def changed_files(root: Path) -> set[str]:
    """Files that differ from the commit before the last, and new ones; none without git.

    In a shallow clone of one commit they are those that differ from this commit.
    """
    new = _read_lines(root, "ls-files", "--others", "--exclude-standard")
    different = _read_lines(root, "diff", "--name-only", "HEAD~1")
    if different is None:
        different = _read_lines(root, "diff", "--name-only", "HEAD")
    return {*(new or []), *(different or [])}


def _read_lines(root: Path, *arguments: str) -> list[str] | None:
    """The lines that git prints; None if it fails."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.splitlines() if done.returncode == 0 else None


def find_tests(file: str) -> list[str]:
    """Files and folders with the tests of the package that a file of the repository is in."""
    folder, *rest = PurePosixPath(file).parts
    if folder == "tests":
        return [file]
    package = rest[0] if folder == "tracekit" and rest else folder
    name = package.removesuffix(".py")
    return [f"tests/unit/{name}", f"tests/unit/test_{name}.py", *_OTHER_FOLDERS.get(name, [])]


def order(items: list[pytest.Item], first: list[str]) -> None:
    """Put the tests of some files and folders first; a file's tests stay together, as do its fixtures."""
    paths = [ROOT / path for path in first]
    files = {item.path for item in items}
    is_first = {file: any(file.is_relative_to(path) for path in paths) for file in files}
    items.sort(key=lambda item: not is_first[item.path])


def pytest_configure(config: pytest.Config) -> None:
    """Look for changes once: all workers must order the tests alike."""
    worker: dict[str, list[str]] = getattr(config, "workerinput", {})
    paths = worker.get(_WORKER_KEY)
    if paths is None:
        paths = sorted({path for file in changed_files(ROOT) for path in find_tests(file)})
    config.stash[KEY] = paths


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_configure_node(node: Any) -> None:
    """Hand the changed packages to a worker."""
    node.workerinput[_WORKER_KEY] = node.config.stash[KEY]


@pytest.hookimpl(tryfirst=True)  # pytest groups tests by their fixtures afterwards
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests."""
    order(items, config.stash[KEY])
