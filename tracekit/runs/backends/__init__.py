"""Backends of stores, which add and remove runs atomically: local folders, and object storage.

`local` has the interface, the local backend and the index of remote runs, `remote` the backend for object
storage.
"""

from __future__ import annotations

from tracekit.runs.backends.local import Keeper, Leftover, LocalKeeper
from tracekit.storage import Place, RemotePath

__all__ = ["Keeper", "Leftover", "keeper_of"]


def keeper_of(path: Place) -> Keeper:
    """Return the backend of a place."""
    if not isinstance(path, RemotePath):
        return LocalKeeper(path)
    from tracekit.runs.backends.remote import RemoteKeeper  # not needed by local folders

    return RemoteKeeper(path)
