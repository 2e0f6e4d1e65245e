"""Export of reports by nsys, and exports in folders."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from samples.simulator import examples, nsys
from tests.unit.ingest.nsys.exports import imported, kernel, parquet, sqlite, tables
from tracekit.errors import UnusableInputError
from tracekit.ingest.jobs.survey import plan
from tracekit.ingest.nsys import report
from tracekit.ingest.references import resolve
from tracekit.runs import toolchain
from tracekit.schema import DEVICE_INTERVALS
from tracekit.storage import locks

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.store import Store

STAND_IN = """#!{python}
import pathlib, shutil, sys
here = pathlib.Path(__file__).parent
with (here / "asked").open("a") as asked:
    print(*sys.argv[1:], file=asked)
output = next(word.removeprefix("--output=") for word in sys.argv if word.startswith("--output="))
if {fails}:
    pathlib.Path(output).write_bytes(b"half")
    print("The report was made by a newer version.", file=sys.stderr)
    sys.exit(3)
shutil.copyfile(here / "export.sqlite", output)
"""


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool = False) -> Path:
    """An executable `nsys`, alone on PATH, that exports the file next to it; gives what it was asked."""
    folder.mkdir()
    nsys.write(examples.training(), folder / "export.sqlite")
    program = folder / "nsys"
    program.write_text(STAND_IN.format(python=sys.executable, fails=fails))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("NSYS_HOME", raising=False)
    return folder / "asked"


def made_report(folder: Path, name: str = "run.nsys-rep") -> Path:
    path = folder / name
    path.write_bytes(b"a report")
    os.utime(path, ns=(10**18, 10**18))
    return path


def test_a_report_is_exported_once_next_to_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, path = stand_in(tmp_path / "bin", monkeypatch), made_report(tmp_path)
    runs = [imported(store, path) for _ in range(2)]
    assert [run.meta.tables[DEVICE_INTERVALS.name].rows for run in runs] == [26, 26]
    (once,) = asked.read_text().splitlines()
    assert once.startswith("export --type=sqlite --lazy=false --force-overwrite=true --output=")
    assert sorted(file.name for file in tmp_path.glob("*run*")) == ["run.nsys-rep", "run.sqlite"]


def test_a_newer_report_is_exported_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, path = stand_in(tmp_path / "bin", monkeypatch), made_report(tmp_path)
    imported(store, path)
    assert report.export_path(path).name == "run.sqlite"
    later = report.export_path(path).stat().st_mtime_ns + 10**9
    os.utime(path, ns=(later, later))
    imported(store, path)
    assert len(asked.read_text().splitlines()) == 2


def test_a_failed_export_leaves_only_the_report(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "bin", monkeypatch, fails=True)
    path = made_report(tmp_path)
    with pytest.raises(UnusableInputError, match=r"exit code 3\): The report was made by a newer") as raised:
        imported(store, path)
    assert (
        "export the report where it was recorded: nsys export --type=sqlite run.nsys-rep" in raised.value.hint
    )
    assert sorted(file.name for file in tmp_path.glob("*run*")) == ["run.nsys-rep"]


def test_without_nsys_the_error_says_what_to_do(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("NSYS_HOME", raising=False)
    monkeypatch.setattr(toolchain, "NSYS_PATTERNS", ())
    with pytest.raises(UnusableInputError, match="needs nsys to open; nsys is not installed") as raised:
        imported(store, made_report(tmp_path))
    assert "nsys export --type=sqlite run.nsys-rep elsewhere, then import run.sqlite" in raised.value.hint


def test_each_recording_of_a_folder_is_imported_once(tmp_path: Path) -> None:
    made_report(tmp_path)
    nsys.write(examples.training(), tmp_path / "run.sqlite")
    parquet(tmp_path / "tables", tables(KERNEL=[kernel(1, 2)]))
    sqlite(tmp_path / "bookmarks.sqlite", {"moz_places": [{"url": "x"}]})
    jobs = plan([tmp_path])
    assert [(job.name, [source.path.name for source in job.sources]) for job in jobs] == [
        ("run", ["run.sqlite"]),
        ("tables", ["tables"]),
    ]
    assert not [note for job in jobs for note in job.notes]


def test_exports_are_ranks_only_if_their_names_contain_them(tmp_path: Path) -> None:
    for folder, names in (("ranks", ("rank1", "rank0")), ("programs", ("before", "after"))):
        (tmp_path / folder).mkdir()
        for name in names:
            sqlite(tmp_path / folder / f"{name}.sqlite", tables(KERNEL=[kernel(1, 2)]))
    ranks = [[(source.path.stem, source.rank) for source in job.sources] for job in plan([tmp_path])]
    assert ranks == [[("after", None)], [("before", None)], [("rank0", 0), ("rank1", 1)]]


def test_an_export_resolves_to_its_run(store: Store, tmp_path: Path) -> None:
    for path in (
        sqlite(tmp_path / "one.sqlite", tables(KERNEL=[kernel(1, 2)])),
        parquet(tmp_path / "two", tables(KERNEL=[kernel(1, 3)])),
    ):
        assert resolve(store, str(path)).id == resolve(store, str(path)).id
    assert len(store.runs()) == 2


def test_files_of_killed_exports_are_deleted_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "bin", monkeypatch)
    path = made_report(tmp_path)
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    left = tmp_path / f".run.{process.pid}.17-0a.part.sqlite"
    living = tmp_path / f".run.{locks.new_mark()}.part.sqlite"
    other = tmp_path / f".other.{process.pid}.17-0a.part.sqlite"
    for one in (left, living, other):
        one.touch()
    assert report.ensure_export(path, tmp_path) == tmp_path / "run.sqlite"
    assert [one.exists() for one in (left, living, other)] == [False, True, True]
