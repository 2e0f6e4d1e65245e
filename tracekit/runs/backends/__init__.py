"""How runs are kept at a place, so that a listed run is whole: on a disk, and on object storage.

`keeper` is what a store asks of either, `local` and `remote` are the two, `owner` tells whether who began
something is still at it, `index` lists remote runs in one request, and `manifests` remembers what they say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.runs.backends.local import TEMPORARY, Keeper, Leftover, LocalKeeper, discard
from tracekit.storage import RemotePath

if TYPE_CHECKING:
    from tracekit.storage import Place

__all__ = ["TEMPORARY", "Keeper", "Leftover", "discard", "keeper_of"]


def keeper_of(path: Place) -> Keeper:
    """What keeps runs at a place."""
    if not isinstance(path, RemotePath):
        return LocalKeeper(path)
    from tracekit.runs.backends.remote import RemoteKeeper  # which a folder of this machine does not need

    return RemoteKeeper(path)
