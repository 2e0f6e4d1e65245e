"""The output of a process whose recording failed is kept, and the error names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fake_cuda import ADVICE, ILLEGAL
from tracekit import registry
from tracekit.errors import CollectionError
from tracekit.experiments import sweep
from tracekit.experiments.sweep_model import Outcome
from tracekit.recording import logs as recording_logs
from tracekit.recording.collect import collect, collect_program
from tracekit.recording.collector import Program, Request
from tracekit.recording.logs import FOLDER, LOG, MAX_LOGS

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.store import Store

pytestmark = pytest.mark.usefixtures("outside_repositories")

OUTPUT = f"Traceback (most recent call last):\n  ...\nRuntimeError: {ILLEGAL}{ADVICE}"


class Failing:
    """A collector whose process prints something and fails."""

    output = OUTPUT
    error: Exception = CollectionError("w failed", hint="try other options")

    def record(self, _: Any, directory: Path, **__: Any) -> Any:
        (directory / LOG).write_text(self.output)
        raise self.error

    record_program = record


@pytest.fixture(autouse=True)
def failing(monkeypatch: pytest.MonkeyPatch) -> type[Failing]:
    load = registry.load
    monkeypatch.setattr(
        registry, "load", lambda group, name: Failing if group == registry.COLLECTORS else load(group, name)
    )
    monkeypatch.setattr(Failing, "error", CollectionError("w failed", hint="try other options"))
    return Failing


def logs(store: Store) -> list[Path]:
    return sorted((store.path / FOLDER).iterdir())


def test_the_log_of_a_workload_is_kept_and_named(store: Store) -> None:
    with pytest.raises(CollectionError) as raised:
        collect(store, Request(workload="mnist_cnn"))
    [log] = logs(store)
    assert raised.value.log == log
    assert raised.value.hint == f"try other options; log: {log}"
    assert log.read_text() == OUTPUT
    assert "mnist_cnn" in log.name
    assert sorted(path.name for path in store.path.iterdir()) == [".gitignore", FOLDER]


def test_the_log_of_a_program_is_kept(store: Store) -> None:
    with pytest.raises(CollectionError):
        collect_program(store, Program(command=("python", "train.py")))
    assert "train" in logs(store)[0].name


def test_a_fault_of_the_collector_names_the_log_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Failing, "error", KeyError("step_ns"))
    with pytest.raises(KeyError) as raised:
        collect(store, Request(workload="mnist_cnn"))
    assert raised.value.__notes__ == [f"log: {logs(store)[0]}"]


def test_a_row_of_a_sweep_names_the_log(store: Store) -> None:
    record = sweep.record_outcome("k", 0, lambda: collect(store, Request(workload="mnist_cnn")))
    assert (record.outcome, record.reason) == (Outcome.FAILED, f"w failed; log: {logs(store)[0]}")


@pytest.mark.parametrize("output", ["", "\n"])
def test_an_empty_log_is_not_kept(output: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Failing, "output", output)
    with pytest.raises(CollectionError) as raised:
        collect(store, Request(workload="mnist_cnn"))
    assert (raised.value.hint, raised.value.log) == ("try other options", None)
    monkeypatch.setattr(Failing, "error", KeyError("step_ns"))
    with pytest.raises(KeyError) as fault:
        collect(store, Request(workload="mnist_cnn"))
    assert not hasattr(fault.value, "__notes__")


def test_only_the_newest_logs_and_the_end_of_long_ones_are_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_logs, "MAX_LOG_BYTES", 10)
    folder = store.folder(FOLDER)
    for number in range(MAX_LOGS + 5):
        (folder / f"2026010{number // 10}T00000{number % 10}Z-old-000000.txt").touch()
    with pytest.raises(CollectionError) as raised:
        collect(store, Request(workload="mnist_cnn"))
    assert len(logs(store)) == MAX_LOGS
    assert raised.value.log is not None
    assert raised.value.log.read_text() == OUTPUT[-10:]


def test_a_store_that_cannot_be_written_costs_only_the_log(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.path.mkdir()
    (store.path / FOLDER).write_text("")
    with pytest.raises(CollectionError, match="w failed") as raised:
        collect(store, Request(workload="mnist_cnn"))
    assert raised.value.log is None
