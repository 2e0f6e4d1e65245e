from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.runs import make_run, write_table
from tracekit.errors import RunNotFoundError, UnusableInputError
from tracekit.runs import revisions
from tracekit.runs.store import Store, locate
from tracekit.storage import locks

if TYPE_CHECKING:
    from tests.conftest import Git


def temporary(store: Store) -> list[Path]:
    return list(store.path.glob(".tmp-*"))


def test_commit_moves_a_whole_run_into_the_store(store: Store) -> None:
    run = make_run(store)
    assert store.runs() == [run]
    assert run.rows("steps") == 2
    assert run.meta.tables["steps"].bytes == (run.path / "steps.parquet").stat().st_size
    assert temporary(store) == []


def test_a_draft_that_raises_leaves_nothing(store: Store) -> None:
    def fail() -> None:
        with store.draft() as draft:
            write_table(draft.path, "steps", [])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (store.runs(), temporary(store)) == ([], [])


def test_what_a_dead_process_left_is_swept_and_a_living_ones_draft_is_not(store: Store) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    stale = store.path / f".tmp-{dead.pid}-0a"
    living = store.path / f".tmp-{os.getppid()}-0b"
    for directory in (stale, living):
        directory.mkdir(parents=True)
    make_run(store)
    assert temporary(store) == [living]


def test_a_draft_is_held_so_that_who_does_not_know_its_process_leaves_it(store: Store) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with store.draft() as draft:  # as one of another container, whose process ids mean nothing here
        assert not locks.is_abandoned(draft.path, f"{dead.pid}.1-0a")


def test_a_process_killed_while_writing_leaves_no_run(store: Store) -> None:
    script = f"""
        import sys
        from pathlib import Path
        from tests.runs import step_rows, write_table
        from tracekit.runs.store import Store
        with Store(Path({str(store.path)!r})).draft() as draft:
            write_table(draft.path, "steps", step_rows(0))
            print("written", flush=True)
            sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
        text=True,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        writer.send_signal(signal.SIGKILL)
    assert store.runs() == []
    assert len(temporary(store)) == 1
    run = make_run(store)
    assert (store.runs(), temporary(store)) == ([run], [])


def test_a_store_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UnusableInputError, match=r"cannot be written.*--store"),
        Store(tmp_path / "file").draft(),
    ):
        pass


def test_runs_of_one_second_are_in_the_order_of_writing(store: Store) -> None:
    written = [make_run(store, name=name) for name in ("b", "c", "a")]
    assert store.runs() == written


def test_references_name_runs(store: Store) -> None:
    first, second, third = (make_run(store, after_s=second, label="mine") for second in range(3))
    unlabelled = make_run(store, after_s=3)
    references = {
        first.id: first,
        second.id[:16]: second,
        "latest": unlabelled,
        "latest~2": second,
        "mine": third,
        str(first.path): first,
    }
    assert {reference: store.resolve(reference) for reference in references} == references


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("2026", "matches 2 runs"),
        ("latest~2", "has 2 runs"),
        ("nothing", "no run, label or file"),
        ("", "reference is empty"),
    ],
)
def test_a_reference_that_names_no_single_run_is_refused(store: Store, reference: str, message: str) -> None:
    for second in range(2):
        make_run(store, after_s=second)
    with pytest.raises(RunNotFoundError, match=message) as caught:
        store.resolve(reference)
    assert caught.value.hint


def test_a_git_revision_names_the_newest_run_recorded_there(store: Store, git: Git) -> None:
    make_run(store, git=revisions.state())
    newest = make_run(store, after_s=1, git=revisions.state())
    git("commit", "--quiet", "--allow-empty", "--message=second")
    assert store.resolve("git:HEAD~1") == newest
    with pytest.raises(RunNotFoundError, match="no runs at HEAD"):
        store.resolve("git:HEAD")
    with pytest.raises(RunNotFoundError, match="no git revision 'gone'"):
        store.resolve("git:gone")


def test_a_removed_run_is_gone(store: Store) -> None:
    kept, gone = make_run(store), make_run(store, after_s=1)
    store.remove(gone)
    assert store.runs() == [kept]
    assert not gone.path.exists()
    with pytest.raises(UnusableInputError, match="cannot be written"):
        store.remove(gone)


def test_a_removal_that_ends_half_way_leaves_no_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(_: Path) -> None:
        raise KeyboardInterrupt

    run = make_run(store)
    monkeypatch.setattr(shutil, "rmtree", end)
    with pytest.raises(KeyboardInterrupt):
        store.remove(run)
    assert store.runs() == []


def test_a_run_of_another_store_is_not_removed(store: Store, tmp_path: Path) -> None:
    outside = make_run(Store(tmp_path / "other"))
    with pytest.raises(UnusableInputError, match="is not in the store"):
        store.remove(outside)
    assert outside.path.exists()


def test_the_store_lies_where_it_is_named_else_in_the_repository(
    git: Git, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    top = Path(git("rev-parse", "--show-toplevel"))
    Path("deep").mkdir()
    monkeypatch.chdir("deep")
    assert locate() == top / ".tracekit"
    monkeypatch.setenv("TRACEKIT_STORE", str(tmp_path / "named"))
    assert locate() == tmp_path / "named"
    assert locate("option") == Path("option")


def test_a_run_that_cannot_be_read_blocks_no_other(store: Store, git: Git) -> None:
    good = make_run(store, label="mine", git=revisions.state())
    for second, text in ((1, "{"), (2, '{"schema_version": 0}'), (3, '{"schema_version": "\xff"}')):
        (make_run(store, after_s=second, label="mine").path / "run.json").write_text(text)
    for reference in ("mine", good.id[:16], "git:HEAD"):
        assert store.resolve(reference) == good
    assert [run.path.name for run in store.readable()] == [good.id]


def test_what_the_store_holds_wins_over_a_path_without_a_separator(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, other = make_run(store, label="mine"), make_run(Store(tmp_path / "other"))
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "latest", ours.id[:16], "elsewhere"):
        shutil.copytree(other.path, name)
    for reference in ("mine", "latest", ours.id[:16]):
        assert store.resolve(reference) == ours
        assert store.resolve(f"./{reference}").path == Path(reference)
    assert store.resolve("elsewhere").path == Path("elsewhere")


@pytest.mark.parametrize("reference", ["x" * 5_000, "x/" * 5_000, "latest~" + "9" * 5_000])
def test_a_reference_of_any_length_gets_one_line(store: Store, reference: str) -> None:
    make_run(store)
    with pytest.raises(RunNotFoundError, match=r"no run, label or file") as caught:
        store.resolve(reference)
    assert len(caught.value.message) < 300


def test_a_full_disk_at_the_end_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr("tracekit.runs.store.run_meta.write", full)
    with pytest.raises(UnusableInputError, match="cannot be written: No space left"):
        make_run(store)
    assert (store.runs(), temporary(store)) == ([], [])
