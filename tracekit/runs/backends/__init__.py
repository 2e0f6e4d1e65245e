"""Backends of stores, which add and remove runs atomically: local folders, and object storage."""

from __future__ import annotations

from tracekit.runs.backends.local import Backend, DraftHandle, Leftover, LocalBackend
from tracekit.storage import Place, RemotePath

__all__ = ["Backend", "DraftHandle", "Leftover", "backend_of"]


def backend_of(path: Place) -> Backend:
    """Return the backend of a place."""
    if not isinstance(path, RemotePath):
        return LocalBackend(path)
    from tracekit.runs.backends.remote import RemoteBackend  # not needed by local folders

    return RemoteBackend(path)
