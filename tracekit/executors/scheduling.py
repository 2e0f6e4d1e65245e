"""Assign tasks to the workers of a Dask cluster, and retry those of lost workers.

Tasks are assigned here instead of by Dask's scheduler: then the tasks of a lost worker are known, a task that
kills its workers is stopped after a few of them, and new workers get tasks only after a while (a nanny does
not restart a worker that ends while it is starting).
"""

from __future__ import annotations

import secrets
import shutil
import weakref
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Generic
from urllib.parse import urlsplit

from tracekit.errors import TracekitError
from tracekit.executors.model import Item, Outcome, Value, attempt, scratch_at, unexpected
from tracekit.storage import locks

if TYPE_CHECKING:
    from distributed import Client, Future, Worker


class Waiting:
    """Queue of task numbers, by preferred host.

    Example:
        >>> waiting = Waiting(["a", "b", "", "gone"])
        >>> [waiting.take("a", {"a", "b"}, alone=True) for _ in range(4)]
        [0, 2, 3, None]
        >>> waiting.indices()
        [1]
    """

    def __init__(self, near: Sequence[str]) -> None:
        """Queue all tasks.

        Args:
            near: Preferred host of each task, "" for any.
        """
        self._near = near
        self._crowd: dict[str, deque[int]] = {}
        self._single: dict[str, deque[int]] = {}
        for index in range(len(near)):
            self.put_back(index, alone=False)

    def __bool__(self) -> bool:
        return bool(self._crowd or self._single)

    def indices(self) -> list[int]:
        """Return the queued tasks."""
        return [index for queues in (self._crowd, self._single) for each in queues.values() for index in each]

    def clear(self) -> None:
        """Empty the queue."""
        self._crowd.clear()
        self._single.clear()

    def put_back(self, index: int, *, alone: bool) -> None:
        """Append a task to the queue.

        Args:
            index: Number of the task.
            alone: Whether it requires a worker without other tasks.
        """
        queues = self._single if alone else self._crowd
        queues.setdefault(self._near[index], deque()).append(index)

    def take(self, host: str, hosts: Collection[str], *, alone: bool) -> int | None:
        """Return the next task for a worker.

        Args:
            host: The worker's host.
            hosts: Hosts of all workers; tasks that prefer another host may run here.
            alone: Whether the worker has no other task.
        """
        for queues in (self._crowd, self._single) if alone else (self._crowd,):
            for near in (host, "", *(other for other in queues if other not in hosts)):
                if near in queues:
                    return _taken(queues, near)
        return None


def _taken(queues: dict[str, deque[int]], near: str) -> int:
    index = queues[near].popleft()
    if not queues[near]:
        del queues[near]
    return index


def host_of(address: str) -> str:
    """Return the host of a worker's address.

    Example:
        >>> host_of("tcp://10.0.0.3:4567")
        '10.0.0.3'
    """
    return urlsplit(address).hostname or ""


def _scratch(worker: Worker) -> Path:
    """Return the folder shared by the workers of a host, next to this worker's own folder."""
    return Path(worker.local_directory).parent


class Held:
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


def run(
    function: Callable[[Item], Value], item: Item
) -> tuple[Value | None, TracekitError | None, str, Held]:
    """Run a task in a worker: return the result or error of a function, the host, and the folders kept.

    Raises as `attempt`.
    """
    from distributed import get_worker

    worker, held = get_worker(), Held()
    with scratch_at(_scratch(worker), held.add):
        value, error = attempt(function, item)
    return value, error, host_of(worker.address), held


def visit(function: Callable[..., object], args: tuple[Any, ...], dask_worker: Worker) -> None:
    """Call a function in a worker, once per host."""
    with scratch_at(_scratch(dask_worker)):
        function(*args)


if TYPE_CHECKING:
    Landing = tuple[str, Any, BaseException | None]
    Running = tuple[int, str, Future]

LOSSES = 3
"""Lost workers of a task until it fails; after the first it runs alone on a worker."""
FAILURES = 2
"""Attempts of a task whose machine fails: no space, no memory, a missing file system."""


class Submission(Generic[Item, Value]):
    """Submits tasks to workers and collects their outcomes."""

    def __init__(
        self, client: Client, function: Callable[[Item], Value], items: Sequence[Item], near: Sequence[str]
    ) -> None:
        """Create without submitting tasks.

        Args:
            client: The client.
            function: A function of a module.
            items: Its arguments.
            near: Preferred host of each task; may be shorter.
        """
        self._client, self._function, self._items = client, function, items
        self._name = f"tracekit-{secrets.token_hex(8)}"
        self._waiting = Waiting([near[n] if n < len(near) else "" for n in range(len(items))])
        self._running: dict[str, Running] = {}
        self._losses: Counter[int] = Counter()
        self._failures: Counter[int] = Counter()
        self._results: SimpleQueue[Landing] = SimpleQueue()
        self.held: list[Future] = []
        """Results whose folders are needed."""

    @property
    def left(self) -> bool:
        """Whether tasks have no outcome yet."""
        return bool(self._waiting or self._running)

    def start(self, threads: Mapping[str, int]) -> None:
        """Submit tasks until every thread has one.

        Args:
            threads: Usable threads of each worker.
        """
        used = self._used(threads)
        hosts = {host_of(address) for address in threads}
        for address, count in threads.items():
            while used[address] < count:
                index = self._waiting.take(host_of(address), hosts, alone=not used[address])
                if index is None:
                    break
                used[address] += count if self._losses[index] else 1
                self._submit(index, address)

    def _used(self, threads: Mapping[str, int]) -> Counter[str]:
        """Return the used threads of each worker; a task that has lost a worker uses all of one."""
        used: Counter[str] = Counter()
        for index, address, _ in self._running.values():
            used[address] += threads.get(address, 1) if self._losses[index] else 1
        return used

    def _submit(self, index: int, address: str) -> None:
        key = f"{self._name}-{index}-{self._losses[index] + self._failures[index]}"
        future = self._client.submit(
            run, self._function, self._items[index], key=key, pure=False, workers=[address], retries=0
        )
        self._running[key] = index, address, future
        future.add_done_callback(self._start_fetch)

    def _start_fetch(self, future: Future) -> None:
        """Fetch the result of a task in a separate thread.

        A worker may end before it has sent the result, and waiting would then block; the client has only one
        thread for all callbacks.
        """
        Thread(target=self._fetch, args=(future,), name="tracekit-fetch", daemon=True).start()

    def _fetch(self, future: Future) -> None:
        try:
            self._results.put((future.key, future.result(), None))
        except BaseException as error:
            self._results.put((future.key, None, error))

    def lose(self, there: Mapping[str, int]) -> Iterator[Outcome[Value]]:
        """Requeue the tasks of lost workers; those that have lost too many fail."""
        lost = [key for key, (_, address, _) in self._running.items() if address not in there]
        for key in lost:
            index, _, future = self._running.pop(key)
            future.cancel(force=True)
            yield from self._bereft(index)

    def _bereft(self, index: int) -> Iterator[Outcome[Value]]:
        self._losses[index] += 1
        if self._losses[index] >= LOSSES:
            yield Outcome(index=index, error=_fatal())
        else:
            self._waiting.put_back(index, alone=True)

    def outcomes(self, timeout_s: float) -> Iterator[Outcome[Value]]:
        """Return the outcomes of finished tasks; waits for the first one with a timeout."""
        try:
            landing = self._results.get(timeout=timeout_s)
            while True:
                yield from self._outcome(*landing)
                landing = self._results.get_nowait()
        except Empty:
            return

    def _outcome(self, key: str, answer: Any, error: BaseException | None) -> Iterator[Outcome[Value]]:
        if key not in self._running:  # it was requeued
            return
        index, _, future = self._running.pop(key)
        if error is None:
            value, failure, host, has_folders = answer
            if has_folders:
                self.held.append(future)
            yield Outcome(index=index, value=value, error=failure, host=host)
        elif _is_killed(error):
            yield from self._bereft(index)
        elif self._client.status != "running":  # whether it finds the scheduler again decides about the task
            self._waiting.put_back(index, alone=self._losses[index] > 0)
        elif isinstance(error, (OSError, MemoryError)) and self._failures[index] + 1 < FAILURES:
            self._failures[index] += 1
            self._waiting.put_back(index, alone=self._losses[index] > 0)
        else:
            yield Outcome(index=index, error=_explained(error))

    def give_up(self, error: TracekitError) -> Iterator[Outcome[Value]]:
        """Fail all remaining tasks."""
        indices = [*(index for index, _, _ in self._running.values()), *self._waiting.indices()]
        self.cancel()
        for index in sorted(indices):
            yield Outcome(index=index, error=error)

    def cancel(self) -> None:
        """Cancel the remaining tasks; running ones finish, and their results are ignored."""
        futures = [future for _, _, future in self._running.values()]
        self._running.clear()
        self._waiting.clear()
        if futures and self._client.status == "running":
            self._client.cancel(futures, force=True)


def _is_killed(error: BaseException) -> bool:
    from distributed import KilledWorker

    return isinstance(error, KilledWorker)


def _fatal() -> TracekitError:
    return TracekitError(
        f"each of the {LOSSES} workers that ran it ended, from the second on with no other task there",
        hint="give the workers more memory, and check their logs",
    )


def _explained(error: BaseException) -> TracekitError:
    if isinstance(error, CancelledError):
        return TracekitError("the cluster dropped the task", hint="check the scheduler's log")
    return unexpected(error)
