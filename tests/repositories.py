"""Git repositories that tests need beyond the one of their fixture."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Git


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
