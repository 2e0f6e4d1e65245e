"""Thread and process pool for decoding, and a background thread for writing."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from tracekit.executors.local import Processes


Task = TypeVar("Task")
Answer = TypeVar("Answer")


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def open_pool(workers: int, *, processes: bool = True) -> Iterator[Pool]:
    """Open a pool of threads; with fewer than two, tasks run in the calling thread.

    Args:
        workers: Number of threads.
        processes: Whether each thread may start a worker process; otherwise the thread runs its tasks.
    """
    if workers < 2:
        yield Pool(None, None, 0)
        return
    executor = None
    if processes:
        from tracekit.executors.local import Processes  # smaller traces do not need it

        executor = Processes()
    threads = ThreadPoolExecutor(workers, thread_name_prefix="tracekit-worker")
    try:
        yield Pool(threads, executor, workers)
    finally:
        threads.shutdown(wait=True, cancel_futures=True)
        if executor:
            executor.dismiss()


class Pool:
    """Runs tasks on threads, which may use a worker process each."""

    def __init__(self, threads: ThreadPoolExecutor | None, executor: Processes | None, workers: int) -> None:
        self._threads, self._executor = threads, executor
        self._in_flight = workers + 1

    def map_in_order(
        self, function: Callable[[Task], Answer], tasks: Iterable[Task]
    ) -> Iterator[tuple[Task, Answer]]:
        """Yield each task with its result, in order; only a few tasks are in memory at a time."""
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

    def call_in_process(self, function: Callable[[Task], Answer], task: Task) -> Answer:
        """Call a module's function in the worker process of the calling thread, and return its result.

        For tasks that hold Python's global interpreter lock; compiled ones run in the thread.
        """
        if self._executor is None:
            return function(task)
        answer: Answer = self._executor.call(function, task)
        return answer


class BackgroundThread:
    """Background thread that runs functions in order, with a queue of at most three of them.

    The thread starts with the first function. An error stops it, and is raised by the next call of `do`, or
    at exit.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tracekit-writer")
        self._waiting: deque[Future[None]] = deque()
        self._stopped = self._failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.stop()
        self._thread.shutdown(wait=True)
        while self._waiting and not self._stopped:
            self._waiting.popleft().result()

    def do(self, work: Callable[[], None]) -> None:
        """Queue a function."""
        while len(self._waiting) >= 3 or (self._waiting and self._waiting[0].done()):
            self._waiting.popleft().result()
        self._waiting.append(self._thread.submit(self._run, work))

    def stop(self) -> None:
        """Drop the queue; wait for the running function, and ignore its error."""
        self._stopped = True

    def _run(self, work: Callable[[], None]) -> None:
        if self._stopped or self._failed:
            return
        try:
            work()
        except BaseException:
            self._failed = True
            raise
