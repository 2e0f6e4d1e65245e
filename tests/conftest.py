from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.object_storage import serving
from tracekit import places
from tracekit.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.object_storage import Server

    Git = Callable[..., str]

# timings never decide a test; and where changes are judged, each is asked the same
settings.register_profile("tracekit", deadline=None, derandomize="CI" in os.environ)
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


@pytest.fixture(scope="session")
def _s3() -> Iterator[Server]:
    pytest.importorskip("moto", reason="moto, which stands in for S3, is not installed")
    with serving() as server:
        yield server


@pytest.fixture
def s3(_s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server that speaks S3 with a bucket named `bucket`, which the environment tells how to reach."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    known = {
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "very-secret",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": _s3.endpoint,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    _s3.begin("bucket")
    return _s3


@pytest.fixture
def remote(s3: Server) -> Store:
    """A store on object storage."""
    return Store(places.parse("s3://bucket/some runs é"))
