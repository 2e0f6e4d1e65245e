from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import pytest

from tests.runs import make_run
from tracekit.cli.leftovers import free, leftovers
from tracekit.experiments.checkouts import worktrees
from tracekit.storage import locks

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Git
    from tracekit.runs.store import Store

DAY = 86_400


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache and temporary folder, empty."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "tracekit"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def dead(cache: Path) -> str:
    """The mark of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return f"{process.pid}.17-0a"


def made(path: Path, *, bytes_: int = 100) -> Path:
    """A folder with a file of so many bytes in it."""
    path.mkdir(parents=True)
    (path / "file").write_bytes(bytes(bytes_))
    return path


def freed(store: Store, **options: float) -> dict[str, int]:
    """What was freed, by name: its bytes."""
    return {one.path.name: free(one).bytes for one in list(leftovers(store, **options))}


def test_drafts_of_the_dead_go_and_those_of_the_living_stay(store: Store, dead: str) -> None:
    run = make_run(store)
    with store.draft() as draft:  # which sweeps the store itself
        gone, stays = made(store.path / f".tmp-{dead}"), made(store.path / f".tmp-{locks.new_mark()}")
        assert freed(store) == {gone.name: 100}
        assert draft.path.is_dir()
    assert stays.is_dir()
    assert store.runs() == [run]


def test_a_draft_that_got_an_owner_meanwhile_stays(store: Store, dead: str) -> None:
    path = made(store.path / f".tmp-{dead}")
    (found,) = leftovers(store)
    with locks.hold(path):
        reported = free(found)
    assert (reported.bytes, reported.complete, path.is_dir()) == (0, False, True)


@pytest.mark.parametrize("folder", [".results", ".timeline"])
def test_what_is_kept_of_runs_that_are_gone_goes(store: Store, dead: str, folder: str) -> None:
    run = make_run(store)
    made(store.path / folder / "20200101T000000Z-gone-000000")
    living = made(store.path / folder / run.path.name)
    half, own = living / f".tmp-{dead}", living / f".tmp-{locks.new_mark()}"
    half.write_bytes(bytes(7))
    own.touch()
    (living / "v1").mkdir()
    (living / "v1" / f".tmp-{dead}.npz").write_bytes(bytes(9))
    assert freed(store) == {"20200101T000000Z-gone-000000": 100, half.name: 7, f".tmp-{dead}.npz": 9}
    assert sorted(path.name for path in living.iterdir()) == sorted([own.name, "file", "v1"])


def test_uploads_and_temporary_folders_of_the_dead_go(store: Store, dead: str, tmp_path: Path) -> None:
    gone = [made(store.path / ".uploads" / dead), made(tmp_path / "temporary" / f"tracekit-{dead}")]
    stay = [
        made(store.path / ".uploads" / locks.new_mark()),
        made(tmp_path / "temporary" / f"tracekit-{locks.new_mark()}"),
        made(tmp_path / "temporary" / f"other-{dead}"),
    ]
    assert freed(store) == {path.name: 100 for path in gone}
    assert [path.is_dir() for path in (*gone, *stay)] == [False, False, True, True, True]


def test_code_that_is_not_used_goes_once_it_is_old(store: Store, dead: str, cache: Path) -> None:
    pytest.importorskip("llvmlite")
    from tracekit.ingest.kineto.scan import native

    scan = cache / "scan"
    scan.mkdir()
    current, old, young = native.place(), scan / f"{'a' * 24}.o", scan / f"{'b' * 24}.o"
    half = scan / f"{'c' * 24}.o.{dead.partition('.')[0]}"
    for file in (current, old, young, half):
        file.write_bytes(bytes(50))
    for file in (current, old):
        os.utime(file, (time.time() - 8 * DAY,) * 2)
    assert freed(store) == {old.name: 50, half.name: 50}
    assert sorted(scan.iterdir()) == sorted([current, young])


def test_only_what_is_old_enough_goes(store: Store, dead: str) -> None:
    old, young = made(store.path / f".tmp-{dead}"), made(store.path / f".tmp-{dead}1")
    for path in (old / "file", old):
        os.utime(path, (time.time() - 2 * DAY,) * 2)
    assert freed(store, older_than_s=DAY) == {old.name: 100}
    assert young.is_dir()


def test_checkouts_of_the_dead_go_and_those_of_the_living_stay(store: Store, dead: str, git: Git) -> None:
    with worktrees(store) as trees:
        path = trees.add("HEAD")
        assert freed(store) == {}
        assert path.is_dir()
    left = made(store.path / ".worktrees" / dead)
    left.with_name(f"{dead}.lock").write_text("1\n")
    found = list(leftovers(store))
    assert [one.kind for one in found] == ["worktree"]
    assert free(found[0]).complete
    assert list((store.path / ".worktrees").iterdir()) == []


def test_a_link_leads_nowhere(store: Store, dead: str, tmp_path: Path) -> None:
    outside = made(tmp_path / "outside")
    made(outside / "20200101T000000Z-gone-000000")
    make_run(store)
    (store.path / f".tmp-{dead}").symlink_to(outside)
    (store.path / ".results").symlink_to(outside)
    assert set(freed(store)) == {f".tmp-{dead}"}
    assert sorted(path.name for path in outside.iterdir()) == ["20200101T000000Z-gone-000000", "file"]


def test_a_store_that_is_not_there_has_nothing_left_and_is_not_made(store: Store, cache: Path) -> None:
    assert freed(store) == {}
    assert not store.path.exists()


def test_calls_that_were_not_resumed_go_after_a_month(store: Store, cache: Path) -> None:
    ab, bisect, tried = (store.folder(name) for name in (".ab", ".bisect", ".try"))
    gone, young = (ab / "a1.json", tried / "b2.json"), ab / "c3.json"
    kept = (ab / "lock", bisect / "d4.jsonl", tried / "measured.jsonl")
    for file in (*gone, young, *kept):
        file.write_bytes(bytes(30))
    for file in (*gone, *kept):
        os.utime(file, (time.time() - 31 * DAY,) * 2)
    os.utime(young, (time.time() - 29 * DAY,) * 2)
    assert freed(store) == {file.name: 30 for file in gone}
    assert all(file.is_file() for file in (young, *kept))
