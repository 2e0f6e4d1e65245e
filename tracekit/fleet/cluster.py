"""The connection to a Dask cluster: it is there, and its workers are like this program."""

from __future__ import annotations

import importlib.metadata
import logging
import platform
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tracekit.errors import MissingDependencyError, UnusableInputError
from tracekit.fleet.remote import ClusterWorkers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Client

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
