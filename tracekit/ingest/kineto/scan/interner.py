"""Distinct texts numbered as they come, in a table that a scan carries from chunk to chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.ingest.kineto.scan.words import WORD, compiled, peek, poke, word
from tracekit.ingest.kineto.split import ROOM

if TYPE_CHECKING:
    from collections.abc import Sequence

_BITS = 18
PLACES = 1 << _BITS
"""Places of the hash table; at most half of them are used."""
MOST = PLACES // 2
BYTES = 8 << 20
"""Room for the texts themselves."""
FULL = -1
_EMPTY = -1
_MIX = 0x9E3779B97F4A7C15 - (1 << 64)
_PLACES, _HASHES, _BOUNDS, _LENGTHS, _TEXT, _COUNT = range(6)


class Interner:
    """The table: its memory, and a directory of that for the compiled functions.

    Attributes:
        directory: Addresses of what follows, and how many codes there are.
        places: Code at each place of the hash table, -1 where there is none.
        hashes: Hash of each code.
        bounds: Where each code's text starts.
        lengths: Length of each code's text.
        text: The texts, each from a multiple of eight on.
    """

    def __init__(self, known: Sequence[bytes] = ()) -> None:
        self.places = np.full(PLACES, _EMPTY, np.int64)
        self.hashes = np.empty(MOST, np.int64)
        self.bounds = np.zeros(MOST + 1, np.int64)
        self.lengths = np.empty(MOST, np.int64)
        self.text = np.zeros(BYTES + ROOM, np.uint8)
        memory = (self.places, self.hashes, self.bounds, self.lengths, self.text)
        self.directory = np.array([*(array.ctypes.data for array in memory), 0], np.int64)
        for text in known:
            padded = np.frombuffer(text + bytes(ROOM), np.uint8)
            code_of(self.address, padded.ctypes.data, len(text))

    @property
    def address(self) -> int:
        """What `code_of` asks for."""
        return self.directory.ctypes.data

    @property
    def count(self) -> int:
        """How many texts there are."""
        return int(self.directory[_COUNT])

    def bytes_of(self, code: int) -> bytes:
        """A code's text."""
        start = self.bounds[code]
        return self.text[start : start + self.lengths[code]].tobytes()


@compiled
def _tail(at: int, length: int) -> int:
    """The last, incomplete word of a text, zero behind its end."""
    return word(at) & ((1 << 8 * length) - 1)


@compiled
def _hash(at: int, length: int) -> int:
    found = length * _MIX
    while length >= WORD:
        found = (found ^ word(at)) * _MIX
        found ^= found >> 32
        at += WORD
        length -= WORD
    if length:
        found = (found ^ _tail(at, length)) * _MIX
        found ^= found >> 32
    return found


@compiled
def _equal(left: int, right: int, length: int) -> bool:
    while length >= WORD:
        if word(left) != word(right):
            return False
        left += WORD
        right += WORD
        length -= WORD
    return length == 0 or _tail(left, length) == _tail(right, length)


@compiled
def code_of(interner: int, at: int, length: int) -> int:
    """The code of the text at an address; `FULL` when there is no room for one more."""
    places, hashes, lengths = peek(interner, _PLACES), peek(interner, _HASHES), peek(interner, _LENGTHS)
    bounds, text = peek(interner, _BOUNDS), peek(interner, _TEXT)
    wanted = _hash(at, length)
    place = (wanted >> (64 - _BITS)) & (PLACES - 1)
    code = peek(places, place)
    while code != _EMPTY:
        known = peek(hashes, code) == wanted and peek(lengths, code) == length
        if known and _equal(text + peek(bounds, code), at, length):
            return code
        place = (place + 1) & (PLACES - 1)
        code = peek(places, place)
    return _added(interner, at, length, place, wanted)


@compiled
def _added(interner: int, at: int, length: int, place: int, wanted: int) -> int:
    code, bounds = peek(interner, _COUNT), peek(interner, _BOUNDS)
    start = peek(bounds, code)
    words = (length + WORD - 1) // WORD
    if code == MOST or start + words * WORD > BYTES:
        return FULL
    for number in range(words):
        poke(peek(interner, _TEXT) + start, number, word(at + number * WORD))
    poke(peek(interner, _PLACES), place, code)
    poke(peek(interner, _HASHES), code, wanted)
    poke(peek(interner, _LENGTHS), code, length)
    poke(bounds, code + 1, start + words * WORD)
    poke(interner, _COUNT, code + 1)
    return code
