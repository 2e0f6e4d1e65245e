"""Append rows to the buffers, intern strings, and compute on finished integer columns."""

from __future__ import annotations

import numpy as np

from tracekit.ingest.kineto import columns
from tracekit.ingest.kineto.scan.codegen.grammar import span_length, span_start, unescaped_end
from tracekit.ingest.kineto.scan.codegen.intrinsics import MIX, WORD, byte, compiled, equal, peek, poke, word
from tracekit.ingest.kineto.scan.layout import (
    AT_BYTES,
    AT_HASHES,
    AT_SPANS,
    CAPACITY,
    CATEGORY_ROWS,
    COLLECTIVE_SLOTS,
    COLLECTIVES,
    COUNTERS,
    DEVICE,
    DEVICE_COLUMNS,
    DEVICE_STRING_COLUMNS,
    DEVICE_STRINGS,
    DONE,
    EMPTY,
    FULL,
    GENERATED,
    HASH_BITS,
    HASH_SIZE,
    HOST,
    HOST_COLUMNS,
    HOST_STRING_COLUMNS,
    HOST_STRINGS,
    KERNEL_SLOTS,
    KIND_BITS,
    MAX_STRING_BYTES,
    MAX_STRINGS,
    MEMORY,
    MEMORY_COLUMNS,
    N_BAD_DURATION,
    N_BYTES,
    N_COLLECTIVES,
    N_COUNTED,
    N_COUNTERS,
    N_DEVICE,
    N_GENERATED,
    N_HOST,
    N_KEYS,
    N_MEMORY,
    N_STRINGS,
    N_UNKNOWN,
    NO_SPACE,
    NULL,
    SLOT,
    SLOT_KINDS,
    UNKNOWN,
    UNSUPPORTED,
    Row,
    SlotKind,
)
from tracekit.schema import HOST_DEVICE

_NONE, _HOST, _DEVICE, _MEMORY, _COUNTER, _UNSUPPORTED, _NO_SPACE = (int(row) for row in Row)
_PH, _CAT, _NAME, _PID, _TID = SLOT.ph, SLOT.cat, SLOT.name, SLOT.pid, SLOT.tid
_TS, _DUR, _CONCRETE = SLOT.ts, SLOT.dur, SLOT.concrete
_COLLECTIVE, _BACKEND = SLOT.collective, SLOT.kernel_backend
_ID, _OLD_ID, _DIMS, _OLD_DIMS = SLOT.external_id, SLOT.external_id_old, SLOT.dims, SLOT.dims_old
_ON_DEVICE, _STREAM, _GRAPH, _NODE = SLOT.device, SLOT.stream, SLOT.graph_id, SLOT.graph_node_id
_TYPE, _INDEX, _BYTES = SLOT.device_type, SLOT.device_id, SLOT.alloc_bytes

_X, _I, _OLD_I, _C = (ord(phase) for phase in "XiIC")
_IGNORED_PHASES = np.array([chr(code) in "MstfR" for code in range(256)])
_MAX_ESCAPE = len("\\u005b")  # the most bytes of a character that could be written as one
_MEMORY_EVENT = int.from_bytes(columns.MEMORY_EVENT.encode(), "little")
_NO_CODE = _NO_ROW = -1


def _bits(*slots: int) -> int:
    return sum(1 << slot for slot in {*slots} if slot < N_KEYS)


_HOST_SLOTS = np.array([*HOST_COLUMNS.values()])
_HOST_STRING_SLOTS = np.array([*HOST_STRING_COLUMNS.values()])
_DEVICE_SLOTS = np.array([*DEVICE_COLUMNS.values()])
_MEMORY_SLOTS = np.array([*MEMORY_COLUMNS.values()])
_FLOPS_COLUMN = [*HOST_STRING_COLUMNS.values()].index(_CONCRETE)
_COLLECTIVE_SLOTS = np.array(COLLECTIVE_SLOTS)
_COLLECTIVE_IS_TEXT = SLOT_KINDS[_COLLECTIVE_SLOTS] == SlotKind.STRING
_KERNEL_SLOTS = np.array(KERNEL_SLOTS)
_HOST_NEEDS = _bits(
    *HOST_COLUMNS.values(),
    *HOST_STRING_COLUMNS.values(),
    *COLLECTIVE_SLOTS,
    *KERNEL_SLOTS,
    _OLD_ID,
    _OLD_DIMS,
)
_DEVICE_NEEDS = _bits(*DEVICE_COLUMNS.values(), *DEVICE_STRING_COLUMNS.values(), _OLD_ID)
_MEMORY_NEEDS = _bits(*MEMORY_COLUMNS.values(), _TYPE)


@compiled
def increment(buffers: int, field: int) -> None:
    """Add one to a count of the row buffers' header."""
    poke(buffers, field, peek(buffers, field) + 1)


@compiled
def _mixed(number: int) -> int:
    number *= MIX
    return number ^ (number >> 32)


@compiled
def _hash(at: int, length: int) -> int:
    """Hash a text in two independent streams, since each step of one waits for the step before."""
    left, right = length, MIX
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
    """Return the code of a string, adding it if it is new; `FULL` if there is no space for it."""
    hashes, spans, text = peek(interner, AT_HASHES), peek(interner, AT_SPANS), peek(interner, AT_BYTES)
    wanted = _hash(at, length)
    entry = (wanted >> (64 - HASH_BITS)) & (HASH_SIZE - 1)
    code = peek(hashes, 2 * entry + 1)
    while code != EMPTY:
        candidate = peek(hashes, 2 * entry) == wanted and peek(spans, 2 * code + 1) == length
        if candidate and equal(text + peek(spans, 2 * code), at, length):
            return code
        entry = (entry + 1) & (HASH_SIZE - 1)
        code = peek(hashes, 2 * entry + 1)
    return _add_string(interner, at, length, entry, wanted)


@compiled
def _add_string(interner: int, at: int, length: int, entry: int, wanted: int) -> int:
    code, start = peek(interner, N_STRINGS), peek(interner, N_BYTES)
    words = (length + WORD - 1) // WORD
    if code == MAX_STRINGS or start + words * WORD > MAX_STRING_BYTES:
        return FULL
    for index in range(words):
        poke(peek(interner, AT_BYTES) + start, index, word(at + index * WORD))
    hashes, spans = peek(interner, AT_HASHES), peek(interner, AT_SPANS)
    poke(hashes, 2 * entry, wanted)
    poke(hashes, 2 * entry + 1, code)
    poke(spans, 2 * code, start)
    poke(spans, 2 * code + 1, length)
    poke(interner, N_STRINGS, code + 1)
    poke(interner, N_BYTES, start + words * WORD)
    return code


@compiled
def _span_code(packed: int, origin: int, interner: int) -> int:
    return code_of(interner, span_start(packed, origin), span_length(packed))


@compiled
def _row_of(scratch: int, origin: int, interner: int, buffers: int) -> int:
    """Determine the `Row` of an event, with its kind in the low bits."""
    phase = peek(scratch, _PH)
    if phase == NULL or span_length(phase) != 1:
        return _UNSUPPORTED << KIND_BITS
    letter = byte(span_start(phase, origin))
    if letter == _X:
        return _row_of_interval(peek(scratch, _CAT), origin, interner, buffers)
    if letter in (_I, _OLD_I):
        return _row_of_instant(peek(scratch, _NAME), origin) << KIND_BITS
    if letter == _C:
        return _COUNTER << KIND_BITS
    return (_NONE if _IGNORED_PHASES[letter] else _UNSUPPORTED) << KIND_BITS


@compiled
def _row_of_interval(category: int, origin: int, interner: int, buffers: int) -> int:
    if category == NULL:
        return _UNSUPPORTED << KIND_BITS
    code = _span_code(category, origin, interner)
    if code == FULL:
        return _NO_SPACE << KIND_BITS
    row = CATEGORY_ROWS[code] if code < len(CATEGORY_ROWS) else -1
    if row >= 0:
        return row
    if _has_escape(category, origin) or peek(buffers, N_UNKNOWN) >= peek(buffers, CAPACITY):
        return _UNSUPPORTED << KIND_BITS
    poke(peek(buffers, UNKNOWN), peek(buffers, N_UNKNOWN), code)
    increment(buffers, N_UNKNOWN)
    return _NONE << KIND_BITS


@compiled
def _row_of_instant(name: int, origin: int) -> int:
    if name == NULL:
        return _NONE
    if span_length(name) == WORD and word(span_start(name, origin)) == _MEMORY_EVENT:
        return _MEMORY
    escaped = span_length(name) <= _MAX_ESCAPE * WORD and _has_escape(name, origin)
    return _UNSUPPORTED if escaped else _NONE


@compiled
def _has_escape(packed: int, origin: int) -> bool:
    start = span_start(packed, origin)
    return unescaped_end(start) != start + span_length(packed)


@compiled
def _fill(scratch: int, slot: int, other: int) -> None:
    """Copy another slot into one that is absent."""
    if peek(scratch, slot) == NULL:
        poke(scratch, slot, peek(scratch, other))


@compiled
def _replace(scratch: int, slot: int, value: int, other: int) -> None:
    if peek(scratch, slot) == value:
        poke(scratch, slot, other)


@compiled
def add_row(
    begin: int, end: int, scratch: int, mistyped: int, origin: int, interner: int, buffers: int
) -> int:
    """Add the row of the event between two addresses; return `DONE` or how the scan ends."""
    becomes = _row_of(scratch, origin, interner, buffers)
    row, kind = becomes >> KIND_BITS, becomes & ((1 << KIND_BITS) - 1)
    if row == _NONE:
        return DONE
    if row == _HOST:
        return _add_host(kind, scratch, mistyped, origin, interner, buffers)
    if row == _DEVICE:
        return _add_device(kind, scratch, mistyped, origin, interner, buffers)
    if row == _MEMORY:
        return _add_memory(scratch, mistyped, buffers)
    if row == _COUNTER:
        return _add_counter(begin - origin, end - origin, buffers)
    return NO_SPACE if row == _NO_SPACE else UNSUPPORTED


@compiled
def _prepare(scratch: int, mistyped: int, needs: int) -> bool:
    """Fill in the members that all rows have; return whether the event has what its row needs."""
    if mistyped & needs != 0 or peek(scratch, _TS) == NULL or peek(scratch, _NAME) == NULL:
        return False
    for slot in (_PID, _TID):
        _replace(scratch, slot, NULL, 0)
    _fill(scratch, _ID, _OLD_ID)
    _replace(scratch, _ID, 0, NULL)  # CUPTI's "none"
    return True


@compiled
def _fix_duration(scratch: int, buffers: int) -> None:
    """Set a duration that is absent or negative to zero, and count it."""
    if peek(scratch, _DUR) < 0:
        poke(scratch, _DUR, 0)
        increment(buffers, N_BAD_DURATION)


@compiled
def _add_host(kind: int, scratch: int, mistyped: int, origin: int, interner: int, buffers: int) -> int:
    row, capacity = peek(buffers, N_HOST), peek(buffers, CAPACITY)
    if not _prepare(scratch, mistyped, _HOST_NEEDS) or row >= capacity:
        return UNSUPPORTED
    _fill(scratch, _DIMS, _OLD_DIMS)
    strings = peek(buffers, HOST_STRINGS)
    for column in range(len(_HOST_STRING_SLOTS)):
        packed = peek(scratch, _HOST_STRING_SLOTS[column])
        code = _NO_CODE
        if column == _FLOPS_COLUMN and peek(strings, row) >= N_COUNTED:
            packed = NULL
        if packed != NULL:
            code = _span_code(packed, origin, interner)
            if code == FULL:
                return NO_SPACE
        poke(strings, column * capacity + row, code)
    if peek(scratch, _COLLECTIVE) != NULL and not _add_collective(row, scratch, origin, interner, buffers):
        return NO_SPACE
    if peek(scratch, _BACKEND) != NULL and not _add_generated(row, scratch, origin, interner, buffers):
        return NO_SPACE
    _fix_duration(scratch, buffers)
    for column in range(len(_HOST_SLOTS)):
        poke(peek(buffers, HOST), column * capacity + row, peek(scratch, _HOST_SLOTS[column]))
    poke(peek(buffers, HOST), len(_HOST_SLOTS) * capacity + row, kind)
    increment(buffers, N_HOST)
    return DONE


@compiled
def _add_collective(host_row: int, scratch: int, origin: int, interner: int, buffers: int) -> bool:
    """Add the metadata of a collective; return whether there was space for its strings."""
    row, capacity, metadata = (
        peek(buffers, N_COLLECTIVES),
        peek(buffers, CAPACITY),
        peek(buffers, COLLECTIVES),
    )
    poke(metadata, row, host_row)
    for column in range(len(_COLLECTIVE_SLOTS)):
        value = peek(scratch, _COLLECTIVE_SLOTS[column])
        if _COLLECTIVE_IS_TEXT[column]:
            value = _NO_CODE if value == NULL else _span_code(value, origin, interner)
            if value == FULL and peek(scratch, _COLLECTIVE_SLOTS[column]) != NULL:
                return False
        poke(metadata, (1 + column) * capacity + row, value)
    increment(buffers, N_COLLECTIVES)
    return True


@compiled
def _add_generated(host_row: int, scratch: int, origin: int, interner: int, buffers: int) -> bool:
    """Add the metadata of a generated kernel; return whether there was space for its strings."""
    row, capacity, metadata = (
        peek(buffers, N_GENERATED),
        peek(buffers, CAPACITY),
        peek(buffers, GENERATED),
    )
    poke(metadata, row, host_row)
    for column in range(len(_KERNEL_SLOTS)):
        packed = peek(scratch, _KERNEL_SLOTS[column])
        code = _NO_CODE
        if packed != NULL:
            code = _span_code(packed, origin, interner)
            if code == FULL:
                return False
        poke(metadata, (1 + column) * capacity + row, code)
    increment(buffers, N_GENERATED)
    return True


@compiled
def _add_device(kind: int, scratch: int, mistyped: int, origin: int, interner: int, buffers: int) -> int:
    row, capacity = peek(buffers, N_DEVICE), peek(buffers, CAPACITY)
    needs = _DEVICE_NEEDS
    if peek(scratch, _ON_DEVICE) == NULL:
        needs |= 1 << _PID
    if peek(scratch, _STREAM) == NULL:
        needs |= 1 << _TID
    if not _prepare(scratch, mistyped, needs) or row >= capacity:
        return UNSUPPORTED
    _fill(scratch, _ON_DEVICE, _PID)
    _fill(scratch, _STREAM, _TID)
    _replace(scratch, _GRAPH, 0, NULL)
    _replace(scratch, _NODE, 0, NULL)
    code = _span_code(peek(scratch, _NAME), origin, interner)
    if code == FULL:
        return NO_SPACE
    poke(peek(buffers, DEVICE_STRINGS), row, code)
    _fix_duration(scratch, buffers)
    for column in range(len(_DEVICE_SLOTS)):
        poke(peek(buffers, DEVICE), column * capacity + row, peek(scratch, _DEVICE_SLOTS[column]))
    poke(peek(buffers, DEVICE), len(_DEVICE_SLOTS) * capacity + row, kind)
    increment(buffers, N_DEVICE)
    return DONE


@compiled
def _add_memory(scratch: int, mistyped: int, buffers: int) -> int:
    row, capacity = peek(buffers, N_MEMORY), peek(buffers, CAPACITY)
    if not _prepare(scratch, mistyped, _MEMORY_NEEDS) or row >= capacity:
        return UNSUPPORTED
    if peek(scratch, _TYPE) == NULL or peek(scratch, _TYPE) == 0:
        poke(scratch, _INDEX, HOST_DEVICE)
    _replace(scratch, _INDEX, NULL, 0)
    _replace(scratch, _BYTES, NULL, 0)
    for column in range(len(_MEMORY_SLOTS)):
        poke(peek(buffers, MEMORY), column * capacity + row, peek(scratch, _MEMORY_SLOTS[column]))
    increment(buffers, N_MEMORY)
    return DONE


@compiled
def _add_counter(start: int, end: int, buffers: int) -> int:
    row, capacity = peek(buffers, N_COUNTERS), peek(buffers, CAPACITY)
    if row >= capacity:
        return UNSUPPORTED
    poke(peek(buffers, COUNTERS), row, start)
    poke(peek(buffers, COUNTERS), capacity + row, end)
    increment(buffers, N_COUNTERS)
    return DONE


@compiled
def distinct(count: int, codes: int, indices: int, found: int, latest: int) -> int:
    """Find the distinct codes of some rows, in the order of their first occurrence.

    Args:
        count: Number of rows.
        codes: Address of their codes, -1 for none.
        indices: Address for the index of each row's code among the distinct ones, -1 for none.
        found: Address for the distinct codes.
        latest: Address of an element for every code, -1 before and after.

    Returns:
        Number of distinct codes.
    """
    occur = 0
    for row in range(count):
        code = peek(codes, row)
        index = _NO_CODE
        if code != _NO_CODE:
            index = peek(latest, code)
            if index == _NO_CODE:
                index = occur
                poke(latest, code, index)
                poke(found, index, code)
                occur += 1
        poke(indices, row, index)
    for index in range(occur):
        poke(latest, peek(found, index), _NO_CODE)
    return occur


@compiled
def nest(
    count: int, known: int, thread: int, start: int, end: int, parent: int, depth: int, latest: int
) -> int:
    """Find the parent and the depth of each interval: the compiled counterpart of `ingest.nesting`.

    Args:
        count: Number of rows.
        known: Number of first rows whose depths are given.
        thread: Address of thread numbers; the rows of a thread are sorted by start, then by descending end.
        start: Address of starts.
        end: Address of ends.
        parent: Address for the innermost enclosing row of each row, -1 for none.
        depth: Address for the number of rows that enclose each.
        latest: Address of the latest row of each thread, -1 for none.
    """
    for row in range(count):
        lane = peek(thread, row)
        above = peek(latest, lane)
        first, last = peek(start, row), peek(end, row)
        # No row of the thread between this row and `above` encloses this row, so try the parent of `above`.
        while above != _NO_ROW and (peek(end, above) < last or peek(end, above) <= first):
            above = peek(parent, above)
        poke(parent, row, above)
        poke(latest, lane, row)
        if row >= known:
            poke(depth, row, 0 if above == _NO_ROW else peek(depth, above) + 1)
    return count


@compiled
def inherit(count: int, parent: int, values: int) -> int:
    """Give each row without a value, -1, the one of the innermost enclosing row that has one.

    Args:
        count: Number of rows.
        parent: Address of their parents.
        values: Address of their values, which are changed.
    """
    for row in range(count):
        above = peek(parent, row)
        if above != _NO_ROW and peek(values, row) == -1:
            poke(values, row, peek(values, above))
    return count
