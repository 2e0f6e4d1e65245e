"""Take one member's value into its slot: a number parsed, a text as its place in the chunk."""

from __future__ import annotations

import numpy as np

from tracekit.ingest.kineto.scan.codegen.digits import MINUS, TENTHS, read_number, starts_number
from tracekit.ingest.kineto.scan.codegen.grammar import (
    COMMA,
    LIST,
    LIST_END,
    QUOTE,
    blanks,
    is_null,
    literal_end,
    text_end,
    value_end,
)
from tracekit.ingest.kineto.scan.codegen.intrinsics import BAD, bits, byte, compiled, peek, poke
from tracekit.ingest.kineto.scan.codegen.spans import span
from tracekit.ingest.kineto.scan.codegen.value_cache import behind
from tracekit.ingest.kineto.scan.layout import BLOCK_Y, GRID_Y, NULL
from tracekit.ingest.kineto.scan.slots import KINDS, SLOT, Kind
from tracekit.ingest.limits import LATEST_NS

_NS_DIGITS = 3  # of a microsecond
_ZERO, _NINE, _UNDERSCORE, _BACKSLASH, _ASCII = ord("0"), ord("9"), ord("_"), ord("\\"), 0x7F
_SAFE_DIGITS = 17  # of a word's number the reference takes the last 18 characters, its sign among them
_FIRST_LETTER, _LAST_LETTER = ord("a"), ord("z")
_REAL_TENTHS = TENTHS.astype(np.float64)  # exact: up to 10^22 is
_EXACT = 1 << 53
_INTEGER, _TIME, _REAL, _TEXT, _JSON, _TRIPLE, _LANE = (int(kind) for kind in Kind if kind is not Kind.ARGS)
_GRID = SLOT.grid


@compiled
def take_value(at: int, slot: int, places: int, origin: int) -> tuple[int, bool]:
    """Take the value at an address; gives the address behind it, and whether it is of the slot's kind."""
    kind = KINDS[slot]
    _clear(places, slot, kind)
    first = byte(at)
    if kind == _JSON:
        end = behind(at, places, origin)
        if end != BAD:
            poke(places, slot, span(at, end, origin))
        return end, peek(places, slot) != NULL
    if first == QUOTE:
        end = text_end(at + 1)
        if end == BAD:
            return end, False
        if kind == _TEXT:
            poke(places, slot, span(at + 1, end, origin))
        elif kind == _LANE:
            poke(places, slot, _number_in(at + 1, end))
        return end + 1, peek(places, slot) != NULL
    if starts_number(first):
        return _take_number(at, slot, kind, places)
    if kind == _TRIPLE and first == LIST:
        return _take_triple(at, slot, places)
    if first >= _FIRST_LETTER and first <= _LAST_LETTER:
        return literal_end(at), is_null(at)
    return value_end(at), False


@compiled
def _clear(places: int, slot: int, kind: int) -> None:
    """Forget what the same key had before."""
    poke(places, slot, NULL)
    if kind == _TRIPLE:
        rest = _rest(slot)
        poke(places, rest, NULL)
        poke(places, rest + 1, NULL)


@compiled
def _rest(slot: int) -> int:
    """The place of a triple's second number, behind which the third has its own."""
    return GRID_Y if slot == _GRID else BLOCK_Y


@compiled
def _take_number(at: int, slot: int, kind: int, places: int) -> tuple[int, bool]:
    digits, decimals, end = read_number(at)
    if end == BAD:
        return end, False
    if kind in (_INTEGER, _LANE):
        if decimals:
            return end, False
        poke(places, slot, digits)
        return end, True
    if kind == _TIME:
        poke(places, slot, _nanoseconds(digits, decimals))
        return end, peek(places, slot) != NULL
    if kind == _REAL and abs(digits) < _EXACT and (digits != 0 or _is_unsigned(at)):
        poke(places, slot, bits(digits / _REAL_TENTHS[decimals]))
        return end, True
    return end, False


@compiled
def _is_unsigned(at: int) -> bool:
    """Whether a number has no sign: minus zero is not the integer zero."""
    return byte(at) != MINUS


@compiled
def _nanoseconds(digits: int, decimals: int) -> int:
    """Microseconds as nanoseconds, `NULL` where that is not exact."""
    if decimals > _NS_DIGITS:
        beyond = TENTHS[decimals - _NS_DIGITS]
        return digits // beyond if digits % beyond == 0 else NULL
    factor = TENTHS[_NS_DIGITS - decimals]
    return digits * factor if abs(digits) < LATEST_NS // factor else NULL


@compiled
def _number_in(at: int, end: int) -> int:
    """The first number in a word such as `stream 7`; `NULL` where Python's idea of it may be another."""
    before = 0
    while at < end and not _ZERO <= byte(at) <= _NINE:
        before = byte(at)
        if _may_be_digit(before):
            return NULL
        at += 1
    first, number = at, 0
    while at < end and _ZERO <= byte(at) <= _NINE:
        number = number * 10 + byte(at) - _ZERO
        at += 1
    if at == first or at - first > _SAFE_DIGITS or _may_be_digit(byte(at)):
        return NULL
    return -number if before == MINUS else number


@compiled
def _may_be_digit(found: int) -> bool:
    """Whether Python may see a digit, or a part of a number, where this byte stands."""
    return found in (_UNDERSCORE, _BACKSLASH) or found > _ASCII


@compiled
def _take_triple(at: int, slot: int, places: int) -> tuple[int, bool]:
    """Take a list of three integers; any other is odd."""
    start = at
    rest = _rest(slot)
    for number in range(3):
        digits, decimals, end = read_number(blanks(at + 1))
        if end == BAD or decimals:
            return _odd_triple(start, slot, places)
        poke(places, slot if number == 0 else rest + number - 1, digits)
        at = blanks(end)
        if byte(at) != (LIST_END if number == 2 else COMMA):
            return _odd_triple(start, slot, places)
    return at + 1, True


@compiled
def _odd_triple(at: int, slot: int, places: int) -> tuple[int, bool]:
    _clear(places, slot, _TRIPLE)
    return value_end(at), False
