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
