"""The members of an event that are kept: a number for each, found by a perfect hash of its key.

The members are those of the reference decoder's `Event` and `Args`; a slot goes by the attribute's name there.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import count

import msgspec
import numpy as np
from numba import njit

from tracekit.ingest.kineto.events import Args, Event
from tracekit.ingest.kineto.scan.words import word

NOT_KEPT = -1
_LONGEST = 32
_BITS = 9


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
SLOTS = {field.name: number for number, field in enumerate(_FIELDS)}
"""Number of each slot; those before that of `args` are an event's own, those behind it its arguments'."""
COUNT = len(_FIELDS)
KINDS = np.array([_KINDS.get(field.name, Kind.INTEGER) for field in _FIELDS], np.int64)
_KEYS = [field.encode_name.encode() for field in _FIELDS]
_LENGTHS = np.array([len(key) for key in _KEYS], np.int64)
_WORDS = np.array([np.frombuffer(key.ljust(_LONGEST, b"\0"), np.uint64) for key in _KEYS])


def _places(factor: np.uint64) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Where each key goes with a factor: its first eight bytes and its length decide."""
    with np.errstate(over="ignore"):
        mixed = (_WORDS[:, 0] ^ _LENGTHS.astype(np.uint64)) * factor
    return mixed >> np.uint64(64 - _BITS)


def _perfect_factor() -> np.uint64:
    """The first odd factor of a fixed sequence that sends no two keys to one place."""
    for number in count(1):
        factor = np.uint64(0x9E3779B97F4A7C15 * number & 0xFFFFFFFFFFFFFFFF | 1)
        if len(set(_places(factor).tolist())) == COUNT:
            return factor
    raise AssertionError


_FACTOR = _perfect_factor()
_TABLE = np.full(1 << _BITS, NOT_KEPT, np.int64)
_TABLE[_places(_FACTOR)] = np.arange(COUNT)


@njit
def _masked(at, length):
    """Up to eight bytes from an address, zero behind the text's end."""
    whole = word(at)
    if length >= 8:  # noqa: PLR2004 (bytes of a word)
        return whole
    return whole & ((np.uint64(1) << np.uint64(8 * length)) - np.uint64(1))


@njit
def slot_of(at, length):
    """The slot of the key at an address; `NOT_KEPT` for any other."""
    if length == 0 or length > _LONGEST:
        return NOT_KEPT
    first = _masked(at, length)
    slot = _TABLE[np.int64(((first ^ np.uint64(length)) * _FACTOR) >> np.uint64(64 - _BITS))]
    if slot == NOT_KEPT or _LENGTHS[slot] != length or _WORDS[slot, 0] != first:
        return NOT_KEPT
    for place in range(1, (length + 7) // 8):
        if _WORDS[slot, place] != _masked(at + 8 * place, length - 8 * place):
            return NOT_KEPT
    return slot
