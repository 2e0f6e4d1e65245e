"""Baselines in unusual repositories: shallow clones, merges, heads that are on the reference, changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.runs import make_run
from tests.unit.experiments.check.recorded import commit, record
from tracekit.errors import TracekitError, UnusableInputError
from tracekit.experiments.check import Options, check
from tracekit.experiments.check_baseline import compare_fields
from tracekit.stats.comparison import Verdict

if TYPE_CHECKING:
    from tests.conftest import Git
    from tracekit.runs.store import Store

BASE = (1_000_000, 1_004_000, 996_000)


def test_a_head_with_changes_is_never_its_own_baseline(git: Git, store: Store) -> None:
    runs = record(store, git("rev-parse", "HEAD"), BASE, dirty=True)
    gate = check(store, "main", runs=[runs[0].id], options=Options(allow_dirty=True))
    assert gate.verdict is Verdict.NO_BASELINE
    assert "no older commit has runs" in gate.notes[0]


def test_a_field_that_a_run_does_not_know_is_no_difference(store: Store) -> None:
    fingerprints = [
        {"gpu": "a", "torch": "2"},
        {"gpu": "b", "torch": "3"},
        {"gpu": None, "torch": "2"},
        {"torch": "2"},
    ]
    known, other, unknown, absent = (
        make_run(store, after_s=number, fingerprint=fields) for number, fields in enumerate(fingerprints)
    )
    assert sorted(compare_fields(known, other, ())) == ["gpu", "torch"]
    assert compare_fields(known, other, {"gpu"}) == ["torch"]
    assert compare_fields(known, unknown, ()) == compare_fields(unknown, known, ()) == []
    assert compare_fields(known, absent, ()) == []


def test_a_shallow_clone_is_named_as_the_reason(
    git: Git, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(store, git("rev-parse", "HEAD"), BASE)
    record(store, commit(git, "second"), BASE)
    git("clone", "--quiet", "--depth=1", f"file://{Path.cwd()}", str(tmp_path / "clone"))
    monkeypatch.chdir(tmp_path / "clone")
    with pytest.raises(TracekitError) as caught:
        check(store, "main")
    assert "git fetch --unshallow" in str(caught.value.hint)


def test_a_commit_that_was_rebased_away_is_named(git: Git, store: Store) -> None:
    record(store, git("rev-parse", "HEAD"), BASE)
    record(store, "2" * 40, BASE)
    with pytest.raises(UnusableInputError, match="commit 222222222222 is not in this repository"):
        check(store, "main")


def test_a_label_of_several_commits_tells_that_some_are_left_out(git: Git, store: Store) -> None:
    record(store, git("rev-parse", "HEAD"), BASE, label="nightly")
    record(store, commit(git, "second"), BASE, label="nightly")
    record(store, commit(git, "third"), BASE, label="head")
    [each] = check(store, "label:nightly", label="head").configurations
    assert "the label has runs of 1 more code state, skipped" in each.notes


def test_a_small_baseline_of_a_label_is_not_put_down_to_ancestors(git: Git, store: Store) -> None:
    record(store, git("rev-parse", "HEAD"), BASE[:2], label="before")
    record(store, commit(git, "second"), BASE, label="after")
    [each] = check(store, "label:before", label="after").configurations
    assert any("no commit of that label has 3 runs" in note for note in each.notes)
