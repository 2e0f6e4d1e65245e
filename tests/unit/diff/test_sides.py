"""Which runs a side means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.runs import make_run
from tracekit.diff.model import note_left_out, pair, runs_of
from tracekit.errors import UnusableInputError
from tracekit.runs.meta import Git

if TYPE_CHECKING:
    from tests.conftest import Git as Repository
    from tracekit.runs.store import Store


def test_a_label_means_all_its_runs_of_the_newest_fingerprint(store: Store) -> None:
    other = make_run(store, label="x", fingerprint={"gpu": "one"})
    first = make_run(store, after_s=1, label="x", fingerprint={"gpu": "two"})
    second = make_run(store, after_s=2, label="x", fingerprint={"gpu": "two"})
    assert [run.id for run in runs_of(store, "x")] == [first.id, second.id]
    assert [run.id for run in runs_of(store, other.id)] == [other.id]
    assert [run.id for run in runs_of(store, "latest")] == [second.id]
    assert [run.id for run in runs_of(store, str(first.path))] == [first.id]


def test_runs_from_before_the_cores_were_recorded_are_alike(store: Store) -> None:
    old = make_run(store, label="x", fingerprint={"gpu": "one"})
    new = make_run(store, after_s=1, label="x", fingerprint={"gpu": "one", "cpu_cores": 2})
    assert [run.id for run in runs_of(store, "x")] == [old.id, new.id]
    assert note_left_out(store, "x") == ""
    newer = make_run(store, after_s=2, label="x", fingerprint={"gpu": "one", "cpu_cores": 4})
    assert [run.id for run in runs_of(store, "x")] == [old.id, newer.id]


def test_a_revision_means_all_runs_recorded_at_it(store: Store, git: Repository) -> None:
    sha = git("rev-parse", "HEAD")
    state = Git(sha=sha, tree="", branch="main", dirty=False, diff_sha256=None, commit_time="")
    runs = [make_run(store, after_s=number, git=state) for number in range(2)]
    make_run(store, after_s=3)
    assert [run.id for run in runs_of(store, "git:main")] == [run.id for run in runs]


def test_a_branch_or_label_with_a_slash_means_all_its_runs_too(store: Store, git: Repository) -> None:
    git("branch", "feature/x")
    state = Git(git("rev-parse", "HEAD"), "", "feature/x", dirty=False, diff_sha256=None, commit_time="")
    runs = [make_run(store, after_s=number, git=state, label="team/x") for number in range(2)]
    for reference in ("git:feature/x", "team/x"):
        assert [run.id for run in runs_of(store, reference)] == [run.id for run in runs]


def test_runs_that_a_side_leaves_out_are_told(store: Store) -> None:
    make_run(store, label="x", fingerprint={"gpu": "one", "torch": "2"})
    assert note_left_out(store, "x") == ""
    make_run(store, after_s=1, label="x", fingerprint={"gpu": "two", "torch": "2"})
    assert note_left_out(store, "x") == (
        "'x' names 1 more run that differs from its newest in gpu: it is left out"
    )
    make_run(store, after_s=2, label="x", fingerprint={"gpu": "two"})
    assert note_left_out(store, "x") == (
        "'x' names 2 more runs that differ from its newest in gpu, torch: they are left out"
    )
    assert note_left_out(store, "latest") == ""


def test_a_range_names_two_revisions() -> None:
    assert pair(["main..topic"]) == ("git:main", "git:topic")
    assert pair(["main...topic"]) == ("git:main", "git:topic")
    assert pair(["main.."]) == ("git:main", "git:HEAD")


@pytest.mark.parametrize("references", [[], ["one"], ["a", "b", "c"]])
def test_anything_but_two_sides_is_refused(references: list[str]) -> None:
    with pytest.raises(UnusableInputError, match="expected two runs"):
        pair(references)
