"""Processes that decode chunks: as many as this process may use cores, none for a small trace."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


class Pool:
    """Runs tasks on worker processes, or in this one when it has none, and keeps their order."""

    def __init__(self, executor: ProcessPoolExecutor | None, workers: int) -> None:
        self._executor = executor
        self._in_flight = 2 * workers

    def ordered(
        self, function: Callable[[Task], Answer], tasks: Iterable[Task]
    ) -> Iterator[tuple[Task, Answer]]:
        """Each task with its answer, in the tasks' order; only a few tasks are held at a time."""
        if self._executor is None:
            for task in tasks:
                yield task, function(task)
            return
        waiting: deque[tuple[Task, Future[Answer]]] = deque()
        for task in tasks:
            waiting.append((task, self._executor.submit(function, task)))
            if len(waiting) > self._in_flight:
                first, future = waiting.popleft()
                yield first, future.result()
        for first, future in waiting:
            yield first, future.result()


@contextmanager
def open_pool(workers: int) -> Iterator[Pool]:
    """A pool of so many processes; with fewer than two, everything runs in this process."""
    if workers < 2:
        yield Pool(None, 0)
        return
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_prepare_worker)
    try:
        yield Pool(executor, workers)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _prepare_worker() -> None:
    """Leave Ctrl-C to the parent, and end with it: nobody else would ever read the answers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()


def _exit_after(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)
