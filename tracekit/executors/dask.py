"""Executor on the workers of a Dask cluster.

Dask schedules: it runs the tasks of a lost worker again on another one, and retries those whose machine
failed. It blames every task that a lost worker had been given, not only the one that ended it. So a task that
Dask gives up runs once more, after all others and alone: only if its workers end then too, it fails.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import platform
import secrets
import shutil
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import urlsplit

from distributed import Client, KilledWorker, Worker, get_worker
from distributed import Future as DaskFuture

from tracekit.errors import TracekitError, UnusableInputError
from tracekit.executors.model import Item, Outcome, Value, Workers, attempt, scratch_at, unexpected_error
from tracekit.storage import locks

WORKERLESS_S = 60.0
"""Seconds without workers until the remaining tasks fail; a nanny restarts a worker sooner."""
UNREACHABLE_S = 15.0
"""Seconds without a connection to the scheduler until all ends; the client tries to connect meanwhile."""
SILENT_S = 60.0
"""Seconds without an answer on an open connection until all ends; a busy scheduler answers late."""
ANSWER_S = 5.0
"""Timeout in seconds of a question to the scheduler."""
_POLL_S = 0.25  # seconds between two queries of the workers
RETRIES = 1
"""Further attempts of a task whose machine fails: no space, no memory, a missing file system."""
NANNY_S = 60.0
"""Timeout in seconds of a worker's question to its nanny."""


class DaskWorkers(Workers):
    """Executor on the workers of a Dask cluster."""

    def __init__(self, client: Client, address: str, *, timeout_s: float = WORKERLESS_S) -> None:
        """Use a connected client.

        Args:
            client: The client.
            address: Address of the scheduler, for errors.
            timeout_s: See `WORKERLESS_S`.
        """
        self._client, self._address, self._timeout_s = client, address, timeout_s
        self._tasks: set[_Tasks] = set()
        self._kept: list[DaskFuture] = []  # results whose folders are needed until the connection ends

    @property
    def count(self) -> int:
        """Number of threads of the current workers."""
        return sum((self._threads() or {}).values())

    def _threads(self) -> dict[str, int] | None:
        """Return the threads of the current workers, by address; None if unknown."""
        if self._client.status != "running":
            return None
        try:
            threads: dict[str, int] = self._client.nthreads(callback_timeout=ANSWER_S)
        except (OSError, TimeoutError):  # the client has not noticed yet that the scheduler is gone
            return None
        return threads

    def map(
        self, function: Callable[[Item], Value], items: Sequence[Item], *, near: Sequence[str] = ()
    ) -> Iterator[Outcome[Value]]:
        """See `Workers.map`."""
        tasks = _Tasks(self._client, function, items, near)
        self._tasks.add(tasks)
        suspects: list[int] = []
        try:
            yield from self._outcomes(tasks, range(len(items)), suspects)
            for index in sorted(suspects):
                yield from self._outcomes(tasks, [index], None)
        finally:
            tasks.cancel()
            self._tasks.discard(tasks)

    def _outcomes(
        self, tasks: _Tasks, indices: Sequence[int], suspects: list[int] | None
    ) -> Iterator[Outcome[Any]]:
        """Run tasks and yield their outcomes, but `suspects`, if given, receives those that Dask gave up."""
        for index in indices:
            tasks.submit(index)
        dropped: list[int] = []  # submitted again if the client finds the scheduler again
        answered = staffed = polled = time.monotonic()
        silence_s = {"closed": 0.0, "running": SILENT_S}  # for how long the scheduler may be silent
        while tasks.running or dropped:
            results = tasks.wait(_POLL_S)
            for result in results:
                yield from self._outcome(tasks, result, suspects, dropped)
            now = time.monotonic()
            if now - polled < _POLL_S:
                continue
            threads, polled = self._threads(), now
            if threads is not None:
                answered = now
                while dropped:
                    tasks.submit(dropped.pop())
            elif now - answered > silence_s.get(self._client.status, UNREACHABLE_S):
                raise self._nobody()
            staffed = now if threads or results else staffed
            if now - staffed > self._timeout_s:
                failed = self._nobody()
                remaining = sorted([*dropped, *(index for index, _ in tasks.running.values())])
                tasks.cancel()
                yield from (Outcome(index=index, error=failed) for index in remaining)
                return

    def _outcome(
        self, tasks: _Tasks, result: Future[Any], suspects: list[int] | None, dropped: list[int]
    ) -> Iterator[Outcome[Any]]:
        index, future = tasks.running.pop(result)
        error = _error(result)
        if error is None:
            value, failure, host, has_folders = result.result()
            if has_folders:
                self._kept.append(future)
            yield Outcome(index=index, value=value, error=failure, host=host)
        elif suspects is not None and isinstance(error, KilledWorker):
            suspects.append(index)
        elif isinstance(error, CancelledError) and self._client.status != "running":
            dropped.append(index)
        else:
            yield Outcome(index=index, error=_explain(error))

    def _nobody(self) -> TracekitError:
        if self._threads() is None:
            hint = "check its log, start it and its workers again, and repeat the command"
            return TracekitError(f"the scheduler {self._address} is no longer reachable", hint=hint)
        message = f"the scheduler {self._address} has no workers"
        return TracekitError(message, hint="start workers with `dask worker ADDRESS`")

    def everywhere(self, function: Callable[..., object], *args: Any) -> None:
        """See `Workers.everywhere`."""
        hosts = {_host_of(address): address for address in self._threads() or ()}
        if hosts:
            self._client.run(visit, function, args, workers=list(hosts.values()), on_error="ignore")

    def cancel(self) -> None:
        """Cancel the remaining tasks; those that run finish, and their results are ignored."""
        for tasks in self._tasks:
            tasks.cancel()


class _Tasks:
    """The tasks of one `map`.

    Attributes:
        running: Index and Dask's future of each submitted task, by its result to come.
    """

    def __init__(
        self, client: Client, function: Callable[[Any], Any], items: Sequence[Any], near: Sequence[str]
    ) -> None:
        """Create without submitting tasks; see `Workers.map` for the arguments."""
        self._client, self._function, self._items, self._near = client, function, items, near
        self.running: dict[Future[Any], tuple[int, DaskFuture]] = {}
        self._done: SimpleQueue[Future[Any]] = SimpleQueue()

    def submit(self, index: int) -> None:
        """Submit a task, to its preferred host as long as that has workers."""
        host = self._near[index] if index < len(self._near) else ""
        future = self._client.submit(
            run,
            self._function,
            self._items[index],
            key=f"tracekit-{secrets.token_hex(8)}-{index}",
            pure=False,
            retries=RETRIES,
            workers=[host] if host else None,
            allow_other_workers=bool(host),
        )
        result = asyncio.run_coroutine_threadsafe(_result(future), self._client.loop.asyncio_loop)
        self.running[result] = index, future
        result.add_done_callback(self._done.put)

    def wait(self, timeout_s: float) -> list[Future[Any]]:
        """Return the results that are new; wait for the first one with a timeout."""
        results: list[Future[Any]] = []
        with suppress(Empty):
            results.append(self._done.get(timeout=timeout_s))
            while True:
                results.append(self._done.get_nowait())
        return [result for result in results if result in self.running]

    def cancel(self) -> None:
        """Cancel the remaining tasks; those that run finish, and their results are ignored."""
        futures = [future for _, future in self.running.values()]
        running, self.running = self.running, {}
        for result in running:
            result.cancel()
        if futures and self._client.status == "running":
            self._client.cancel(futures, force=True)


async def _result(future: DaskFuture) -> Any:
    """Return the result of a task, in the client's event loop: no result waits for another one."""
    return await future


def _error(result: Future[Any]) -> BaseException | None:
    try:
        return result.exception()
    except CancelledError as error:
        return error


def _explain(error: BaseException) -> TracekitError:
    if isinstance(error, KilledWorker):
        return TracekitError(
            f"each of the {error.allowed_failures + 1} workers that ran it ended, with no other task there",
            hint="give the workers more memory, and check their logs",
        )
    if isinstance(error, CancelledError):
        return TracekitError("the cluster dropped the task", hint="check the scheduler's log")
    return unexpected_error(error)


def _host_of(address: str) -> str:
    """Return the host of a worker's address, such as `tcp://10.0.0.3:4567`."""
    return urlsplit(address).hostname or ""


class KeptFolders:
    """Folders of the result of a task, deleted with it.

    A worker holds the result until the client releases it or is lost, or until it ends itself; only then the
    folders are deleted. They are locked until then. What is sent to the client is whether there are any.
    """

    def __init__(self) -> None:
        self._any, self._end = False, ExitStack()
        weakref.finalize(self, self._end.close)

    def add(self, folder: Path) -> None:
        """Add a folder."""
        self._any = True
        self._end.enter_context(locks.hold(folder, blocking=False))
        self._end.callback(_delete, folder)

    def __reduce__(self) -> tuple[type[bool], tuple[bool]]:
        return bool, (self._any,)


def _delete(folder: Path) -> None:
    """Delete a folder, and the one that it is in if that is empty then."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()


@cache
def _wait_for_nanny(worker: Worker) -> None:
    """Wait until the nanny of a worker has started: it does not restart one that ends before.

    The worker may have tasks earlier, but until then its nanny answers no question.
    """
    if worker.nanny:
        answer = asyncio.run_coroutine_threadsafe(_identify_nanny(worker), worker.loop.asyncio_loop)
        with suppress(OSError, TimeoutError):  # a nanny that is gone restarts nothing, whatever is awaited
            answer.result(NANNY_S)


async def _identify_nanny(worker: Worker) -> None:
    async with worker.rpc(worker.nanny) as nanny:
        await nanny.identity()


def run(
    function: Callable[[Item], Value], item: Item
) -> tuple[Value | None, TracekitError | None, str, KeptFolders]:
    """Run a task in a worker: return the result or error of a function, the host, and the folders kept.

    Raises as `attempt`, for Dask to retry it.
    """
    worker, folders = get_worker(), KeptFolders()
    _wait_for_nanny(worker)
    with scratch_at(_scratch(worker), folders.add):
        value, error = attempt(function, item)
    return value, error, _host_of(worker.address), folders


def visit(function: Callable[..., object], args: tuple[Any, ...], dask_worker: Worker) -> None:
    """Call a function in a worker, once per host."""
    with scratch_at(_scratch(dask_worker)):
        function(*args)


def _scratch(worker: Worker) -> Path:
    """Return the folder shared by the workers of a host, next to this worker's own folder."""
    return Path(worker.local_directory).parent


CONNECT_S = 10
"""Timeout of the connection to a scheduler."""
_SCHEMES = ("tcp", "tls", "ws", "wss", "ucx", "ucxx")
_TITLES = {"distributed": "Dask", "tracekit-torch": "tracekit"}
"""Packages whose versions must be the same, and their names in messages."""


@contextmanager
def connect(scheduler: str) -> Iterator[DaskWorkers]:
    """Connect to the workers of a cluster during the context.

    Args:
        scheduler: Address of the scheduler, such as `tcp://host:8786` or `tls://host:8786`.

    Raises:
        UnusableInputError: There is no scheduler at that address, or its workers differ from this program.
    """
    client = _client(scheduler)
    try:
        _check_versions(client, scheduler)
        workers = DaskWorkers(client, scheduler)
        try:
            yield workers
        finally:
            workers.cancel()
    finally:
        with suppress(TimeoutError, OSError):  # the scheduler may be gone
            client.close()


def _client(scheduler: str) -> Client:
    if not _is_address(scheduler):
        message = f"{scheduler!r} is not the address of a Dask scheduler"
        raise UnusableInputError(message, hint="use an address like tcp://host:8786")
    for name in ("distributed", "distributed.client"):  # Dask sets the level of both
        logging.getLogger(name).setLevel(logging.CRITICAL)  # errors are reported as outcomes
    try:
        return Client(scheduler, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError, ImportError) as error:
        message = f"no response from a Dask scheduler at {scheduler} within {CONNECT_S} s"
        hint = "start one with `dask scheduler`, and use the address it prints"
        raise UnusableInputError(message, hint=hint) from error


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in _SCHEMES and bool(parts.hostname and parts.port)
    except ValueError:  # the port
        return False


def _check_versions(client: Client, scheduler: str) -> None:
    """Check that all workers have the same versions of Python, Dask and tracekit as this program."""
    mine = _describe({"python": platform.python_version(), **{name: _own_version(name) for name in _TITLES}})
    # Dask answers for its workers, as one may lack tracekit.
    for worker, answer in client.get_versions(packages=[*_TITLES])["workers"].items():
        theirs = _describe(answer["packages"])
        if theirs != mine:
            message = f"worker {worker} of {scheduler} has {theirs}, but this process has {mine}"
            hint = "install the same versions on all workers, and restart them"
            raise UnusableInputError(message, hint=hint)


def _own_version(distribution: str) -> str:
    return importlib.metadata.version(distribution)


def _describe(versions: Mapping[str, str | None]) -> str:
    """Return versions in words; Python's minor version decides whether pickles are compatible."""
    named = ((versions.get(name), title) for name, title in _TITLES.items())
    words = [f"{title} {version}" if version else f"no {title}" for version, title in named]
    return ", ".join([f"Python {'.'.join(str(versions['python']).split('.')[:2])}", *words])
