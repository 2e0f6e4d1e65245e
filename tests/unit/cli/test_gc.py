from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

from tests.runs import make_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.cli.conftest import Done
    from tracekit.runs.store import Store


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def left(store: Store) -> Path:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    path = store.path / f".tmp-{process.pid}.17-0a"
    path.mkdir(parents=True)
    (path / "file").write_bytes(bytes(2048))
    return path


def test_a_dry_run_frees_nothing(store: Store, tracekit: Callable[..., Done]) -> None:
    path = left(store)
    done = tracekit("gc", "--dry-run", "--format", "json")
    reported = json.loads(done.out)
    assert reported["schema"] == "tracekit.gc/1"
    assert [(row["kind"], row["path"], row["size"]) for row in reported["freed"]] == [
        ("draft", path.name, 2048)
    ]
    assert (done.code, done.err) == (0, "tracekit: 2.00 KiB would be freed, 1 leftover\n")
    assert path.is_dir()


def test_what_was_freed_is_told_in_bytes(store: Store, tracekit: Callable[..., Done]) -> None:
    run, path = make_run(store), left(store)
    done = tracekit("gc")
    assert (done.code, done.err) == (0, "tracekit: 2.00 KiB freed, 1 leftover\n")
    assert path.name in done.out
    assert not path.exists()
    assert store.runs() == [run]
    assert tracekit("gc").err == "tracekit: nothing to delete\n"


@pytest.mark.parametrize(("age", "goes"), [("0", True), ("1s", False), ("7d", False), ("30 m", False)])
def test_what_is_young_stays_when_asked(
    age: str, goes: bool, store: Store, tracekit: Callable[..., Done]
) -> None:
    path = left(store)
    assert tracekit("gc", "--older-than", "365d" if age == "1s" else age).code == 0
    assert path.exists() is not goes


@pytest.mark.parametrize("age", ["", "x", "-1d", "1y", "nan", "inf", "1 d d"])
def test_what_is_no_span_of_time_is_one_line(age: str, tracekit: Callable[..., Done]) -> None:
    done = tracekit("gc", "--older-than", age)
    assert done.code == 2
    assert "is not a duration" in done.err
    assert done.err.count("\n") == 1
