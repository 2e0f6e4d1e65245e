"""Workers of a Dask cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tracekit.errors import TracekitError
from tracekit.fleet.flight import Flight
from tracekit.fleet.model import Item, Outcome, Value, Workers
from tracekit.fleet.there import Visit, host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distributed import Client

PATIENCE_S = 60.0
"""Seconds without any worker, or without the scheduler, until the tasks that are left have failed."""
_TICK_S = 1.0


class ClusterWorkers(Workers):
    """Workers of a Dask cluster.

    Only as many tasks are handed over at a time as the cluster has threads: so no task waits on a worker
    behind another one, whose crash would count as its own. A task that the scheduler gives up because its
    workers died (`distributed.scheduler.allowed-failures`) runs once more when all others are done, by
    itself: what fails then has killed its workers, and was not just beside a task that does.
    """

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
        return sum(self._threads().values())

    def _threads(self) -> dict[str, int]:
        """Threads of each worker that is there now, by its address."""
        if self._client.status != "running":
            return {}
        try:
            found: dict[str, int] = self._client.nthreads()
        except (OSError, TimeoutError):  # the scheduler is gone, which the client does not know yet
            return {}
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
        seen = time.monotonic()
        while flight.left:
            capacity = self.count
            flight.start(capacity)
            seen = time.monotonic() if capacity else seen
            yield from flight.landed(_TICK_S)
            if time.monotonic() - seen > self._patience:
                yield from flight.give_up(self._nobody())

    def _nobody(self) -> TracekitError:
        what = "has no worker" if self._client.status == "running" else "cannot be reached any more"
        return TracekitError(
            f"the scheduler {self._address} {what}", hint="start workers with `dask worker ADDRESS`"
        )

    def everywhere(self, function: Callable[..., object], *args: Any) -> None:
        """See `Workers.everywhere`."""
        hosts = {host_of(address): address for address in self._threads()}
        if hosts:
            self._client.run(Visit(function, args), workers=list(hosts.values()), on_error="ignore")

    def cancel(self) -> None:
        """Drop what has not begun."""
        for flight in self._flights:
            flight.cancel()
