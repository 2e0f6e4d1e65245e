"""Scan the events of a chunk: read an event's members into slots, then have its row added.

This is the compiled counterpart of the reference's `events.decode` and `to_batches`. At anything unusual the
scan ends, and the reference decodes the chunk.
"""

from __future__ import annotations

import numpy as np

from tracekit.ingest.kineto.scan import layout
from tracekit.ingest.kineto.scan.codegen import grammar, intrinsics
from tracekit.ingest.kineto.scan.codegen.grammar import NO_SLOT, skip_blanks, value_end
from tracekit.ingest.kineto.scan.codegen.intrinsics import INVALID, byte, compiled, equal, peek, poke
from tracekit.ingest.kineto.scan.codegen.rows import add_row, increment
from tracekit.ingest.kineto.scan.layout import NULL, SLOT, SlotKind
from tracekit.ingest.kineto.split import ROOM
from tracekit.ingest.spool.text_columns import LATEST_NS

_NO_GAP, _FIRST_GAP = 0, 1  # no cached gap, and the one that precedes each event's first
_GAP_COUNT = 0  # index of the number of gaps: `_NO_GAP` has no text there
_ADDRESS, _LENGTH, _SLOT, _LEVEL, _SUCCESSORS = range(layout.GAP_FIELDS - layout.GAP_WAYS + 1)

_ARGS, _GRID = SLOT.args, SLOT.grid
_INTEGER, _TIME, _REAL, _STRING, _JSON, _TRIPLE, _ID = (
    int(kind) for kind in SlotKind if kind is not SlotKind.ARGS
)
_NS_DECIMALS = 3  # of a microsecond
_MAX_ID_DIGITS = 17  # the reference reads the last 18 characters of a number in a string, with its sign
_MAX_ASCII, _UNDERSCORE, _A, _Z = 0x7F, ord("_"), ord("a"), ord("z")
_EXACT_POWERS_OF_TEN = grammar.POWERS_OF_TEN.astype(np.float64)  # a float64 is exact up to 10^22
_EXACT_FLOAT = 1 << 53

_START, _BEFORE, _INSIDE, _AFTER, _END = range(5)
"""Levels, or where in an event: at its brace; before, inside or after its arguments; at its end."""


@compiled
def _reset_gaps(gaps: int) -> None:
    """Forget all cached gaps: their addresses are those of the previous text."""
    for gap in (_NO_GAP, _FIRST_GAP):
        _clear_successors(gaps, gap)
    poke(gaps, _GAP_COUNT, _FIRST_GAP + 1)


@compiled
def _clear_successors(gaps: int, gap: int) -> None:
    for way in range(layout.GAP_WAYS):
        poke(gaps, gap * layout.GAP_FIELDS + _SUCCESSORS + way, _NO_GAP)


@compiled
def _gap_field(gaps: int, gap: int, field: int) -> int:
    return peek(gaps, gap * layout.GAP_FIELDS + field)


@compiled
def _cached_gap(gaps: int, last: int, address: int) -> int:
    """Find the gap here among those that followed the last one before; else `_NO_GAP`.

    A gap is the text between two values: a comma, white space, a key, a colon. Events of a kind have the same
    members in the same order, so a gap is mostly one that was parsed before, and comparing its bytes is
    enough. The gap before it tells where in the event it is.
    """
    successors = last * layout.GAP_FIELDS + _SUCCESSORS
    for way in range(layout.GAP_WAYS):
        gap = peek(gaps, successors + way)
        if gap == _NO_GAP:
            return _NO_GAP
        if equal(_gap_field(gaps, gap, _ADDRESS), address, _gap_field(gaps, gap, _LENGTH)):
            if way > 0:
                _move_to_front(gaps, successors, way, gap)
            return gap
    return _NO_GAP


@compiled
def _move_to_front(gaps: int, successors: int, way: int, gap: int) -> None:
    while way > 0:
        poke(gaps, successors + way, peek(gaps, successors + way - 1))
        way -= 1
    poke(gaps, successors, gap)


@compiled
def _add_gap(gaps: int, last: int, address: int, end: int, slot: int, level: int) -> int:
    """Cache the gap between two addresses as a successor of the last one; `_NO_GAP` if that is impossible."""
    # The comparison with a gap longer than `ROOM` could read beyond the padding of a text.
    gap = peek(gaps, _GAP_COUNT)
    if last == _NO_GAP or gap == layout.MAX_GAPS or end - address > ROOM:
        return _NO_GAP
    poke(gaps, _GAP_COUNT, gap + 1)
    first = gap * layout.GAP_FIELDS
    poke(gaps, first + _ADDRESS, address)
    poke(gaps, first + _LENGTH, end - address)
    poke(gaps, first + _SLOT, slot)
    poke(gaps, first + _LEVEL, level)
    _clear_successors(gaps, gap)
    _move_to_front(gaps, last * layout.GAP_FIELDS + _SUCCESSORS, layout.GAP_WAYS - 1, gap)
    return gap


@compiled
def _read_value(address: int, slot: int, scratch: int, origin: int) -> tuple[int, bool]:
    """Read a value into its slot; return its end, and whether it is of the slot's kind."""
    kind = layout.SLOT_KINDS[slot]
    _clear_slot(scratch, slot, kind)
    first = byte(address)
    if kind == _JSON:
        end = grammar.cached_value_end(address, scratch, origin)
        if end != INVALID:
            poke(scratch, slot, grammar.span(address, end, origin))
        return end, peek(scratch, slot) != NULL
    if first == grammar.QUOTE:
        end = grammar.string_end(address + 1)
        if end == INVALID:
            return end, False
        if kind == _STRING:
            poke(scratch, slot, grammar.span(address + 1, end, origin))
        elif kind == _ID:
            poke(scratch, slot, _id_in_string(address + 1, end))
        return end + 1, peek(scratch, slot) != NULL
    if grammar.starts_number(first):
        return _read_number(address, slot, kind, scratch)
    if kind == _TRIPLE and first == grammar.ARRAY:
        return _read_triple(address, slot, scratch)
    if first >= _A and first <= _Z:
        return grammar.literal_end(address), grammar.is_null(address)
    return value_end(address), False


@compiled
def _clear_slot(scratch: int, slot: int, kind: int) -> None:
    """Discard what the same key had before in the event."""
    poke(scratch, slot, NULL)
    if kind == _TRIPLE:
        rest = _rest_of_triple(slot)
        poke(scratch, rest, NULL)
        poke(scratch, rest + 1, NULL)


@compiled
def _rest_of_triple(slot: int) -> int:
    return layout.GRID_Y if slot == _GRID else layout.BLOCK_Y


@compiled
def _read_number(address: int, slot: int, kind: int, scratch: int) -> tuple[int, bool]:
    digits, decimals, end = grammar.read_number(address)
    if end == INVALID:
        return end, False
    if kind in (_INTEGER, _ID):
        if decimals:
            return end, False
        poke(scratch, slot, digits)
        return end, True
    if kind == _TIME:
        poke(scratch, slot, _nanoseconds(digits, decimals))
        return end, peek(scratch, slot) != NULL
    if (
        kind == _REAL and abs(digits) < _EXACT_FLOAT and (digits != 0 or byte(address) != grammar.MINUS)
    ):  # not minus zero
        poke(scratch, slot, intrinsics.float_bits(digits / _EXACT_POWERS_OF_TEN[decimals]))
        return end, True
    return end, False


@compiled
def _nanoseconds(digits: int, decimals: int) -> int:
    """Convert microseconds to nanoseconds; `NULL` where that is not exact."""
    if decimals > _NS_DECIMALS:
        divisor = grammar.POWERS_OF_TEN[decimals - _NS_DECIMALS]
        return digits // divisor if digits % divisor == 0 else NULL
    factor = grammar.POWERS_OF_TEN[_NS_DECIMALS - decimals]
    return digits * factor if abs(digits) < LATEST_NS // factor else NULL


@compiled
def _id_in_string(address: int, end: int) -> int:
    """Parse the first number in a string such as `stream 7`; `NULL` where Python could find another one."""
    before = 0
    while address < end and not grammar.ZERO <= byte(address) <= grammar.NINE:
        before = byte(address)
        if _may_be_digit(before):
            return NULL
        address += 1
    first, number = address, 0
    while address < end and grammar.ZERO <= byte(address) <= grammar.NINE:
        number = number * 10 + byte(address) - grammar.ZERO
        address += 1
    if address == first or address - first > _MAX_ID_DIGITS or _may_be_digit(byte(address)):
        return NULL
    return -number if before == grammar.MINUS else number


@compiled
def _may_be_digit(character: int) -> bool:
    """Whether Python may read this byte as a digit or a part of a number."""
    return character in (_UNDERSCORE, grammar.BACKSLASH) or character > _MAX_ASCII


@compiled
def _read_triple(address: int, slot: int, scratch: int) -> tuple[int, bool]:
    """Read an array of three integers."""
    start = address
    rest = _rest_of_triple(slot)
    for index in range(3):
        digits, decimals, end = grammar.read_number(skip_blanks(address + 1))
        if end == INVALID or decimals:
            return _not_a_triple(start, slot, scratch)
        poke(scratch, slot if index == 0 else rest + index - 1, digits)
        address = skip_blanks(end)
        if byte(address) != (grammar.ARRAY_END if index == 2 else grammar.COMMA):
            return _not_a_triple(start, slot, scratch)
    return address + 1, True


@compiled
def _not_a_triple(address: int, slot: int, scratch: int) -> tuple[int, bool]:
    _clear_slot(scratch, slot, _TRIPLE)
    return value_end(address), False


@compiled
def _read_event(address: int, scratch: int, origin: int) -> tuple[int, int]:
    """Read the members of an event; return its end, and the bits of slots with values of another kind."""
    gaps = scratch + layout.GAPS * intrinsics.WORD
    mistyped, level, last = 0, _START, _FIRST_GAP
    while True:
        gap = _cached_gap(gaps, last, address)
        if gap != _NO_GAP:
            address += _gap_field(gaps, gap, _LENGTH)
            slot, level = _gap_field(gaps, gap, _SLOT), _gap_field(gaps, gap, _LEVEL)
        else:
            start = address
            address, slot, level = _next_value(address, level)
            if address == INVALID:
                return address, mistyped
            gap = _add_gap(gaps, last, start, address, slot, level)
        if level == _END:
            return address, mistyped
        last = gap
        address, mistyped = _read_member(address, slot, scratch, origin, mistyped)
        if address == INVALID:
            return address, mistyped


@compiled
def _read_member(address: int, slot: int, scratch: int, origin: int, mistyped: int) -> tuple[int, int]:
    """Skip a value, or read it into its slot."""
    if slot == NO_SLOT:
        return grammar.cached_value_end(address, scratch, origin), mistyped
    address, accepted = _read_value(address, slot, scratch, origin)
    return address, (mistyped & ~(1 << slot) if accepted else mistyped | (1 << slot))


@compiled
def _next_value(address: int, level: int) -> tuple[int, int, int]:
    """Parse the gap before the next value, or the event's end; return the address, the slot and the level."""
    # The arguments are no value of their own: their members are.
    address, level = _next_member(address, level)
    while address != INVALID and level != _END:
        address, slot = grammar.read_key(address)
        if address == INVALID or slot != _ARGS or level == _INSIDE:
            at_its_level = (slot > _ARGS) == (level == _INSIDE)
            return address, (slot if at_its_level else NO_SLOT), level
        address, level = _open_arguments(address, level)
        if address != INVALID and level == _AFTER:
            address, level = _next_member(address, level)
    return address, NO_SLOT, level


@compiled
def _next_member(address: int, level: int) -> tuple[int, int]:
    if level == _START:
        address = skip_blanks(address + 1)
        return (address + 1, _END) if byte(address) == grammar.OBJECT_END else (address, _BEFORE)
    address = skip_blanks(address)
    if level == _INSIDE and byte(address) == grammar.OBJECT_END:
        level = _AFTER
        address = skip_blanks(address + 1)
    if level != _INSIDE and byte(address) == grammar.OBJECT_END:
        return address + 1, _END
    return (skip_blanks(address + 1) if byte(address) == grammar.COMMA else INVALID), level


@compiled
def _open_arguments(address: int, level: int) -> tuple[int, int]:
    """Skip to the first argument, or past the arguments if there are none."""
    # Arguments that occur twice, or are no object, are left to the reference.
    if level == _AFTER:
        return INVALID, level
    if byte(address) == grammar.OBJECT:
        address = skip_blanks(address + 1)
        return (address + 1, _AFTER) if byte(address) == grammar.OBJECT_END else (address, _INSIDE)
    return (grammar.literal_end(address) if grammar.is_null(address) else INVALID), _AFTER


@compiled
def scan(text: int, length: int, start: int, interner: int, buffers: int, scratch: int) -> int:
    """Scan the events of a text.

    Args:
        text: Address of the text, which `ROOM` readable bytes follow, the first ones zero.
        length: Its length.
        start: Where to begin in it.
        interner: Address of the interner's header.
        buffers: Address of the row buffers' header; `POSITION` is set to the end of the last event taken.
        scratch: Address of `SCRATCH` numbers.

    Returns:
        `DONE`, `CLOSED`, `UNSUPPORTED` or `NO_SPACE`.
    """
    _reset_gaps(scratch + layout.GAPS * intrinsics.WORD)
    grammar.reset_value_cache(scratch)
    address = skip_blanks(text + start)
    poke(buffers, layout.POSITION, address - text)
    while byte(address) == grammar.OBJECT:
        begin = address
        for slot in range(layout.N_SLOTS):
            poke(scratch, slot, NULL)
        address, mistyped = _read_event(address, scratch, text)
        if address == INVALID:
            return layout.UNSUPPORTED
        state = add_row(begin, address, scratch, mistyped, text, interner, buffers)
        if state != layout.DONE:
            return state
        increment(buffers, layout.N_EVENTS)
        address = skip_blanks(address)
        poke(buffers, layout.POSITION, address - text)
        if address - text >= length:
            return layout.DONE
        if byte(address) == grammar.ARRAY_END:
            return layout.CLOSED
        if byte(address) != grammar.COMMA:
            return layout.UNSUPPORTED
        address = skip_blanks(address + 1)
        poke(buffers, layout.POSITION, address - text)
    return layout.UNSUPPORTED
