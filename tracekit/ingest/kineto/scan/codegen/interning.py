"""Number distinct texts as they come."""

from __future__ import annotations

from tracekit.ingest.kineto.scan.codegen.intrinsics import WORD, compiled, peek, poke, same, word
from tracekit.ingest.kineto.scan.interner import (
    AT_PLACES,
    AT_SPANS,
    AT_TEXT,
    BITS,
    BYTES,
    COUNT,
    EMPTY,
    FULL,
    MOST,
    PLACES,
    USED,
)

_MIX = 0x9E3779B97F4A7C15 - (1 << 64)


@compiled
def _mixed(number: int) -> int:
    number *= _MIX
    return number ^ (number >> 32)


@compiled
def _hash(at: int, length: int) -> int:
    """The hash of a text; two run beside each other, since every step waits for the one before."""
    left, right = length, _MIX
    while length >= 2 * WORD:
        left, right = _mixed(left ^ word(at)), _mixed(right ^ word(at + WORD))
        at += 2 * WORD
        length -= 2 * WORD
    if length >= WORD:
        left = _mixed(left ^ word(at))
        at += WORD
        length -= WORD
    if length:
        right = _mixed(right ^ (word(at) & ((1 << 8 * length) - 1)))
    return _mixed(left ^ right)


@compiled
def code_of(interner: int, at: int, length: int) -> int:
    """The code of the text at an address; `FULL` when there is no room for one more."""
    places, spans, text = peek(interner, AT_PLACES), peek(interner, AT_SPANS), peek(interner, AT_TEXT)
    wanted = _hash(at, length)
    place = (wanted >> (64 - BITS)) & (PLACES - 1)
    code = peek(places, 2 * place + 1)
    while code != EMPTY:
        known = peek(places, 2 * place) == wanted and peek(spans, 2 * code + 1) == length
        if known and same(text + peek(spans, 2 * code), at, length):
            return code
        place = (place + 1) & (PLACES - 1)
        code = peek(places, 2 * place + 1)
    return _added(interner, at, length, place, wanted)


@compiled
def _added(interner: int, at: int, length: int, place: int, wanted: int) -> int:
    code, start = peek(interner, COUNT), peek(interner, USED)
    words = (length + WORD - 1) // WORD
    if code == MOST or start + words * WORD > BYTES:
        return FULL
    for number in range(words):
        poke(peek(interner, AT_TEXT) + start, number, word(at + number * WORD))
    places, spans = peek(interner, AT_PLACES), peek(interner, AT_SPANS)
    poke(places, 2 * place, wanted)
    poke(places, 2 * place + 1, code)
    poke(spans, 2 * code, start)
    poke(spans, 2 * code + 1, length)
    poke(interner, COUNT, code + 1)
    poke(interner, USED, start + words * WORD)
    return code
