"""Arrays and objects that were read before: the arguments of an op are the same in call after call.

Bytes that were a whole value once are one wherever they stand, since a bracket closes it. Its first bytes and
the event's name decide where a value is looked for.
"""

from __future__ import annotations

from tracekit.ingest.kineto.scan.codegen.grammar import LIST, OPEN, value_end
from tracekit.ingest.kineto.scan.codegen.intrinsics import BAD, WORD, byte, compiled, peek, poke, same, word
from tracekit.ingest.kineto.scan.codegen.spans import length_of, start_of
from tracekit.ingest.kineto.scan.layout import KNOWN_BITS, NULL, VALUES
from tracekit.ingest.kineto.scan.slots import SLOT

_NAME = SLOT.name
_MIX, _SHIFT = 0x9E3779B97F4A7C15 - (1 << 64), 29
_TEXT, _LENGTH, _FIELDS = range(3)


@compiled
def forget_values(places: int) -> None:
    """Begin with a text: know no value in it."""
    for place in range(1 << KNOWN_BITS):
        poke(places, VALUES + place * _FIELDS + _LENGTH, 0)


@compiled
def behind(at: int, places: int, origin: int) -> int:
    """Behind the value here, whatever it is."""
    first = byte(at)
    if first != LIST and first != OPEN:
        return value_end(at)
    entry = VALUES + _place(at, peek(places, _NAME), origin) * _FIELDS
    length = peek(places, entry + _LENGTH)
    if length > 0 and same(peek(places, entry + _TEXT), at, length):
        return at + length
    end = value_end(at)
    if end != BAD:
        poke(places, entry + _TEXT, at)
        poke(places, entry + _LENGTH, end - at)
    return end


@compiled
def _place(at: int, name: int, origin: int) -> int:
    mixed = word(at)
    if name != NULL and length_of(name) >= WORD:
        mixed ^= word(start_of(name, origin) + length_of(name) - WORD)
    mixed *= _MIX
    mixed = ((mixed >> _SHIFT) ^ mixed ^ word(at + WORD)) * _MIX
    return (mixed >> (64 - KNOWN_BITS)) & ((1 << KNOWN_BITS) - 1)
