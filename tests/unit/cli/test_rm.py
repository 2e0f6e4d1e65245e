from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import pytest

from tests.runs import make_run
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.cli.conftest import Done


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_runs_are_deleted_once_each_and_named_on_stdout(store: Store, tracekit: Callable[..., Done]) -> None:
    first, second, kept = (make_run(store, after_s=second) for second in range(3))
    done = tracekit("rm", "--yes", "latest~2", first.id, second.id, str(second.path))
    assert (done.code, done.out, done.err) == (0, f"{first.path.name}\n{second.path.name}\n", "")
    assert store.runs() == [kept]


def test_one_wrong_reference_deletes_nothing(store: Store, tracekit: Callable[..., Done]) -> None:
    run = make_run(store)
    assert tracekit("rm", "--yes", run.id, "nothing").code == 2
    assert store.runs() == [run]


def test_a_run_outside_the_store_is_refused(
    store: Store, tracekit: Callable[..., Done], tmp_path: Path
) -> None:
    inside, outside = make_run(store), make_run(Store(tmp_path / "other"))
    done = tracekit("rm", "--yes", inside.id, str(outside.path))
    assert done.code == 2
    assert "is not in the store" in done.err
    assert inside.path.is_dir()
    assert outside.path.is_dir()


def test_a_link_in_the_store_does_not_reach_outside(
    store: Store, tracekit: Callable[..., Done], tmp_path: Path
) -> None:
    outside = make_run(Store(tmp_path / "other"))
    make_run(store)
    (store.path / outside.path.name).symlink_to(outside.path)
    assert tracekit("rm", "--yes", outside.path.name).code == 2
    assert outside.path.is_dir()


def test_without_a_terminal_nothing_is_deleted_unless_told(
    store: Store, tracekit: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(store)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    done = tracekit("rm", run.id)
    assert (done.code, done.out) == (2, "")
    assert "confirm with --yes" in done.err
    assert store.runs() == [run]


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_on_a_terminal_the_answer_decides(
    store: Store, tracekit: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, answer: str, left: int
) -> None:
    run = make_run(store)
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    done = tracekit("rm", run.id)
    assert (done.code, len(store.runs())) == (0, left)
    assert f"Delete {run.path.name}?" in done.err
