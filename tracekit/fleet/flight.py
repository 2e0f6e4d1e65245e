"""The tasks of one map on a cluster: those that wait, those handed over, and those to be tried once more."""

from __future__ import annotations

import secrets
from collections import Counter, deque
from concurrent.futures import CancelledError
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic

from tracekit.errors import TracekitError
from tracekit.fleet.model import Item, Outcome, Value
from tracekit.fleet.task import unexpected
from tracekit.fleet.there import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distributed import Client, Future

    Landing = tuple[Future, Any, BaseException | None]

RETRIES = 1
"""Times that a task runs again after its machine failed it: no space, no memory, a file system away."""


class Flight(Generic[Item, Value]):
    """Hands tasks over, and takes what becomes of them."""

    def __init__(
        self, client: Client, function: Callable[[Item], Value], items: Sequence[Item], near: Sequence[str]
    ) -> None:
        """Hand over nothing yet.

        Args:
            client: The connection.
            function: A function of a module.
            items: What it is called with.
            near: Where each task should rather run; may be shorter.
        """
        self._client, self._task, self._items = client, Task(function), items
        self._name = f"tracekit-{secrets.token_hex(8)}"
        self._waiting: dict[str, deque[int]] = {}
        for index in range(len(items)):
            host = near[index] if index < len(near) else ""
            self._waiting.setdefault(host, deque()).append(index)
        self._suspects: deque[int] = deque()
        self._alone: set[int] = set()
        self._running: dict[str, tuple[int, str, Future]] = {}
        self._landed: SimpleQueue[Landing] = SimpleQueue()

    @property
    def left(self) -> bool:
        """Whether some task has no outcome yet."""
        return bool(self._waiting or self._running or self._suspects)

    def start(self, capacity: int) -> None:
        """Hand tasks over until so many are running."""
        while self._waiting and len(self._running) < capacity:
            host = self._least_busy()
            self._submit(self._waiting[host].popleft(), host)
            if not self._waiting[host]:
                del self._waiting[host]
        if capacity and not self._waiting and not self._running and self._suspects:
            self._alone.add(index := self._suspects.popleft())
            self._submit(index, "")

    def _least_busy(self) -> str:
        """Of the hosts that tasks wait for, the one with the fewest running."""
        busy = Counter(host for _, host, _ in self._running.values())
        return min(self._waiting, key=busy.__getitem__)

    def _submit(self, index: int, host: str) -> None:
        future = self._client.submit(
            self._task,
            self._items[index],
            key=f"{self._name}-{index}-{len(self._alone)}",
            pure=False,
            retries=RETRIES,
            workers=[host] if host else None,
            allow_other_workers=bool(host),
        )
        self._running[future.key] = index, host, future
        future.add_done_callback(self._land)

    def _land(self, future: Future) -> None:
        """Fetch what a task gave, in a thread of the client: a result may be lost, and come anew."""
        try:
            self._landed.put((future, future.result(), None))
        except BaseException as error:
            self._landed.put((future, None, error))

    def landed(self, timeout_s: float) -> Iterator[Outcome[Value]]:
        """The outcomes of tasks that have ended; waits so long for a first one."""
        try:
            landing = self._landed.get(timeout=timeout_s)
            while True:
                yield from self._outcome(*landing)
                landing = self._landed.get_nowait()
        except Empty:
            return

    def _outcome(self, future: Future, answer: Any, error: BaseException | None) -> Iterator[Outcome[Value]]:
        if future.key not in self._running:  # it was given up meanwhile
            return
        index, _, _ = self._running.pop(future.key)
        if error is None:
            value, failure, host = answer
            yield Outcome(index=index, value=value, error=failure, host=host)
        elif _is_killed(error) and index not in self._alone:
            self._suspects.append(index)
        else:
            yield Outcome(index=index, error=_explained(error))

    def give_up(self, error: TracekitError) -> Iterator[Outcome[Value]]:
        """Let all tasks that are left have failed."""
        indices = [index for index, _, _ in self._running.values()]
        indices += [*self._suspects, *(index for waiting in self._waiting.values() for index in waiting)]
        self.cancel()
        for index in sorted(indices):
            yield Outcome(index=index, error=error)

    def cancel(self) -> None:
        """Drop what has not ended; a task that runs comes to its end, and nobody asks for it."""
        futures = [future for _, _, future in self._running.values()]
        self._running.clear()
        self._waiting.clear()
        self._suspects.clear()
        if futures and self._client.status == "running":
            self._client.cancel(futures, force=True)


def _is_killed(error: BaseException) -> bool:
    from distributed import KilledWorker

    return isinstance(error, KilledWorker)


def _explained(error: BaseException) -> TracekitError:
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return TracekitError(
            f"every worker that ran it ended, {error.allowed_failures + 1} times, with no other task there",
            hint="give the workers more memory, and look into their logs",
        )
    if isinstance(error, CancelledError):
        return TracekitError("the cluster dropped it", hint="look into the scheduler's log")
    return unexpected(error)
