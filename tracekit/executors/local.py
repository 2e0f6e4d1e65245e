"""Executors on this machine: in this process, or in worker processes.

The standard library's pools import the main script in every worker, which breaks scripts that open a trace at
their top level. These workers import only the functions that they run, and end when their input is closed.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tracekit.errors import TracekitError, hide_warnings
from tracekit.executors.model import Item, Outcome, Value, Workers, attempt, unexpected_error

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

ATTEMPTS = 2
"""Attempts of a task until the loss of its worker is a failure."""
BOOTSTRAP = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from tracekit.executors.local import serve
serve()
"""


class LostWorkerError(TracekitError):
    """A worker process ended during its task."""


class Processes:
    """Worker processes, one per calling thread; a lost one is replaced at the next call."""

    def __init__(self) -> None:
        self._of_thread = threading.local()
        self._all: list[subprocess.Popen[bytes]] = []
        self._starting = threading.Lock()
        self._killed = False

    def call(self, function: Callable[[Any], Any], task: Any) -> Any:
        """Run a function of a module in this thread's worker.

        Raises:
            LostWorkerError: The worker ended.
        """
        worker: subprocess.Popen[bytes] = getattr(self._of_thread, "worker", None) or self._start()
        assert worker.stdin  # noqa: S101 (a pipe)
        assert worker.stdout  # noqa: S101 (a pipe)
        try:
            pickle.dump((function, task), worker.stdin, pickle.HIGHEST_PROTOCOL)
            worker.stdin.flush()
            has_failed, answer = pickle.load(worker.stdout)  # noqa: S301 (our own process)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
            self._of_thread.worker = None
            message = f"a worker process ended with code {worker.wait()}"
            raise LostWorkerError(message, hint="free memory and retry") from error
        if has_failed:
            raise answer
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        with self._starting:
            if self._killed:
                raise LostWorkerError("the worker processes were stopped")
            worker = subprocess.Popen(  # noqa: S603 (our own code)
                [sys.executable, "-c", BOOTSTRAP, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # only the parent handles Ctrl-C
            )
            self._all.append(worker)
        self._of_thread.worker = worker
        return worker

    def dismiss(self) -> None:
        """Close the input of all workers, so that they end."""
        for worker in self._all:
            with suppress(BrokenPipeError):  # it has already ended
                worker.communicate()

    def kill(self) -> None:
        """Kill all workers and start no others."""
        with self._starting:
            self._killed = True
            for worker in self._all:
                worker.kill()


def serve() -> None:
    """Run the tasks from standard input until it is closed, also by the end of the parent."""
    hide_warnings()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with the results
    with suppress(EOFError, pickle.UnpicklingError, BrokenPipeError):  # the parent has closed it or ended
        while True:
            function, task = pickle.load(sys.stdin.buffer)  # noqa: S301 (from our own parent)
            pickle.dump(_call(function, task), answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
    os._exit(0)  # flushing unread buffers must not raise at exit


def _call(function: Callable[[Any], Any], task: Any) -> tuple[bool, Any]:
    """Return whether the function failed, and its result or error."""
    try:
        return False, function(task)
    except Exception as error:  # the parent raises it
        return True, error


class InProcess(Workers):
    """Executor without workers: runs tasks in order in this process."""

    @property
    def count(self) -> int:
        """One."""
        return 1

    def map(
        self, function: Callable[[Item], Value], items: Sequence[Item], *, near: Sequence[str] = ()
    ) -> Iterator[Outcome[Value]]:
        """See `Workers.map`."""
        for index, item in enumerate(items):
            yield _outcome(index, partial(attempt, function, item))


class LocalWorkers(Workers):
    """Executor on worker processes, each with a thread; an error in its context kills them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._start()

    def _start(self) -> None:
        self._processes = Processes()
        self._threads = ThreadPoolExecutor(self._count, thread_name_prefix="tracekit-task")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._stop()
        else:
            self._threads.shutdown(wait=True)
            self._processes.dismiss()

    @property
    def count(self) -> int:
        """Limit of processes."""
        return self._count

    def map(
        self, function: Callable[[Item], Value], items: Sequence[Item], *, near: Sequence[str] = ()
    ) -> Iterator[Outcome[Value]]:
        """See `Workers.map`."""
        call = partial(_call_with_retries, self._processes, partial(attempt, function))
        futures = [
            self._threads.submit(_outcome, index, partial(call, item)) for index, item in enumerate(items)
        ]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:  # Ctrl-C, or the iterator was closed
            self._stop()
            self._start()
            raise

    def _stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._processes.kill()
        self._processes.dismiss()


def _call_with_retries(processes: Processes, function: Callable[[Item], Any], item: Item) -> Any:
    for _ in range(ATTEMPTS - 1):
        with suppress(LostWorkerError):
            return processes.call(function, item)
    return processes.call(function, item)


def _outcome(index: int, run: Callable[[], tuple[Any, TracekitError | None]]) -> Outcome[Any]:
    try:
        value, error = run()
    except TracekitError as lost:
        return Outcome(index=index, error=lost)
    except Exception as failed:
        return Outcome(index=index, error=unexpected_error(failed))
    return Outcome(index=index, value=value, error=error)


def call_in_fork(function: Callable[[], Value], meanwhile: Callable[[], object]) -> Value | None:
    """Call a function in a fork of this process, which does something else meanwhile.

    Args:
        function: The function. Its result is picklable, and not None.
        meanwhile: What this process does.

    Returns:
        What the function returns; None if it failed, or where a fork is not possible or saves no time.
    """
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2:
        return None
    from multiprocessing import get_context

    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_call_and_send, args=(function, sender))
    try:
        with suppress(OSError):  # no further process is allowed
            start_process(process)
        sender.close()
        if process.pid is None:
            return None
        meanwhile()
        result: Value = receiver.recv()
    except EOFError:  # it failed
        return None
    except BaseException:  # Ctrl-C, for example
        if process.pid is not None:
            process.terminate()
        raise
    finally:
        receiver.close()
        if process.pid is not None:
            process.join()
    return result


def start_process(process: BaseProcess) -> None:
    """Start a process, without losing a signal that arrives at that moment; a fork has SIGINT blocked.

    Python calls handlers of signals in the main thread. What they raise would be dropped in a function that
    Python calls after a fork, and would leave behind a process that nobody knows yet. So another thread
    starts the process, and what is raised while this one waits is raised afterwards.

    Raises:
        OSError: No further process or thread is allowed.
    """
    errors: list[Exception] = []
    ended: list[bool] = []
    waiting = allocate_lock()  # a handler that raises inside of an Event would leave its lock held
    waiting.acquire()

    def start() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a fork inherits it
        try:
            process.start()
        except Exception as error:
            errors.append(error)
        finally:
            ended.append(True)
            waiting.release()

    try:
        start_new_thread(start, ())
    except RuntimeError as error:
        raise OSError("no further thread is allowed") from error
    interrupt: BaseException | None = None
    while not ended:
        try:
            waiting.acquire()
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
    if errors:
        raise errors[0]


def _call_and_send(function: Callable[[], object], sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process handles Ctrl-C
    with suppress(Exception):
        sender.send(function())
