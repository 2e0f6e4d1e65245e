from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.runs import make_run
from tests.traces import kernels_text
from tracekit.errors import RunNotFoundError, TracekitError
from tracekit.ingest.references import resolve

if TYPE_CHECKING:
    from tracekit.runs.store import Store


def trace(path: Path, count: int = 3) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(kernels_text(count))
    return str(path)


def test_a_trace_is_imported_once(store: Store, tmp_path: Path) -> None:
    path = trace(tmp_path / "t.json")
    assert resolve(store, path) == resolve(store, path)
    assert len(store.runs()) == 1


@pytest.mark.parametrize("cores", [1, 2])
def test_a_fork_imports_a_trace_meanwhile(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    done: list[str] = []
    path = trace(tmp_path / "t.json")
    run = resolve(store, path, meanwhile=lambda: done.append("loaded"))
    assert done == ["loaded"] * (cores - 1)
    assert run.rows("device_intervals") == resolve(store, path, meanwhile=pytest.fail).rows(
        "device_intervals"
    )
    assert store.runs() == [run]


def test_an_import_that_fails_in_a_fork_has_the_same_error(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": []}')
    messages = []
    for meanwhile in (None, lambda: None):
        with pytest.raises(TracekitError) as error:
            resolve(store, str(path), meanwhile=meanwhile)
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert store.runs() == []


def test_files_of_one_name_size_and_time_are_not_confused(store: Store, tmp_path: Path) -> None:
    first, second = trace(tmp_path / "x" / "t.json"), trace(tmp_path / "y" / "t.json")
    Path(second).write_text(Path(first).read_text().replace("k1", "q1"))
    for path in (first, second):
        os.utime(path, ns=(1, 1))
    runs = [resolve(store, path) for path in (first, second)]
    assert len({run.id for run in runs}) == 2
    assert [resolve(store, path) for path in (first, second)] == runs


def test_an_unreadable_run_does_not_block_an_import(store: Store, tmp_path: Path) -> None:
    (make_run(store).path / "run.json").write_text("{")
    path = trace(tmp_path / "t.json")
    assert resolve(store, path) == resolve(store, path)


def test_runs_of_the_store_take_precedence_over_file_names(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = make_run(store, label="qq")
    monkeypatch.chdir(tmp_path)
    Path("qq").mkdir()
    trace(Path("latest"))
    trace(Path("bare.json"))
    assert [resolve(store, reference) for reference in ("qq", "latest", "latest~0", ours.id)] == [ours] * 4
    assert resolve(store, "bare.json").rows("device_intervals") >= 3
    assert resolve(store, "./latest") != ours


def test_a_run_resolves_by_its_path(store: Store, tmp_path: Path) -> None:
    run = make_run(store)
    shutil.copytree(run.path, tmp_path / "copy")
    assert resolve(store, str(tmp_path / "copy")).id == run.id


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("", "run reference is empty"),
        ("gone.json", "no run"),
        ("x" * 5_000, "no run"),
        ("a/" + "x" * 5_000, "no run"),
    ],
    ids=["empty", "file", "long", "long path"],
)
def test_a_reference_to_nothing_is_refused(store: Store, reference: str, message: str) -> None:
    make_run(store)
    with pytest.raises(RunNotFoundError, match=message):
        resolve(store, reference)
