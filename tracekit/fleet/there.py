"""What runs on a worker of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic
from urllib.parse import urlsplit

from tracekit.fleet.model import Item, Value
from tracekit.fleet.scratch import scratch_at
from tracekit.fleet.task import Attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Worker

    from tracekit.errors import TracekitError


def host_of(address: str) -> str:
    """The machine of a worker's address.

    Example:
        >>> host_of("tcp://10.0.0.3:4567")
        '10.0.0.3'
    """
    return urlsplit(address).hostname or ""


def _scratch(worker: Worker) -> Path:
    """Where all workers of the host may put files: next to the folder of this one, which ends with it."""
    return Path(worker.local_directory).parent


class Task(Generic[Item, Value]):
    """A function as a task of a cluster: gives its value or its error, and the host that it ran on."""

    def __init__(self, function: Callable[[Item], Value]) -> None:
        """Wrap a function of a module."""
        self._attempt = Attempt(function)

    def __call__(self, item: Item) -> tuple[Value | None, TracekitError | None, str]:
        """Run it; see `Attempt` for what it raises."""
        from distributed import get_worker

        worker = get_worker()
        with scratch_at(_scratch(worker)):
            value, error = self._attempt(item)
        return value, error, host_of(worker.address)


class Visit:
    """A function that is called once on a host, beside its tasks."""

    def __init__(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Wrap a function of a module."""
        self._function, self._args = function, args
        self.__name__ = "visit"  # the cluster's log asks for one

    def __call__(self, dask_worker: Worker) -> None:
        """Call it."""
        with scratch_at(_scratch(dask_worker)):
            self._function(*self._args)
