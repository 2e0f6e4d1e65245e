"""Whatever a test does to a run that others read is reported, also where it may write to every file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from samples.simulator.examples import training
from tests.shared_runs import SharedRuns, copy_of
from tests.traces import kernels_text
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.runs.store import Store


@pytest.fixture
def own(store: Store) -> SharedRuns:
    """Shared runs that only one test shares."""
    return SharedRuns(store)


def test_a_trace_is_imported_once(own: SharedRuns, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(kernels_text())
    assert own.of(path) is own.of(path)
    assert own.simulated(training()) is own.simulated(training())
    ranks = [training(rank=rank, world_size=2) for rank in range(2)]
    steps = own.simulated(*ranks).table("steps", columns=[C.RANK])
    assert set(steps[C.RANK]) == {0, 1}
    assert len(store.runs()) == 3
    assert own.changed() == []


def overwrite(file: Path) -> None:
    file.chmod(0o644)
    file.write_bytes(file.read_bytes())


def add(file: Path) -> None:
    file.with_name("more").touch()


def remove(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize(("change", "named"), [(overwrite, "run.json"), (add, "more"), (remove, "run.json")])
def test_a_changed_run_is_reported(own: SharedRuns, change: Callable[[Path], None], named: str) -> None:
    run = own.simulated(training())
    change(run.path / "run.json")
    assert own.changed() == [str(run.path / named)]


def test_a_copy_may_be_written_to(own: SharedRuns, tmp_path: Path) -> None:
    shared = own.simulated(training())
    copy = copy_of(shared, tmp_path / "copy", label="mine")
    assert copy.meta == replace(shared.meta, label="mine")
    overwrite(copy.path / "run.json")
    assert own.changed() == []
