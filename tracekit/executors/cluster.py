"""Workers of a Dask cluster."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tracekit.errors import MissingDependencyError, TracekitError, UnusableInputError
from tracekit.executors.local import Here, LocalWorkers
from tracekit.executors.model import Item, Outcome, Value, Workers
from tracekit.executors.scheduling import Flight, Visit, host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distributed import Client


PATIENCE_S = 300.0
"""Seconds without any worker, or without the scheduler, until the tasks that are left have failed."""
LOOK_S = 0.25
"""Seconds between two looks at which workers are there."""
SETTLED_S = 5.0
"""Seconds that a worker that comes later must have been there before it is given a task; see `flight`."""


class ClusterWorkers(Workers):
    """Workers of a Dask cluster."""

    def __init__(self, client: Client, address: str, *, patience_s: float = PATIENCE_S) -> None:
        """Use a client that is connected.

        Args:
            client: The connection.
            address: The scheduler's, for errors.
            patience_s: See `PATIENCE_S`.
        """
        self._client, self._address, self._patience = client, address, patience_s
        self._flights: set[Flight[Any, Any]] = set()

    @property
    def count(self) -> int:
        """Threads of all workers that are there now."""
        return sum((self._look() or {}).values())

    def _look(self) -> dict[str, int] | None:
        """Threads of each worker that is there now, by its address; None when nobody can tell."""
        if self._client.status != "running":
            return None
        try:
            found: dict[str, int] = self._client.nthreads()
        except (OSError, TimeoutError):  # the scheduler is gone, which the client does not know yet
            return None
        return found

    def map(
        self, function: Callable[[Item], Value], items: Sequence[Item], *, near: Sequence[str] = ()
    ) -> Iterator[Outcome[Value]]:
        """See `Workers.map`."""
        flight = Flight(self._client, function, items, near)
        self._flights.add(flight)
        try:
            yield from self._landings(flight)
        finally:
            flight.cancel()
            self._flights.discard(flight)

    def _landings(self, flight: Flight[Item, Value]) -> Iterator[Outcome[Value]]:
        there = self._look() or {}
        looked = seen = time.monotonic()
        since = dict.fromkeys(there, looked - SETTLED_S)
        while flight.left:
            flight.start({one: there[one] for one in there if since[one] + SETTLED_S <= looked})
            landed = list(flight.landed(LOOK_S))
            yield from landed
            now = time.monotonic()
            if now - looked < LOOK_S:
                continue
            found, looked = self._look(), now
            if found is not None:
                there, since = found, {one: since.get(one, now) for one in found}
                yield from flight.lose(there)
            seen = now if found or landed else seen
            if now - seen > self._patience:
                yield from flight.give_up(self._nobody())

    def _nobody(self) -> TracekitError:
        what = "has no workers" if self._client.status == "running" else "is no longer reachable"
        return TracekitError(
            f"the scheduler {self._address} {what}", hint="start workers with `dask worker ADDRESS`"
        )

    def everywhere(self, function: Callable[..., object], *args: Any) -> None:
        """See `Workers.everywhere`."""
        hosts = {host_of(address): address for address in self._look() or ()}
        if hosts:
            self._client.run(Visit(function, args), workers=list(hosts.values()), on_error="ignore")

    def cancel(self) -> None:
        """Drop what has not begun."""
        for flight in self._flights:
            flight.cancel()


CONNECT_S = 10
"""Seconds until a scheduler that does not answer is not there."""
_SCHEMES = ("tcp", "tls", "ws", "wss", "ucx", "ucxx")
_DISTRIBUTION = "tracekit-torch"


@contextmanager
def connected(scheduler: str) -> Iterator[ClusterWorkers]:
    """The workers of a cluster, as long as the context lasts.

    Args:
        scheduler: Its scheduler's address, such as `tcp://host:8786` or `tls://host:8786`.

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
        with suppress(TimeoutError, OSError):  # a scheduler that is gone needs no farewell
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
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters is told as outcomes
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
    """Raise unless every worker that is there now has this program's versions of Python and tracekit.

    What is asked for is the standard library's: a worker without tracekit must be able to answer, too.
    """
    pythons = client.run(platform.python_version, on_error="return")
    tracekits = client.run(importlib.metadata.version, _DISTRIBUTION, on_error="return")
    mine = f"Python {_minor(platform.python_version())}, {_tracekit(_ours())}"
    for worker, python in pythons.items():
        theirs = f"Python {_minor(python)}, {_tracekit(tracekits.get(worker))}"
        if theirs != mine:
            raise UnusableInputError(
                f"worker {worker} of {scheduler} has {theirs}, but this process has {mine}",
                hint="install the same versions on all workers, and restart them",
            )


def _ours() -> str:
    return importlib.metadata.version(_DISTRIBUTION)


def _minor(version: object) -> str:
    """What decides whether one Python reads what another one pickled."""
    return ".".join(str(version).split(".")[:2])


def _tracekit(version: object) -> str:
    return f"tracekit {version}" if isinstance(version, str) else "no tracekit"


@contextmanager
def workers(scheduler: str | None = None, *, count: int | None = None) -> Iterator[Workers]:
    """Workers, as long as the context lasts.

    Args:
        scheduler: Address of a Dask scheduler, such as `tcp://host:8786`; None for processes of this machine.
        count: Processes on this machine, by default one for each core it may use; 0 runs tasks in this one.

    Raises:
        MissingDependencyError: A scheduler is named, and Dask is not installed.
        UnusableInputError: There is no scheduler at that address, or its workers differ from this program.

    Example:
        >>> with workers(count=0) as fleet:
        ...     sorted(outcome.get() for outcome in fleet.map(abs, [3, -4]))
        [3, 4]
    """
    if scheduler is not None:
        with connected(scheduler) as remote:
            yield remote
    elif count == 0:
        yield Here()
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
