"""Number distinct texts as they come."""

from __future__ import annotations

from tracekit.ingest.kineto.scan.interner import (
    AT_BOUNDS,
    AT_HASHES,
    AT_LENGTHS,
    AT_PLACES,
    AT_TEXT,
    BITS,
    BYTES,
    COUNT,
    EMPTY,
    FULL,
    MOST,
    PLACES,
)
from tracekit.ingest.kineto.scan.machine.words import WORD, compiled, peek, poke, same, word

_MIX = 0x9E3779B97F4A7C15 - (1 << 64)


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
def code_of(interner: int, at: int, length: int) -> int:
    """The code of the text at an address; `FULL` when there is no room for one more."""
    places, hashes, lengths = peek(interner, AT_PLACES), peek(interner, AT_HASHES), peek(interner, AT_LENGTHS)
    bounds, text = peek(interner, AT_BOUNDS), peek(interner, AT_TEXT)
    wanted = _hash(at, length)
    place = (wanted >> (64 - BITS)) & (PLACES - 1)
    code = peek(places, place)
    while code != EMPTY:
        known = peek(hashes, code) == wanted and peek(lengths, code) == length
        if known and same(text + peek(bounds, code), at, length):
            return code
        place = (place + 1) & (PLACES - 1)
        code = peek(places, place)
    return _added(interner, at, length, place, wanted)


@compiled
def _added(interner: int, at: int, length: int, place: int, wanted: int) -> int:
    code, bounds = peek(interner, COUNT), peek(interner, AT_BOUNDS)
    start = peek(bounds, code)
    words = (length + WORD - 1) // WORD
    if code == MOST or start + words * WORD > BYTES:
        return FULL
    for number in range(words):
        poke(peek(interner, AT_TEXT) + start, number, word(at + number * WORD))
    poke(peek(interner, AT_PLACES), place, code)
    poke(peek(interner, AT_HASHES), code, wanted)
    poke(peek(interner, AT_LENGTHS), code, length)
    poke(bounds, code + 1, start + words * WORD)
    poke(interner, COUNT, code + 1)
    return code
