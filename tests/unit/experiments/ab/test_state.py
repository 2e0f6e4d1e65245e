"""What an interrupted call left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.runs import make_run
from tracekit.experiments.ab import State

if TYPE_CHECKING:
    from tracekit.runs.store import Store


def test_profiles_that_were_removed_are_not_named(store: Store) -> None:
    kept = make_run(store)
    measured = State(runs={"base": kept.id, "head": "gone"})
    assert measured.without_deleted_runs(store).runs == {"base": kept.id}
