from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.repositories import add_submodule
from tracekit.errors import RunNotFoundError
from tracekit.runs import revisions

if TYPE_CHECKING:
    from tests.conftest import Git


def test_a_clean_commit(git: Git) -> None:
    state = revisions.state()
    assert state is not None
    assert (state.sha, state.tree) == (git("rev-parse", "HEAD"), git("rev-parse", "HEAD^{tree}"))
    assert (state.branch, state.dirty, state.diff_sha256) == ("main", False, None)
    assert state.commit_time == git("show", "-s", "--format=%cI")


def test_uncommitted_changes_are_told_apart(git: Git) -> None:
    states = []
    for text in ("two\n", "three\n"):
        Path("file.txt").write_text(text)
        states.append(revisions.state())
    assert [state is not None and state.dirty for state in states] == [True, True]
    assert len({state.diff_sha256 for state in states if state}) == 2


def test_a_detached_head_has_no_branch(git: Git) -> None:
    git("checkout", "--quiet", "--detach")
    state = revisions.state()
    assert state is not None
    assert state.branch is None


def test_a_revision_is_a_full_sha(git: Git) -> None:
    assert revisions.commit("main") == git("rev-parse", "main")
    with pytest.raises(RunNotFoundError, match="--help"):
        revisions.commit("--help")


def test_outside_a_repository_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert (revisions.root(tmp_path), revisions.state(tmp_path)) == (None, None)


def test_without_git_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert revisions.state() is None


def test_reading_the_state_leaves_the_index_as_it_is(git: Git) -> None:
    index = Path(".git/index")
    os.utime("file.txt", (0, 0))  # git compares whole seconds
    before = (index.stat().st_mtime_ns, index.read_bytes())
    assert revisions.state() is not None
    assert (index.stat().st_mtime_ns, index.read_bytes()) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("color.diff", "always"), ("diff.noprefix", "true"), ("diff.external", "false"), ("core.abbrev", "20")],
)
def test_the_hash_of_changes_is_the_same_under_every_configuration(git: Git, name: str, value: str) -> None:
    Path("file.txt").write_text("two\n")
    before = revisions.state()
    git("config", name, value)
    assert revisions.state() == before


def test_submodules_are_part_of_the_state(git: Git, tmp_path: Path) -> None:
    sha = add_submodule(git, tmp_path, "deep")
    clean = revisions.state()
    assert clean is not None
    assert (clean.dirty, clean.submodules) == (False, {"deep lib": sha})
    git("config", "--file", ".gitmodules", "submodule.deep lib.ignore", "all")
    git("commit", "--quiet", "--all", "--message=ignored")
    hashes = set()
    for text in ("two\n", "three\n"):
        Path("deep lib/inner.py").write_text(text)
        state = revisions.state()
        assert state is not None
        assert state.dirty
        hashes.add(state.diff_sha256)
    assert len(hashes) == 2


def test_a_submodule_that_is_not_checked_out_has_no_commit(git: Git, tmp_path: Path) -> None:
    add_submodule(git, tmp_path, "deep")
    git("submodule", "--quiet", "deinit", "--all", "--force")
    state = revisions.state()
    assert state is not None
    assert state.submodules == {}
