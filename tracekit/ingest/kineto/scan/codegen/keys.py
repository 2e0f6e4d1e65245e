"""Find a member's slot by its key, through a perfect hash of all keys that are kept."""

from __future__ import annotations

from itertools import count

import numpy as np

from tracekit.ingest.kineto.scan.codegen.intrinsics import WORD, compiled, word
from tracekit.ingest.kineto.scan.slots import COUNT, KEYS

NOT_KEPT = -1
_LONGEST = 32
_BITS = 9
_MASK = (1 << _BITS) - 1
_LENGTHS = np.array([len(key) for key in KEYS], np.int64)
_WORDS = np.array([np.frombuffer(key.ljust(_LONGEST, b"\0"), np.int64) for key in KEYS])


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
