from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.large_store import fill
from tests.runs import make_run
from tracekit.runs import index, meta
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run


@pytest.fixture
def large(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store of six runs, with an index of them."""
    monkeypatch.setattr(index, "MAX_UNWRITTEN", 2)
    monkeypatch.setattr(index, "MIN_AGE_NS", 0)
    fill(store, [make_run(store, label="first")], 5)
    assert labels(store.path)[:1] == ["first"]
    assert (store.path / index.FILE_NAME).is_file()
    return store


def labels(folder: Path) -> list[str | None]:
    """Labels as another process would list them."""
    return [run.header.label for run in Store(folder).readable()]


def truth(folder: Path) -> list[str | None]:
    return [meta.read(run.path).label for run in Store(folder).backend.list_runs()]


def stored(folder: Path) -> dict[str, object]:
    return dict(index.Index(folder, lambda: folder / ".tmp")._read())


def relabel(run: Run, label: str) -> None:
    meta.write(run.path, replace(meta.read(run.path), label=label))


def test_the_index_answers_without_run_json(large: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = truth(large.path)
    monkeypatch.setattr(meta, "read", lambda path: pytest.fail(f"{path} was read"))
    assert labels(large.path) == expected


def test_runs_edited_added_and_removed_are_listed_as_they_are(large: Store) -> None:
    edited, doomed, *_ = large.runs()
    relabel(edited, "later")  # as long as the label before
    large.remove(doomed)
    make_run(large, label="added", after_s=9)
    assert {"later", "added"} < set(labels(large.path))
    assert labels(large.path) == truth(large.path)
    assert large.runs()[0].header.label == truth(large.path)[0]


def test_an_edit_that_keeps_size_and_time_is_seen(large: Store) -> None:
    run = large.runs()[0]
    before = (run.path / meta.FILE_NAME).stat()
    relabel(run, "again")
    os.utime(run.path / meta.FILE_NAME, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = (run.path / meta.FILE_NAME).stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert labels(large.path)[0] == "again"


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff" * 99])
def test_a_damaged_index_is_made_again(large: Store, damage: bytes) -> None:
    file = large.path / index.FILE_NAME
    whole = file.read_bytes()
    file.write_bytes(damage or whole.replace(b'"first"', b'"fraud"'))
    assert labels(large.path) == truth(large.path)
    assert file.read_bytes() == whole


def test_an_index_beyond_the_limit_is_not_read(large: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(stored(large.path)) == 6
    monkeypatch.setattr(index, "MAX_BYTES", 100)
    assert stored(large.path) == {}
    assert labels(large.path) == truth(large.path)


def test_without_its_index_the_store_is_the_same(large: Store) -> None:
    (large.path / index.FILE_NAME).unlink()
    assert labels(large.path) == truth(large.path)


def test_a_store_that_cannot_be_written_is_listed(large: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (large.path / index.FILE_NAME).unlink()

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("pathlib.Path.write_bytes", refuse)  # a folder's mode does not stop the superuser
    assert labels(large.path) == truth(large.path)
    assert not (large.path / index.FILE_NAME).exists()


def test_two_writers_leave_a_whole_index(large: Store) -> None:
    file = large.path / index.FILE_NAME
    found: list[list[str | None]] = []

    def write() -> None:
        for _ in range(10):
            file.unlink(missing_ok=True)
            found.append(labels(large.path))

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [truth(large.path)] * 20
    assert stored(large.path).keys() <= {run.path.name for run in large.runs()}
    assert [one.name for one in large.path.iterdir() if one.name.startswith(".tmp-")] == []


def test_a_run_written_just_now_is_not_in_the_index(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MAX_UNWRITTEN", 0)
    make_run(store)
    store.runs()
    assert stored(store.path) == {}


def test_a_small_store_has_no_index(store: Store) -> None:
    make_run(store)
    store.runs()
    assert not (store.path / index.FILE_NAME).exists()


def test_an_unreadable_run_is_told_each_time(large: Store) -> None:
    _, *others = truth(large.path)
    (large.runs()[0].path / meta.FILE_NAME).write_text("{")
    assert (len(Store(large.path).runs()), labels(large.path)) == (6, others)


def test_runs_that_cannot_be_read_do_not_have_the_index_written_again(large: Store) -> None:
    for run in large.runs()[:2]:
        (run.path / meta.FILE_NAME).write_text("{")
    listing = Store(large.path)
    listing.runs(), listing.runs()
    written = (large.path / index.FILE_NAME).stat().st_mtime_ns
    for _ in range(4):
        assert len(listing.readable()) == 4
    assert (large.path / index.FILE_NAME).stat().st_mtime_ns == written


def test_a_run_with_odd_metadata_does_not_break_the_list(store: Store) -> None:
    run = make_run(store, label="odd")
    known = meta.read(run.path)
    odd = replace(known.collector, options={"sources": ["a.json"]})
    meta.write(run.path, replace(known, environment={"gpus": ["H100", None]}, collector=odd))
    assert labels(store.path) == ["odd"]
