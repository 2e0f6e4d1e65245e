"""Imports on workers: lost spools, changed files and failed writes."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from samples.simulator import kineto
from tests.traces import busy_program
from tracekit.errors import TracekitError
from tracekit.executors import Outcome, Workers, scratch, workers
from tracekit.executors.local import InProcess
from tracekit.executors.model import scratch_at
from tracekit.ingest.importer import import_each, import_traces
from tracekit.ingest.importer.cluster import PREFIX
from tracekit.schema import TABLES, C
from tracekit.storage import locks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store


@pytest.fixture(autouse=True)
def place(tmp_path: Path) -> Iterator[Path]:
    """The scratch folder of workers that are this process."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    with scratch_at(folder):
        yield folder


class Between(InProcess):
    """This process as workers, to whom something happens before they write."""

    def __init__(self, happening: Callable[[], object], *, lost: int | None = None) -> None:
        self.happening, self.lost, self.maps = happening, lost, 0

    def map(self, function: Any, items: Sequence[Any], *, near: Sequence[str] = ()) -> Iterator[Outcome[Any]]:
        self.maps += 1
        if self.maps == 2:
            self.happening()
        for outcome in super().map(function, items, near=near):
            if self.maps == 2 and outcome.index == self.lost:
                yield Outcome(index=outcome.index, error=TracekitError("its worker ended"))
            else:
                yield outcome


def job(folder: Path, ranks: int = 3) -> Path:
    folder.mkdir()
    for rank in range(ranks):
        program = busy_program(rank=rank, world_size=ranks)
        kineto.write(program, folder / f"rank{rank}.json")
    return folder


def imported(store: Store, folder: Path, executor: Workers) -> tuple[Run, list[TracekitError]]:
    run, *errors = import_each(store, [folder], workers=executor)
    assert not isinstance(run, TracekitError)
    return run, [error for error in errors if isinstance(error, TracekitError)]


def rows(run: Run) -> dict[str, list[dict[str, object]]]:
    return {name: run.arrow(name).to_pylist() for name in TABLES}


def test_local_workers_give_the_same_run(store: Store, tmp_path: Path, place: Path) -> None:
    folder = job(tmp_path / "job")
    (here,) = import_traces(store, [folder])
    with workers(count=0) as executor:
        there, errors = imported(store, folder, executor)
    assert (rows(there), errors) == (rows(here), [])
    assert there.meta.diagnostics == here.meta.diagnostics
    assert there.meta.collector == here.meta.collector
    assert list(place.iterdir()) == []


def test_a_trace_with_a_deleted_spool_is_decoded_again(store: Store, tmp_path: Path, place: Path) -> None:
    folder = job(tmp_path / "job")
    (here,) = import_traces(store, [folder])

    def lose() -> None:
        for spool in place.iterdir():
            shutil.rmtree(spool)

    executor = Between(lose)
    there, errors = imported(store, folder, executor)
    assert executor.maps == 2
    assert (rows(there), errors) == (rows(here), [])


def test_a_file_changed_during_the_import_is_left_out(store: Store, tmp_path: Path, place: Path) -> None:
    folder = job(tmp_path / "job")

    def change() -> None:
        for spool in place.iterdir():
            shutil.rmtree(spool)
        program = busy_program(rank=1, world_size=3)
        with program.step():
            program.kernel("late", 1_000)
        kineto.write(program, folder / "rank1.json")

    there, (error,) = imported(store, folder, Between(change))
    assert there.meta.diagnostics[0].message == (
        "left out rank 1 (rank1.json): rank1.json changed during the import"
    )
    assert str(error).startswith("1 of job's 3 traces could not be imported")
    assert {row[C.RANK] for row in there.arrow("steps").to_pylist()} == {0, 2}


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_row_ids_have_no_gap_where_a_rank_failed(store: Store, tmp_path: Path, lost: int) -> None:
    folder = job(tmp_path / "job")
    there, (error,) = imported(store, folder, Between(lambda: None, lost=lost))
    assert str(error).startswith("1 of job's 3 traces could not be imported")
    assert there.meta.diagnostics[0].message == f"left out rank {lost} (rank{lost}.json): its worker ended"
    (folder / f"rank{lost}.json").unlink()
    (here,) = import_traces(store, [folder])
    assert rows(there) == rows(here)
    for name, table in there.meta.tables.items():
        assert sorted(path.name for path in (there.path / name).iterdir()) == [
            part.name for part in table.parts
        ]


def test_spools_of_killed_imports_are_deleted_by_later_ones(
    store: Store, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = place / f"{PREFIX}left"
    (left / locks.new_mark()).mkdir(parents=True)
    dead = place / f"{PREFIX}dead" / f"{os.getpid()}.1-0a"  # of an earlier process of that id
    dead.mkdir(parents=True)
    folder = job(tmp_path / "job", 1)
    imported(store, folder, InProcess())
    assert left.is_dir()
    assert not dead.parent.exists()
    monkeypatch.setattr("tracekit.ingest.importer.cluster.ABANDONED_S", -1)
    imported(store, folder, InProcess())
    assert not left.exists()
    assert scratch() == place
