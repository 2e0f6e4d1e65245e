"""Links in a store that came from elsewhere: nothing outside is read, deleted or written."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest
from tracekit.dashboards.timeline import disk, interval_notes

from tests.integration.test_changed_runs import COMMANDS
from tests.runs import make_run, step_rows
from tests.unit.experiments.measure.test_worktrees import everything
from tracekit.analysis.cache import ResultCache
from tracekit.cli.main import run as run_command
from tracekit.errors import UnusableInputError
from tracekit.experiments.checkouts import worktrees
from tracekit.runs import notes
from tracekit.runs.meta import FILE_NAME
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.runs.verify import verify
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Git

TREASURE = "treasure-of-the-user"


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give `gc` a cache and a temporary folder of its own."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Files of the user that a link in a store may lead to: a run, archives, locks, notes and folders."""
    other = Store(tmp_path / "outside")
    rows = [{**row, C.NAME: TREASURE} for row in step_rows(0, 20)]
    run = make_run(other, label=TREASURE, tables={"steps": rows})
    (run.path / "steps").mkdir()
    shutil.copy(run.path / "steps.parquet", run.path / "steps" / "part-0.parquet")
    notes.write(run, tags=[TREASURE], note=TREASURE, name=TREASURE)
    for name in ("uv", "project", run.path.name):
        (other.path / name / "inner").mkdir(parents=True, exist_ok=True)
        (other.path / name / "inner" / "file.txt").write_text(TREASURE)
    for name in ("uv.lock", "1-0a.lock", "a.zip", "project/b.zip", "c.txt", "notes.json"):
        (other.path / name).write_text(TREASURE)
    return other.path


def _link(place: Path, target: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(target)


@pytest.mark.parametrize("name", [FILE_NAME, "steps.parquet", "notes.json"])
def test_a_file_of_a_run_that_is_a_link_is_not_read(
    name: str, store: Store, outside: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, (other,) = make_run(store), Store(outside).runs()
    _link(run.path / name, other.path / name)
    for number, words in enumerate(COMMANDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        words = [word.replace("{folder}", str(folder)) for word in words]
        code = run_command([*words, "--store", str(store.path)])
        told = capsys.readouterr()
        assert TREASURE not in told.out + told.err, words
        assert "Traceback" not in told.err
        assert code != 1 or words[0] == "check", words
        assert not any(TREASURE.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert verify(run).damage
    assert notes.read(run).name == ""


def test_a_table_in_a_folder_that_is_a_link_is_not_read(store: Store, outside: Path) -> None:
    run, (other,) = make_run(store), Store(outside).runs()
    (run.path / "steps.parquet").unlink()
    (run.path / "steps").symlink_to(other.path / "steps")
    with pytest.raises(UnusableInputError, match="cannot be read"):
        Run(run.path).arrow("steps")


def test_notes_in_a_folder_that_is_a_link_are_neither_read_nor_written(store: Store, outside: Path) -> None:
    run = make_run(store)
    (outside / "0123456789ab.json").write_text(
        '{"from_ns": 0, "to_ns": 1, "text": "' + TREASURE + '", "id": "0123456789ab"}'
    )
    before = everything(outside)
    (run.path / interval_notes.FOLDER).symlink_to(outside)
    assert interval_notes.read_notes(run) == []
    with pytest.raises(UnusableInputError, match="is a link"):
        interval_notes.save_note(store, run, interval_notes.Note(0, 1))
    with pytest.raises(UnusableInputError, match="is a link"):
        interval_notes.remove_note(store, run, "0123456789ab")
    assert everything(outside) == before


@pytest.mark.parametrize(
    "name", [".results", ".timeline", ".uploads", ".worktrees", ".logs", ".sweeps", ".ab", ".try", ".bisect"]
)
@pytest.mark.parametrize("inner", [False, True], ids=["folder", "folder of the run"])
def test_nothing_is_deleted_or_written_through_a_linked_folder_of_the_store(
    name: str, inner: bool, store: Store, outside: Path, git: Git, capsys: pytest.CaptureFixture[str]
) -> None:
    run, gone = make_run(store), make_run(store, after_s=1)
    place = store.path / name
    if inner:
        place.mkdir()
        place /= run.path.name
    place.symlink_to(outside)
    before = everything(outside)
    disk.sweep(store)
    cache = ResultCache(store, room=0)
    cache.analyze(run, "steps")
    cache._delete_oldest()
    refused = name == ".worktrees" and not inner
    with pytest.raises(UnusableInputError, match="is a link") if refused else nullcontext(), worktrees(store):
        pass
    for words in (["gc"], ["rm", "--yes", gone.path.name], ["rm", "--yes", run.path.name]):
        assert run_command([*words, "--store", str(store.path)]) == 0, capsys.readouterr().err
    assert everything(outside) == before
    assert store.runs() == []
