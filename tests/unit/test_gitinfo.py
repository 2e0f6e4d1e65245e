from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tracekit import gitinfo
from tracekit.errors import RunNotFoundError

if TYPE_CHECKING:
    from tests.conftest import Git


def test_a_clean_commit(git: Git) -> None:
    state = gitinfo.state()
    assert state is not None
    assert (state.sha, state.tree) == (git("rev-parse", "HEAD"), git("rev-parse", "HEAD^{tree}"))
    assert (state.branch, state.dirty, state.diff_sha256) == ("main", False, None)
    assert state.commit_time == git("show", "-s", "--format=%cI")


def test_uncommitted_changes_are_told_apart(git: Git) -> None:
    states = []
    for text in ("two\n", "three\n"):
        Path("file.txt").write_text(text)
        states.append(gitinfo.state())
    assert [state is not None and state.dirty for state in states] == [True, True]
    assert len({state.diff_sha256 for state in states if state}) == 2


def test_a_detached_head_has_no_branch(git: Git) -> None:
    git("checkout", "--quiet", "--detach")
    state = gitinfo.state()
    assert state is not None
    assert state.branch is None


def test_a_revision_is_a_full_sha(git: Git) -> None:
    assert gitinfo.commit("main") == git("rev-parse", "main")
    with pytest.raises(RunNotFoundError, match="--help"):
        gitinfo.commit("--help")


def test_outside_a_repository_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert (gitinfo.root(tmp_path), gitinfo.state(tmp_path)) == (None, None)


def test_without_git_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gitinfo.state() is None
