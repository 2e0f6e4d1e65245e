"""How one comes by workers."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tracekit.fleet.local import Here, LocalWorkers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.fleet.model import Workers


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
        from tracekit.fleet.cluster import connected

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
