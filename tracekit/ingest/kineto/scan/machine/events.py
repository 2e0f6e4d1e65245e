"""Scan a chunk's events into columns: the compiled twin of the reference's `events.decode` and `to_batches`.

An event's members go into slots; when the event ends, `rows` says what becomes of it. Where anything is met
that is not plain, the scan ends and the reference decodes the chunk.
"""

from __future__ import annotations

from tracekit.ingest.kineto.scan.layout import NULL, PLACES
from tracekit.ingest.kineto.scan.machine.grammar import (
    BAD,
    CLOSE,
    COLON,
    COMMA,
    LIST_END,
    OPEN,
    QUOTE,
    blanks,
    is_null,
    literal_end,
    plain_end,
    value_end,
)
from tracekit.ingest.kineto.scan.machine.keys import NOT_KEPT, slot_of
from tracekit.ingest.kineto.scan.machine.rows import add_row, counted
from tracekit.ingest.kineto.scan.machine.values import take_value
from tracekit.ingest.kineto.scan.machine.words import byte, compiled, poke
from tracekit.ingest.kineto.scan.sheets import CLOSED, DONE, N_EVENTS, PLACE, SURPRISED
from tracekit.ingest.kineto.scan.slots import SLOT

_ARGS = SLOT.args


_BEFORE, _INSIDE, _AFTER, _ENDED = range(4)
"""Where in an event: before, inside or behind its arguments, or at its end."""


@compiled
def members(at: int, places: int, origin: int) -> tuple[int, int]:
    """Take the members of the event whose brace is here; gives its end, and the slots with something odd."""
    odd, level = 0, _BEFORE
    at = blanks(at + 1)
    if byte(at) == CLOSE:
        return at + 1, odd
    while True:
        at, slot = _key(at)
        if at != BAD and slot == _ARGS and level != _INSIDE:
            at, level = _arguments(at, level)
            if level == _INSIDE:
                continue
        elif at != BAD:
            at, odd = _member(at, slot, level, places, origin, odd)
        if at != BAD:
            at, level = _next(at, level)
        if at == BAD or level == _ENDED:
            return at, odd


@compiled
def _key(at: int) -> tuple[int, int]:
    """The value of the member whose key is here, and its slot; a key with escapes may mean any other."""
    if byte(at) != QUOTE:
        return BAD, NOT_KEPT
    end = plain_end(at + 1)
    if end == BAD:
        return BAD, NOT_KEPT
    slot = slot_of(at + 1, end - at - 1)
    at = blanks(end + 1)
    return (blanks(at + 1) if byte(at) == COLON else BAD), slot


@compiled
def _arguments(at: int, level: int) -> tuple[int, int]:
    """The first of the arguments that open here, or behind them where there are none.

    What stands twice, or is no object, is the reference's to understand.
    """
    if level == _AFTER:
        return BAD, level
    if byte(at) == OPEN:
        at = blanks(at + 1)
        return (at + 1, _AFTER) if byte(at) == CLOSE else (at, _INSIDE)
    return (literal_end(at) if is_null(at) else BAD), level


@compiled
def _member(at: int, slot: int, level: int, places: int, origin: int, odd: int) -> tuple[int, int]:
    """Behind the value here, which goes into its slot where it has one at this level."""
    if slot == NOT_KEPT or (slot > _ARGS) != (level == _INSIDE):
        return value_end(at), odd
    at, plain = take_value(at, slot, places, origin)
    return at, (odd & ~(1 << slot) if plain else odd | (1 << slot))


@compiled
def _next(at: int, level: int) -> tuple[int, int]:
    """The next member, or the event's end."""
    at = blanks(at)
    if level == _INSIDE and byte(at) == CLOSE:
        level = _AFTER
        at = blanks(at + 1)
    if level != _INSIDE and byte(at) == CLOSE:
        return at + 1, _ENDED
    return (blanks(at + 1) if byte(at) == COMMA else BAD), level


@compiled
def scan(text: int, length: int, start: int, interner: int, sheets: int, places: int) -> int:
    """Scan the events of a text.

    Args:
        text: Address of the text, behind whose end are `ROOM` readable bytes, the first ones zero.
        length: Its length.
        start: Where to begin in it.
        interner: Address of the directory of texts that are known.
        sheets: Address of the directory of sheets for the rows.
        places: Address of room for an event's slots.

    Returns:
        How it ended; where, behind the last event that was taken, is left in the sheets.
    """
    at = blanks(text + start)
    poke(sheets, PLACE, at - text)
    while byte(at) == OPEN:
        begin = at
        for slot in range(PLACES):
            poke(places, slot, NULL)
        at, odd = members(at, places, text)
        if at == BAD:
            return SURPRISED
        state = add_row(begin, at, places, odd, text, interner, sheets)
        if state != DONE:
            return state
        counted(sheets, N_EVENTS)
        at = blanks(at)
        poke(sheets, PLACE, at - text)
        if at - text >= length:
            return DONE
        if byte(at) == LIST_END:
            return CLOSED
        if byte(at) != COMMA:
            return SURPRISED
        at = blanks(at + 1)
        poke(sheets, PLACE, at - text)
    return SURPRISED
