"""Tasks on processes of this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.unit.executors import deeds
from tracekit.errors import TracekitError, UnusableInputError
from tracekit.executors import workers
from tracekit.executors.local import LostWorkerError, Processes

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("count", [0, 1, 2])
def test_each_item_has_one_outcome(count: int) -> None:
    with workers(count=count) as executor:
        outcomes = list(executor.map(deeds.double, range(20)))
    assert sorted((outcome.index, outcome.get()) for outcome in outcomes) == [(n, 2 * n) for n in range(20)]


@pytest.mark.parametrize("count", [0, 2])
def test_a_failing_task_takes_no_other_with_it(count: int) -> None:
    with workers(count=count) as executor:
        outcomes = sorted(executor.map(deeds.doubled_but_three, range(6)), key=lambda outcome: outcome.index)
    assert [outcome.value for outcome in outcomes] == [0, 2, 4, None, 8, 10]
    with pytest.raises(UnusableInputError, match=r"3 is not to be doubled \(take another one\)"):
        outcomes[3].get()


@pytest.mark.parametrize("count", [0, 1])
def test_an_unforeseen_error_is_one_line_with_its_traceback_noted(count: int) -> None:
    with workers(count=count) as executor:
        first, second = executor.map(deeds.doubled_but_not_text, [1, "a"])
    assert first.value == 2
    assert isinstance(second.error, TracekitError)
    assert second.error.message == "KeyError: 'a'"
    assert "doubled_but_not_text" in second.error.__notes__[0]


def test_a_task_that_always_ends_its_worker_fails_alone() -> None:
    with workers(count=2) as executor:
        outcomes = sorted(executor.map(deeds.fatal_three, range(8)), key=lambda outcome: outcome.index)
    assert [outcome.value for outcome in outcomes] == [0, 2, 4, None, 8, 10, 12, 14]
    assert isinstance(outcomes[3].error, LostWorkerError)


def test_a_task_whose_worker_is_lost_runs_again(tmp_path: Path) -> None:
    with workers(count=1) as executor:
        (outcome,) = executor.map(deeds.fatal_once, [(4, str(tmp_path))])
    assert outcome.get() == 8


def test_signals_of_the_terminal_reach_the_parent_alone() -> None:
    with workers(count=1) as executor:
        (outcome,) = executor.map(os.getpgid, [0])
    assert outcome.get() != os.getpgid(0)


def test_no_worker_starts_after_all_were_killed() -> None:
    processes = Processes()
    assert processes.call(deeds.double, 2) == 4
    processes.kill()
    with pytest.raises(LostWorkerError):
        processes.call(deeds.double, 2)
    with pytest.raises(LostWorkerError, match="were stopped"):
        processes.call(deeds.double, 2)
    processes.dismiss()


def test_processes_stay_from_one_map_to_the_next() -> None:
    with workers(count=1) as executor:
        first = {outcome.get() for outcome in executor.map(deeds.pid, range(3))}
        assert first == {outcome.get() for outcome in executor.map(deeds.pid, range(3))}
    assert os.getpid() not in first


def test_who_wants_no_more_outcomes_ends_the_tasks(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with workers(count=1) as executor:
        outcomes = executor.map(deeds.pid, [1])
        assert next(outcomes).get()
        waiting = executor.map(deeds.wait_for, [str(tmp_path / "other"), str(pipe)])
        assert next(waiting).index == 0
        waiting.close()  # type: ignore[attr-defined]  # the other task would wait for ever
        assert [outcome.get() for outcome in executor.map(deeds.double, [5])] == [10]
