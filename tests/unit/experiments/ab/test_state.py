"""What an interrupted call left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.runs import make_run
from tracekit.experiments.ab import State
from tracekit.experiments.state import code_of
from tracekit.runs.conditions import Contention

if TYPE_CHECKING:
    from tests.conftest import Git
    from tracekit.runs.store import Store


def test_profiles_that_were_removed_are_not_named(store: Store) -> None:
    kept = make_run(store)
    measured = State(runs={"base": kept.id, "head": "gone"})
    assert measured.without_deleted_runs(store).runs == {"base": kept.id}


def test_what_disturbed_runs_of_an_open_block_does_not_count() -> None:
    busy, block = Contention(0.5, "other programs took 50% of the CPU"), ({"wall": 1.0}, {"wall": 1.0})
    state = State(blocks=(block, block), contention={"base": (None, busy, busy), "head": (busy, None)})
    assert state.without_open_block().contention == {"base": (None, busy), "head": (busy, None)}


def test_files_that_git_does_not_track_are_code_of_a_setting(git: Git) -> None:
    folder = Path.cwd()
    clean = code_of(folder)
    (folder / "helper.py").write_text("A = 1\n")
    new = code_of(folder)
    (folder / "helper.py").write_text("A = 2\n")
    changed = code_of(folder)
    assert git("rev-parse", "HEAD") in repr(clean)
    assert len({repr(state) for state in (clean, new, changed)}) == 3
