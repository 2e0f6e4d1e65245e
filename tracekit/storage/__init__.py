"""Local paths and object storage under one interface: addresses, file systems, atomic writes, owners."""

from __future__ import annotations

from tracekit.storage.address import STDIN, Kind, expand, is_address, kind, parse
from tracekit.storage.filesystems import reason
from tracekit.storage.remote import Place, RemotePath, Stat, inside
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
