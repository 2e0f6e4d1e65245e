"""Scan a chunk's events into columns: the compiled twin of the reference's `events.decode` and `to_batches`.

An event's members go into slots; when the event ends, `rows` says what becomes of it. Where anything is met
that is not plain, the scan ends and the reference decodes the chunk.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tracekit.ingest.kineto.scan.grammar import (
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
    text_end,
    value_end,
)
from tracekit.ingest.kineto.scan.layout import PLACES
from tracekit.ingest.kineto.scan.rows import add_row
from tracekit.ingest.kineto.scan.sheets import CLOSED, DONE, N_EVENTS, SURPRISED, counted
from tracekit.ingest.kineto.scan.slots import NOT_KEPT, SLOTS, slot_of
from tracekit.ingest.kineto.scan.values import NULL, take_value
from tracekit.ingest.kineto.scan.words import byte, poke

_ARGS = SLOTS["args"]


@njit
def members(at: int, places: int, origin: int) -> tuple[int, int]:
    """Take the members of the event whose brace is here; gives its end and the slots with something odd."""
    odd, inside, had_arguments = np.uint64(0), False, False
    at = blanks(at + 1)
    if byte(at) == CLOSE:
        return at + 1, odd
    while True:
        if byte(at) != QUOTE:
            return BAD, odd
        key = at + 1
        at = text_end(key)
        if at == BAD:
            return at, odd
        slot = slot_of(key, at - key)
        at = blanks(at + 1)
        if byte(at) != COLON:
            return BAD, odd
        at = blanks(at + 1)
        if slot == _ARGS and not inside:
            if byte(at) == OPEN and not had_arguments:
                had_arguments = True
                at = blanks(at + 1)
                if byte(at) != CLOSE:
                    inside = True
                    continue
                at += 1
            elif byte(at) == OPEN or not is_null(at):
                return BAD, odd  # twice, or no object: the reference knows what that means
            else:
                at = literal_end(at)
        elif slot == NOT_KEPT or (slot > _ARGS) != inside:
            at = value_end(at)
        else:
            at, plain = take_value(at, slot, places, origin)
            bit = np.uint64(1) << np.uint64(slot)
            odd = odd & ~bit if plain else odd | bit
        if at == BAD:
            return at, odd
        at = blanks(at)
        if inside and byte(at) == CLOSE:
            inside = False
            at = blanks(at + 1)
        if byte(at) == CLOSE and not inside:
            return at + 1, odd
        if byte(at) != COMMA:
            return BAD, odd
        at = blanks(at + 1)


@njit(nogil=True)
def scan(text: int, length: int, start: int, interner: int, sheets: int, places: int) -> tuple[int, int]:
    """Scan the events of a text.

    Args:
        text: Address of the text, behind whose end are `ROOM` readable bytes, the first ones zero.
        length: Its length.
        start: Where to begin in it.
        interner: Address of the directory of texts that are known.
        sheets: Address of the directory of sheets for the rows.
        places: Address of room for an event's slots.

    Returns:
        How it ended, and where: behind the last event that was taken.
    """
    at = blanks(text + start)
    while byte(at) == OPEN:
        begin = at
        for slot in range(PLACES):
            poke(places, slot, NULL)
        at, odd = members(at, places, text)
        if at == BAD:
            return SURPRISED, begin - text
        state = add_row(begin, at, places, odd, text, interner, sheets)
        if state != DONE:
            return state, begin - text
        counted(sheets, N_EVENTS)
        at = blanks(at)
        if at - text >= length:
            return DONE, length
        if byte(at) == LIST_END:
            return CLOSED, at - text
        if byte(at) != COMMA:
            return SURPRISED, at - text
        at = blanks(at + 1)
    return SURPRISED, at - text
