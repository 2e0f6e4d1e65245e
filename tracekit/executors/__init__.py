"""Executors of independent tasks: processes of this machine, or workers of a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tracekit.errors import MissingDependencyError
from tracekit.executors.model import Outcome, Workers, keep, scratch

__all__ = ["Outcome", "Workers", "keep", "scratch", "workers"]


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
        try:
            from tracekit.executors.dask import connect
        except ImportError as error:
            message = "--scheduler needs Dask, which is not installed"
            hint = "pip install 'tracekit-torch[scale]', also on every worker"
            raise MissingDependencyError(message, hint=hint) from error
        with connect(scheduler) as remote:
            yield remote
        return
    from tracekit.executors.local import InProcess, LocalWorkers

    if count == 0:
        yield InProcess()
    else:
        with LocalWorkers(count or len(os.sched_getaffinity(0))) as local:
            yield local
