"""The members of an event that are kept: a number for each, found by a perfect hash of its key.

They are those of the reference decoder's `Event` and `Args`; a slot goes by the attribute's name there.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import count
from types import SimpleNamespace

import msgspec
import numpy as np

from tracekit.ingest.kineto.events import Args, Event
from tracekit.ingest.kineto.scan.words import WORD, compiled, word

NOT_KEPT = -1
_LONGEST = 32
_BITS = 9
_MASK = (1 << _BITS) - 1


class Kind(IntEnum):
    """What a slot takes; anything else is odd there, which matters where the event becomes a row."""

    INTEGER = 0
    TIME = 1
    REAL = 2
    TEXT = 3
    JSON = 4
    TRIPLE = 5
    LANE = 6
    ARGS = 7


_KINDS = {
    **dict.fromkeys(("ph", "cat", "name", "stack"), Kind.TEXT),
    **dict.fromkeys(("ts", "dur"), Kind.TIME),
    **dict.fromkeys(("dims", "dims_old", "dtypes", "concrete"), Kind.JSON),
    **dict.fromkeys(("grid", "block"), Kind.TRIPLE),
    **dict.fromkeys(("pid", "tid", "device", "stream", "alloc_bytes", "device_id"), Kind.LANE),
    "occupancy": Kind.REAL,
    "args": Kind.ARGS,
}
_FIELDS = (*msgspec.structs.fields(Event), *msgspec.structs.fields(Args))  # `args` is the last of an event's
SLOT = SimpleNamespace(**{field.name: number for number, field in enumerate(_FIELDS)})
"""Number of each slot; those before that of `args` are an event's own, those behind it its arguments'."""
COUNT = len(_FIELDS)
KINDS = np.array([_KINDS.get(field.name, Kind.INTEGER) for field in _FIELDS], np.int64)
_KEYS = [field.encode_name.encode() for field in _FIELDS]
_LENGTHS = np.array([len(key) for key in _KEYS], np.int64)
_WORDS = np.array([np.frombuffer(key.ljust(_LONGEST, b"\0"), np.int64) for key in _KEYS])


def _places(factor: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Where each key goes with a factor: its first eight bytes and its length decide."""
    with np.errstate(over="ignore"):
        return ((_WORDS[:, 0] ^ _LENGTHS) * np.int64(factor)) >> (64 - _BITS) & _MASK


def _perfect_factor() -> int:
    """The first of a fixed sequence of odd factors that sends no two keys to one place."""
    for number in count(1):
        factor = (0x9E3779B97F4A7C15 * number | 1) % (1 << 63)
        if len(set(_places(factor).tolist())) == COUNT:
            return factor
    raise AssertionError


_FACTOR = _perfect_factor()
_TABLE = np.full(1 << _BITS, NOT_KEPT, np.int64)
_TABLE[_places(_FACTOR)] = np.arange(COUNT)


@compiled
def _masked(at: int, length: int) -> int:
    """Up to eight bytes from an address, zero behind the text's end."""
    return word(at) if length >= WORD else word(at) & ((1 << 8 * length) - 1)


@compiled
def slot_of(at: int, length: int) -> int:
    """The slot of the key at an address; `NOT_KEPT` for any other."""
    if length == 0 or length > _LONGEST:
        return NOT_KEPT
    first = _masked(at, length)
    slot = _TABLE[((first ^ length) * _FACTOR) >> (64 - _BITS) & _MASK]
    if slot == NOT_KEPT or _LENGTHS[slot] != length or _WORDS[slot, 0] != first:
        return NOT_KEPT
    for place in range(1, (length + WORD - 1) // WORD):
        if _WORDS[slot, place] != _masked(at + WORD * place, length - WORD * place):
            return NOT_KEPT
    return int(slot)
