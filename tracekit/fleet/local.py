"""Processes of this machine as workers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from tracekit.errors import TracekitError
from tracekit.fleet.model import Item, Outcome, Value, Workers
from tracekit.fleet.processes import LostWorkerError, Processes
from tracekit.fleet.task import Attempt, unexpected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ATTEMPTS = 2
"""Times that a task runs before the loss of its worker is its own failure."""


class Here(Workers):
    """No workers: tasks run one behind the other in this process."""

    @property
    def count(self) -> int:
        """Always one."""
        return 1

    def map(
        self, function: Callable[[Item], Value], items: Sequence[Item], *, near: Sequence[str] = ()
    ) -> Iterator[Outcome[Value]]:
        """See `Workers.map`."""
        for index, item in enumerate(items):
            yield _outcome(index, partial(Attempt(function), item))

    def everywhere(self, function: Callable[..., object], *args: Any) -> None:
        """See `Workers.everywhere`."""
        function(*args)


class LocalWorkers(Workers):
    """Worker processes, each fed by a thread; both stay from one map to the next."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._start()

    def _start(self) -> None:
        self._processes = Processes()
        self._threads = ThreadPoolExecutor(self._count, thread_name_prefix="tracekit-task")

    @property
    def count(self) -> int:
        """So many processes at the most."""
        return self._count

    def map(
        self, function: Callable[[Item], Value], items: Sequence[Item], *, near: Sequence[str] = ()
    ) -> Iterator[Outcome[Value]]:
        """See `Workers.map`."""
        ask = partial(_asked, self._processes, Attempt(function))
        futures = [
            self._threads.submit(_outcome, index, partial(ask, item)) for index, item in enumerate(items)
        ]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:  # Ctrl-C, or nobody wants the rest
            self.stop()
            self._start()
            raise

    def everywhere(self, function: Callable[..., object], *args: Any) -> None:
        """See `Workers.everywhere`."""
        function(*args)

    def stop(self) -> None:
        """End all workers, whatever they do."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._processes.kill()
        self._processes.dismiss()

    def dismiss(self) -> None:
        """Let all workers end."""
        self._threads.shutdown(wait=True)
        self._processes.dismiss()


def _asked(processes: Processes, attempt: Attempt[Item, Value], item: Item) -> Any:
    for _ in range(ATTEMPTS - 1):
        with suppress(LostWorkerError):
            return processes.ask(attempt, item)
    return processes.ask(attempt, item)


def _outcome(index: int, attempt: Callable[[], tuple[Any, TracekitError | None]]) -> Outcome[Any]:
    try:
        value, error = attempt()
    except TracekitError as lost:
        return Outcome(index=index, error=lost)
    except Exception as failed:
        return Outcome(index=index, error=unexpected(failed))
    return Outcome(index=index, value=value, error=error)
