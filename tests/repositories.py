"""Git repositories that tests need beyond the one of their fixture."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tests.conftest import Git


def add_commits(git: Git, commits: Iterable[tuple[str, Mapping[str, str]]]) -> None:
    """Commit on `main` and check it out; each commit is a message and the texts of the files that it changes.

    One process makes all of them.
    """
    stream = []
    for number, (message, files) in enumerate(commits):
        when = f"Tester <tester@example.org> {1_763_694_900 + number} +0000"
        changes = "".join(f"M 100644 inline {name}\n{_data(text)}" for name, text in files.items())
        parent = "from refs/heads/main^0\n" if not number else ""
        head = f"commit refs/heads/main\nauthor {when}\ncommitter {when}\n"
        stream.append(f"{head}{_data(message)}{parent}{changes}\n")
    subprocess.run(["git", "fast-import", "--quiet"], input="".join(stream), text=True, check=True)
    git("reset", "--quiet", "--hard", "main")


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"


def add_submodule(git: Git, folder: Path, text: str) -> str:
    """Commit a submodule `deep lib` with a file `inner.py`; its origin is gone after; returns its commit."""
    origin = folder / "origin"
    subprocess.run(["git", "init", "--quiet", str(origin)], check=True)
    (origin / "inner.py").write_text(text)
    subprocess.run(["git", "add", "."], cwd=origin, check=True)
    subprocess.run(["git", "commit", "--quiet", "--message=inner"], cwd=origin, check=True)
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(origin), "deep lib")
    git("commit", "--quiet", "--message=submodule")
    origin.rename(folder / "gone")
    return git("-C", "deep lib", "rev-parse", "HEAD")
