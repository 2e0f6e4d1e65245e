"""The unit of a column of a result, which its name ends in, but for a few."""

from __future__ import annotations

from typing import Final

from tracekit.schema import C

_UNITS: Final = {"ns": "ns", "bytes": "bytes", "pct": "%"}
_BYTES: Final = {C.TOTAL_ALLOCATED, C.TOTAL_RESERVED}
"""Columns of bytes whose names do not say so."""


def unit(name: str) -> str:
    """The unit of what goes by a name; empty where it tells none.

    Example:
        >>> unit("sum_ns"), unit("bytes"), unit("name"), unit("sum(dur_ns)")
        ('ns', 'bytes', '', 'ns')
    """
    return "bytes" if name in _BYTES else _UNITS.get(name.rstrip(")").rpartition("_")[2], "")
