"""Where runs and traces lie: a path of this machine, or an address on object storage that answers as one.

`address` reads and spells what people type, `remote` is the path on object storage, `filesystems` connects,
`failures` says in a line why that did not work, `kinds` tells what is there, `whole` puts a file in place so
that nobody sees half of it, and brings one here.
"""

from __future__ import annotations

from tracekit.storage.address import STDIN, Kind, expand, is_address, kind, parse
from tracekit.storage.filesystems import Place, RemotePath, Stat, inside, reason
from tracekit.storage.transfer import fetch, move, put

__all__ = [
    "STDIN",
    "Kind",
    "Place",
    "RemotePath",
    "Stat",
    "expand",
    "fetch",
    "inside",
    "is_address",
    "kind",
    "move",
    "parse",
    "put",
    "reason",
]
