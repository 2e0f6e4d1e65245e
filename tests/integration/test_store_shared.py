"""Several processes work in one store: no run is lost, none is listed that is not whole, and nobody fails."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from samples.simulator import kineto
from samples.simulator.examples import training
from tests.runs import make_run
from tracekit import analysis
from tracekit.errors import RunNotFoundError, TracekitError, UnusableInputError
from tracekit.ingest.importer import import_traces
from tracekit.runs.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.runs.store import Store

ROOT = Path(__file__).parents[2]
TIMES = 4
COMMANDS = """
import sys
from tracekit.cli.main import run
print("ready", flush=True)
sys.stdin.readline()
codes = [run(sys.argv[2:]) for _ in range(int(sys.argv[1]))]
sys.exit(max(codes))
"""


def together(*commands: Sequence[str], times: int = TIMES) -> list[str]:
    """Run commands in processes of their own, each so often, beginning at once; what each said on stderr."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    words = [sys.executable, "-c", COMMANDS, str(times)]
    processes = [subprocess.Popen([*words, *one], cwd=ROOT, text=True, **pipes) for one in commands]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate(timeout=900)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), said
    return said


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return kineto.write(training(), tmp_path / "trace.json")


def test_imports_and_gc_at_once(
    store: Store, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    where = ["--store", str(store.path)]
    importing = ["import", str(trace), *where]
    said = together(importing, importing, ["gc", *where])
    assert said[:2] == ["", ""]
    assert len(store.runs()) == 2 * TIMES
    assert all(verify(run).is_whole for run in store.runs())
    assert sorted(path.name for path in store.path.iterdir() if path.name.startswith(".")) == [".gitignore"]


@pytest.mark.slow
def test_fifty_imports_with_gc_rm_and_verify_at_once(
    store: Store, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    where = ["--store", str(store.path)]
    doomed = [make_run(store, after_s=second).id for second in range(5)]
    importing = ["import", str(trace), *where]
    others = [["gc", *where], ["verify", "--quick", *where], ["runs", *where]] * 4
    together(*[importing] * 50, *others, *(["rm", name, "--yes", *where] for name in doomed), times=1)
    kept = store.runs()
    assert len(kept) == len({run.path for run in kept} - {store.path / name for name in doomed}) == 50
    assert all(verify(run).is_whole for run in kept)
    assert {path.name for path in store.path.iterdir() if path.name.startswith(".")} == {".gitignore"}


@pytest.mark.slow
def test_analyses_of_one_run_at_once_are_kept_once(store: Store, trace: Path) -> None:
    import_traces(store, [trace], label="it")
    asking = ["analyze", "it", "steps", "--store", str(store.path)]
    together(asking, asking, ["verify", "--store", str(store.path)], times=2)
    kept = store.path / ".results" / store.resolve("it").path.name
    assert {path.suffix for path in kept.iterdir()} == {".lock", ".zip"}
    assert (kept / "steps.zip").is_file()


def test_runs_come_and_go_while_others_look(store: Store) -> None:
    over = threading.Event()
    failed: list[BaseException] = []

    def look() -> None:
        while not over.is_set():
            _told(failed, lambda: [run.meta for run in store.readable()])
            _told(failed, lambda: analysis.analyze(store.resolve("latest"), "steps"))
            _told(failed, lambda: [verify(run) for run in store.runs()])

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for one in lookers:
        one.start()
    for second in range(25):
        store.remove(make_run(store, after_s=second))
    over.set()
    for one in lookers:
        one.join()
    assert failed == []
    assert store.runs() == []


def _told(failed: list[BaseException], ask: Callable[[], object]) -> None:
    """What is not expected of a run that may be gone at any moment."""
    try:
        ask()
    except TracekitError as error:
        if "\n" in str(error):
            failed.append(error)
    except BaseException as error:
        failed.append(error)


def test_a_run_that_is_deleted_while_it_is_read_is_one_line(store: Store) -> None:
    run = make_run(store)
    assert run.rows("steps") == 2
    store.remove(run)
    with pytest.raises(UnusableInputError, match="cannot be read") as caught:
        run.arrow("steps")
    assert "\n" not in str(caught.value)
    with pytest.raises(RunNotFoundError):
        store.resolve(run.path.name)


def test_a_run_is_deleted_by_one_of_two(store: Store) -> None:
    run = make_run(store)
    store.remove(run)
    with pytest.raises(UnusableInputError):
        store.remove(run)
    assert list(store.path.glob(".tmp-*")) == []


def test_two_stores_are_prepared_at_once(store: Store) -> None:
    barrier, failed = threading.Barrier(4), list[BaseException]()

    def begin() -> None:
        barrier.wait()
        _told(failed, lambda: make_run(store))

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failed == []
    assert len(store.runs()) == 4
