"""Threads that decode chunks, and processes for them: as many as this process may use cores.

The standard library's pools import the main script again in every worker, which breaks a script that opens a
trace at its top level; these workers import nothing but what they run, and end when their input does.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Task = TypeVar("Task")
Answer = TypeVar("Answer")

BOOTSTRAP = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from tracekit.ingest.pool import serve
serve()
"""


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
    fleet = _Fleet()
    threads = ThreadPoolExecutor(workers, thread_name_prefix="tracekit-worker")
    try:
        yield Pool(threads, fleet if processes else None, workers)
    finally:
        threads.shutdown(wait=True, cancel_futures=True)
        fleet.dismiss()


class Pool:
    """Runs tasks on threads, and for them in worker processes; in this thread when it has none."""

    def __init__(self, threads: ThreadPoolExecutor | None, fleet: _Fleet | None, workers: int) -> None:
        self._threads, self._fleet = threads, fleet
        self._in_flight = 2 * workers

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
        return function(task) if self._fleet is None else self._fleet.ask(function, task)


class _Fleet:
    """Worker processes, one for each thread that asks."""

    def __init__(self) -> None:
        self._mine = threading.local()
        self._all: list[subprocess.Popen[bytes]] = []

    def ask(self, function: Callable[[Any], Any], task: Any) -> Any:
        """Have this thread's worker run a function of a module on a task."""
        worker = self._worker()
        assert worker.stdin  # noqa: S101 (a pipe)
        assert worker.stdout  # noqa: S101 (a pipe)
        try:
            pickle.dump((function, task), worker.stdin, pickle.HIGHEST_PROTOCOL)
            worker.stdin.flush()
            failed, answer = pickle.load(worker.stdout)  # noqa: S301 (our own process)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
            raise TracekitError(
                f"a worker process ended with code {worker.wait()}", hint="free memory and try again"
            ) from error
        if failed:
            raise answer
        return answer

    def _worker(self) -> subprocess.Popen[bytes]:
        if not hasattr(self._mine, "worker"):
            self._mine.worker = subprocess.Popen(  # noqa: S603 (our own code)
                [sys.executable, "-c", BOOTSTRAP, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is the parent's to handle, from the first moment on
            )
            self._all.append(self._mine.worker)
        worker: subprocess.Popen[bytes] = self._mine.worker
        return worker

    def dismiss(self) -> None:
        """Let all workers end."""
        for worker in self._all:
            worker.communicate()


def serve() -> None:
    """Run what comes on standard input until it ends, as it does when the parent is gone."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints must not reach the answers
    with suppress(EOFError, pickle.UnpicklingError, BrokenPipeError):  # the parent has closed, or is gone
        while True:
            function, task = pickle.load(sys.stdin.buffer)  # noqa: S301 (from our own parent)
            pickle.dump(_done(function, task), answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
    os._exit(0)  # buffers that nobody reads any more must not raise at exit


def _done(function: Callable[[Any], Any], task: Any) -> tuple[bool, Any]:
    """Whether the function failed, and its answer or error."""
    try:
        return False, function(task)
    except Exception as error:  # the parent raises it where the answer is awaited
        return True, error
