"""Tasks on processes of this machine."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.unit.executors import deeds
from tracekit.errors import TracekitError, UnusableInputError
from tracekit.executors import workers
from tracekit.executors.local import LostWorkerError, Processes, call_in_fork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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


@pytest.fixture
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})


@pytest.fixture
def _no_new_child_is_left() -> Iterator[None]:
    """Also no zombie. Earlier tests may have left some, such as multiprocessing's resource tracker."""
    before = psutil.Process().children()
    yield
    assert set(psutil.Process().children()) <= set(before)


@pytest.mark.usefixtures("_two_cores")
def test_a_fork_calls_a_function_while_this_process_does_something_else() -> None:
    done: list[int] = []
    result = call_in_fork(lambda: (os.getpid(), list(done)), lambda: done.append(os.getpid()))
    assert result is not None
    assert result[0] != os.getpid()
    assert (result[1], done) == ([], [os.getpid()])


@pytest.mark.usefixtures("_two_cores")
@pytest.mark.parametrize(
    "fail",
    [
        lambda: deeds.doubled_but_three(3),
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        lambda: lambda: None,  # cannot be pickled
    ],
)
def test_a_fork_that_fails_has_no_result(
    fail: Callable[[], object], capfd: pytest.CaptureFixture[str]
) -> None:
    assert call_in_fork(fail, lambda: None) is None
    assert capfd.readouterr() == ("", "")


def test_without_a_second_core_or_process_nothing_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr("os.fork", refuse)
    for cores in ({0}, {0, 1}):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: cores)
        assert call_in_fork(lambda: 1, lambda: pytest.fail("it was called")) is None


@pytest.mark.usefixtures("_two_cores", "_no_new_child_is_left")
def test_an_interrupt_ends_the_fork(tmp_path: Path) -> None:
    def interrupt() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    def take_long() -> None:
        (tmp_path / "begun").touch()
        time.sleep(600)

    with pytest.raises(KeyboardInterrupt):
        call_in_fork(take_long, interrupt)


_SENT: list[signal.Signals] = []


def _send() -> None:
    if _SENT:
        os.kill(os.getpid(), _SENT.pop())
        time.sleep(0.1)  # the main thread handles it before the fork has ended


os.register_at_fork(after_in_parent=_send)


@pytest.mark.usefixtures("_two_cores", "_no_new_child_is_left")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_the_moment_of_the_fork_is_not_lost(number: signal.Signals) -> None:
    def end(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, end)
    _SENT.append(number)
    try:
        with pytest.raises(KeyboardInterrupt):
            call_in_fork(lambda: time.sleep(600), lambda: pytest.fail("it was interrupted before"))
    finally:
        signal.signal(number, before)
