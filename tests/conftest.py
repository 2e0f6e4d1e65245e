from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tracekit.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    Git = Callable[..., str]

settings.register_profile("tracekit", deadline=None)  # timings never decide a test
settings.load_profile("tracekit")


@pytest.fixture(autouse=True)
def _no_store_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEKIT_STORE", raising=False)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Runs git in a new repository with one commit, which is the current directory."""
    repository = tmp_path / "repository"
    repository.mkdir()
    monkeypatch.chdir(repository)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Tester")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "tester@example.org")

    def call(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    call("init", "--quiet", "--initial-branch=main")
    Path("file.txt").write_text("one\n")
    call("add", ".")
    call("commit", "--quiet", "--message=first")
    return call
