"""Threads that decode chunks, and processes for them: as many as this process may use cores."""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from tracekit.executors.local import Processes


Task = TypeVar("Task")
Answer = TypeVar("Answer")


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def open_pool(workers: int, *, processes: bool = True) -> Iterator[Pool]:
    """A pool of so many threads; with fewer than two, everything runs in this one.

    Args:
        workers: How many.
        processes: Whether each may start a worker process; without, what would run there runs in the thread.
    """
    if workers < 2:
        yield Pool(None, None, 0)
        return
    fleet = _processes() if processes else None
    threads = ThreadPoolExecutor(workers, thread_name_prefix="tracekit-worker")
    try:
        yield Pool(threads, fleet, workers)
    finally:
        threads.shutdown(wait=True, cancel_futures=True)
        if fleet:
            fleet.dismiss()


def _processes() -> Processes:
    from tracekit.executors.local import Processes  # which smaller traces do not need

    return Processes()


class Pool:
    """Runs tasks on threads, and for them in worker processes; in this thread when it has none."""

    def __init__(self, threads: ThreadPoolExecutor | None, fleet: Processes | None, workers: int) -> None:
        self._threads, self._fleet = threads, fleet
        self._in_flight = workers + 1

    def ordered(
        self, function: Callable[[Task], Answer], tasks: Iterable[Task]
    ) -> Iterator[tuple[Task, Answer]]:
        """Each task with its answer, in the tasks' order; only a few tasks are held at a time."""
        if self._threads is None:
            for task in tasks:
                yield task, function(task)
            return
        waiting: deque[tuple[Task, Future[Answer]]] = deque()
        for task in tasks:
            waiting.append((task, self._threads.submit(function, task)))
            if len(waiting) > self._in_flight:
                first, future = waiting.popleft()
                yield first, future.result()
        for first, future in waiting:
            yield first, future.result()

    def elsewhere(self, function: Callable[[Task], Answer], task: Task) -> Answer:
        """The answer of a function of a module, from the worker process of the thread that asks.

        A task that keeps Python itself busy runs beside others that way; one that is compiled need not.
        """
        if self._fleet is None:
            return function(task)
        answer: Answer = self._fleet.ask(function, task)
        return answer


if TYPE_CHECKING:
    Work = Callable[[], None]


class Behind:
    """Does pieces of work one after the other; who hands them over is at most `ahead` of it.

    The thread starts with the first piece. An error ends the work, and is raised where the next piece is
    handed over, or at the end.

    Example:
        >>> done = []
        >>> with Behind() as behind:
        ...     behind.do(lambda: done.append("first"))
        ...     behind.do(lambda: done.append("second"))
        >>> done
        ['first', 'second']
    """

    def __init__(self, *, ahead: int = 3) -> None:
        self._pieces: queue.Queue[Work | None] = queue.Queue(ahead)
        self._error: BaseException | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="tracekit-writer", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.stop()
        if self._thread.is_alive():
            self._pieces.put(None)
            self._thread.join()
        if not self._stopped:
            self._check()

    def do(self, work: Work) -> None:
        """Hand over the next piece."""
        self._check()
        if not self._thread.is_alive():
            self._thread.start()
        self._pieces.put(work)

    def stop(self) -> None:
        """Leave what waits undone, whatever became of the piece that is being done."""
        self._stopped = True

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while (work := self._pieces.get()) is not None:
            if self._stopped or self._error is not None:
                continue
            try:
                work()
            except BaseException as error:
                self._error = error
            del work
