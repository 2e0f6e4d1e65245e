"""Executor on the workers of a Dask cluster, and the choice between it and local processes."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tracekit.errors import MissingDependencyError, TracekitError, UnusableInputError
from tracekit.executors.local import InProcess, LocalWorkers
from tracekit.executors.model import Item, Outcome, Value, Workers
from tracekit.executors.scheduling import Submission, host_of, visit

if TYPE_CHECKING:
    from distributed import Client, Future


WORKERLESS_S = 60.0
"""Seconds without workers until the remaining tasks fail; a nanny restarts a worker sooner."""
UNREACHABLE_S = 15.0
"""Seconds without a connection to the scheduler until all ends; the client tries to connect meanwhile."""
SILENT_S = 60.0
"""Seconds without an answer on an open connection until all ends; a busy scheduler answers late."""
ANSWER_S = 5.0
"""Timeout in seconds of a question to the scheduler."""
POLL_S = 0.25
"""Seconds between two queries of the workers."""
SETTLED_S = 5.0
"""Age in seconds from which a new worker is given tasks; see `scheduling`."""


class ClusterWorkers(Workers):
    """Executor on the workers of a Dask cluster, and the choice between it and local processes."""

    def __init__(self, client: Client, address: str, *, timeout_s: float = WORKERLESS_S) -> None:
        """Use a connected client.

        Args:
            client: The client.
            address: Address of the scheduler, for errors.
            timeout_s: See `WORKERLESS_S`.
        """
        self._client, self._address, self._patience = client, address, timeout_s
        self._submissions: set[Submission[Any, Any]] = set()
        self._held: list[Future] = []

    @property
    def count(self) -> int:
        """Number of threads of the current workers."""
        return sum((self._threads() or {}).values())

    def _threads(self) -> dict[str, int] | None:
        """Return the threads of the current workers, by address; None if unknown."""
        if self._client.status != "running":
            return None
        try:
            found: dict[str, int] = self._client.nthreads(callback_timeout=ANSWER_S)
        except (OSError, TimeoutError):  # the client has not noticed yet that the scheduler is gone
            return None
        return found

    def map(
        self, function: Callable[[Item], Value], items: Sequence[Item], *, near: Sequence[str] = ()
    ) -> Iterator[Outcome[Value]]:
        """See `Workers.map`."""
        submission = Submission(self._client, function, items, near)
        self._submissions.add(submission)
        try:
            yield from self._outcomes(submission)
        finally:
            submission.cancel()
            self._submissions.discard(submission)
            self._held += submission.held

    def _outcomes(self, submission: Submission[Item, Value]) -> Iterator[Outcome[Value]]:
        there = self._threads() or {}
        polled = seen = reached = time.monotonic()
        since = dict.fromkeys(there, polled - SETTLED_S)
        while submission.left:
            submission.start({one: there[one] for one in there if since[one] + SETTLED_S <= polled})
            outcomes = list(submission.outcomes(POLL_S))
            yield from outcomes
            now = time.monotonic()
            if now - polled < POLL_S:
                continue
            found, polled = self._threads(), now
            if found is not None:
                reached = now
                there, since = found, {one: since.get(one, now) for one in found}
                yield from submission.lose(there)
            elif now - reached > self._silence_s():
                raise self._nobody()
            else:
                there = {}  # submit nothing until it answers
            seen = now if found or outcomes else seen
            if now - seen > self._patience:
                yield from submission.give_up(self._nobody())

    def _silence_s(self) -> float:
        """Return for how long the scheduler may be silent."""
        limits = {"closed": 0.0, "running": SILENT_S}
        return limits.get(self._client.status, UNREACHABLE_S)

    def _nobody(self) -> TracekitError:
        if self._threads() is None:
            return TracekitError(
                f"the scheduler {self._address} is no longer reachable",
                hint="check its log, start it and its workers again, and repeat the command",
            )
        return TracekitError(
            f"the scheduler {self._address} has no workers", hint="start workers with `dask worker ADDRESS`"
        )

    def everywhere(self, function: Callable[..., object], *args: Any) -> None:
        """See `Workers.everywhere`."""
        hosts = {host_of(address): address for address in self._threads() or ()}
        if hosts:
            self._client.run(visit, function, args, workers=list(hosts.values()), on_error="ignore")

    def cancel(self) -> None:
        """Cancel the tasks that have not started."""
        for submission in self._submissions:
            submission.cancel()


CONNECT_S = 10
"""Timeout of the connection to a scheduler."""
_SCHEMES = ("tcp", "tls", "ws", "wss", "ucx", "ucxx")
_DISTRIBUTIONS = {"distributed": "Dask", "tracekit-torch": "tracekit"}
"""Packages whose versions must be the same, and their names in messages."""


@contextmanager
def connected(scheduler: str) -> Iterator[ClusterWorkers]:
    """Connect to the workers of a cluster during the context.

    Args:
        scheduler: Address of the scheduler, such as `tcp://host:8786` or `tls://host:8786`.

    Raises:
        MissingDependencyError: Dask is not installed.
        UnusableInputError: There is no scheduler at that address, or its workers differ from this program.
    """
    client = _client(scheduler)
    try:
        _check(client, scheduler)
        workers = ClusterWorkers(client, scheduler)
        try:
            yield workers
        finally:
            workers.cancel()
    finally:
        with suppress(TimeoutError, OSError):  # the scheduler may be gone
            client.close()


def _client(scheduler: str) -> Client:
    if not _is_address(scheduler):
        raise UnusableInputError(
            f"{scheduler!r} is not the address of a Dask scheduler",
            hint="use an address like tcp://host:8786",
        )
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingDependencyError(
            "--scheduler needs Dask, which is not installed",
            hint="pip install 'tracekit-torch[scale]', also on every worker",
        ) from error
    for name in ("distributed", "distributed.client"):  # Dask sets the level of both
        logging.getLogger(name).setLevel(logging.CRITICAL)  # errors are reported as outcomes
    try:
        return Client(scheduler, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError, ImportError) as error:
        raise UnusableInputError(
            f"no response from a Dask scheduler at {scheduler} within {CONNECT_S} s",
            hint="start one with `dask scheduler`, and use the address it prints",
        ) from error


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in _SCHEMES and bool(parts.hostname and parts.port)
    except ValueError:  # the port
        return False


def _check(client: Client, scheduler: str) -> None:
    """Check that all workers have the same versions of Python, Dask and tracekit as this program.

    The query uses the standard library only, as a worker may lack tracekit.
    """
    pythons = client.run(platform.python_version, on_error="return")
    found = {name: client.run(importlib.metadata.version, name, on_error="return") for name in _DISTRIBUTIONS}
    mine = _versions(platform.python_version(), {name: _ours(name) for name in _DISTRIBUTIONS})
    for worker, python in pythons.items():
        theirs = _versions(python, {name: versions.get(worker) for name, versions in found.items()})
        if theirs != mine:
            raise UnusableInputError(
                f"worker {worker} of {scheduler} has {theirs}, but this process has {mine}",
                hint="install the same versions on all workers, and restart them",
            )


def _ours(distribution: str) -> str:
    return importlib.metadata.version(distribution)


def _versions(python: object, found: Mapping[str, object]) -> str:
    """Return versions in words; those that could not be queried are missing."""
    words = [
        f"{title} {version}" if isinstance(version := found[name], str) else f"no {title}"
        for name, title in _DISTRIBUTIONS.items()
    ]
    return ", ".join([f"Python {_minor(python)}", *words])


def _minor(version: object) -> str:
    """Return the part of a version that decides on compatibility of pickles."""
    return ".".join(str(version).split(".")[:2])


@contextmanager
def workers(scheduler: str | None = None, *, count: int | None = None) -> Iterator[Workers]:
    """Return workers for the duration of the context.

    Args:
        scheduler: Address of a Dask scheduler, such as `tcp://host:8786`; None for processes of this machine.
        count: Number of processes on this machine, by default one per usable core; 0 runs tasks in this
            process.

    Raises:
        MissingDependencyError: A scheduler is named, and Dask is not installed.
        UnusableInputError: There is no scheduler at that address, or its workers differ from this program.

    Example:
        >>> with workers(count=0) as executor:
        ...     sorted(outcome.get() for outcome in executor.map(abs, [3, -4]))
        [3, 4]
    """
    if scheduler is not None:
        with connected(scheduler) as remote:
            yield remote
    elif count == 0:
        yield InProcess()
    else:
        with _local(count or len(os.sched_getaffinity(0))) as local:
            yield local


@contextmanager
def _local(count: int) -> Iterator[LocalWorkers]:
    local = LocalWorkers(count)
    try:
        yield local
    except BaseException:
        local.stop()
        raise
    local.dismiss()
