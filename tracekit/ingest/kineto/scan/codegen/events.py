"""Scan a chunk's events into columns: the compiled twin of the reference's `events.decode` and `to_batches`.

An event's members go into slots; when the event ends, `rows` says what becomes of it. Where anything is met
that is not plain, the scan ends and the reference decodes the chunk.
"""

from __future__ import annotations

from tracekit.ingest.kineto.scan.codegen.gaps import (
    START,
    UNKNOWN,
    follower,
    forget,
    length_of_gap,
    level_behind,
    remember,
    slot_behind,
)
from tracekit.ingest.kineto.scan.codegen.grammar import (
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
)
from tracekit.ingest.kineto.scan.codegen.intrinsics import BAD, WORD, byte, compiled, poke
from tracekit.ingest.kineto.scan.codegen.keys import NOT_KEPT, slot_of
from tracekit.ingest.kineto.scan.codegen.rows import add_row, counted
from tracekit.ingest.kineto.scan.codegen.value_cache import behind, forget_values
from tracekit.ingest.kineto.scan.codegen.values import take_value
from tracekit.ingest.kineto.scan.layout import GAPS, NULL, SLOTS
from tracekit.ingest.kineto.scan.sheets import CLOSED, DONE, N_EVENTS, PLACE, SURPRISED
from tracekit.ingest.kineto.scan.slots import SLOT

_ARGS = SLOT.args


_START, _BEFORE, _INSIDE, _AFTER, _ENDED = range(5)
"""Where in an event: at its brace; before, inside or behind its arguments; at its end."""


@compiled
def members(at: int, places: int, origin: int) -> tuple[int, int]:
    """Take the members of the event whose brace is here; gives its end, and the slots with something odd."""
    gaps = places + GAPS * WORD
    odd, level, last = 0, _START, START
    while True:
        gap = follower(gaps, last, at)
        if gap != UNKNOWN:
            at += length_of_gap(gaps, gap)
            slot, level = slot_behind(gaps, gap), level_behind(gaps, gap)
        else:
            start = at
            at, slot, level = _to_value(at, level)
            if at == BAD:
                return at, odd
            gap = remember(gaps, last, start, at, slot, level)
        if level == _ENDED:
            return at, odd
        last = gap
        at, odd = _member(at, slot, places, origin, odd)
        if at == BAD:
            return at, odd


@compiled
def _to_value(at: int, level: int) -> tuple[int, int, int]:
    """The next value that is no arguments, from behind the last one or the event's brace on; or the end.

    Gives its address, its slot, and where in the event it is.
    """
    at, level = _next(at, level)
    while at != BAD and level != _ENDED:
        at, slot = _key(at)
        if at == BAD or slot != _ARGS or level == _INSIDE:
            is_kept = (slot > _ARGS) == (level == _INSIDE)
            return at, (slot if is_kept else NOT_KEPT), level
        at, level = _arguments(at, level)
        if at != BAD and level == _AFTER:
            at, level = _next(at, level)
    return at, NOT_KEPT, level


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
    return (literal_end(at) if is_null(at) else BAD), _AFTER


@compiled
def _member(at: int, slot: int, places: int, origin: int, odd: int) -> tuple[int, int]:
    """Behind the value here, which goes into its slot where it has one."""
    if slot == NOT_KEPT:
        return behind(at, places, origin), odd
    at, plain = take_value(at, slot, places, origin)
    return at, (odd & ~(1 << slot) if plain else odd | (1 << slot))


@compiled
def _next(at: int, level: int) -> tuple[int, int]:
    """The next member, or the event's end."""
    if level == _START:
        at = blanks(at + 1)
        return (at + 1, _ENDED) if byte(at) == CLOSE else (at, _BEFORE)
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
        places: Address of room for an event's slots and for the gaps between values.

    Returns:
        How it ended; where, behind the last event that was taken, is left in the sheets.
    """
    forget(places + GAPS * WORD)
    forget_values(places)
    at = blanks(text + start)
    poke(sheets, PLACE, at - text)
    while byte(at) == OPEN:
        begin = at
        for slot in range(SLOTS):
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
