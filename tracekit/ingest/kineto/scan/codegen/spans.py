"""A place in the text as one number: where it starts, and how long it is."""

from __future__ import annotations

from tracekit.ingest.kineto.scan.codegen.intrinsics import compiled
from tracekit.ingest.kineto.scan.layout import NULL

_LENGTH_BITS = 24
_LENGTH = (1 << _LENGTH_BITS) - 1


@compiled
def span(start: int, end: int, origin: int) -> int:
    """A place in the text as one number; `NULL` where it is too long for that."""
    if end - start > _LENGTH:
        return NULL
    return ((start - origin) << _LENGTH_BITS) | (end - start)


@compiled
def start_of(place: int, origin: int) -> int:
    """Where a place in the text starts."""
    return origin + (place >> _LENGTH_BITS)


@compiled
def length_of(place: int) -> int:
    """How long it is."""
    return place & _LENGTH
