"""Append rows to the buffers, intern strings, and compute on finished integer columns."""

from __future__ import annotations

import numpy as np

from tracekit.ingest.kineto import columns
from tracekit.ingest.kineto.scan import layout
from tracekit.ingest.kineto.scan.codegen.grammar import span_length, span_start, unescaped_end
from tracekit.ingest.kineto.scan.codegen.intrinsics import MIX, WORD, byte, compiled, equal, peek, poke, word
from tracekit.ingest.kineto.scan.layout import NULL, SLOT, Row, SlotKind
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
    return sum(1 << slot for slot in {*slots} if slot < layout.N_KEYS)


_HOST_SLOTS = np.array([*layout.HOST_COLUMNS.values()])
_HOST_STRING_SLOTS = np.array([*layout.HOST_STRING_COLUMNS.values()])
_DEVICE_SLOTS = np.array([*layout.DEVICE_COLUMNS.values()])
_MEMORY_SLOTS = np.array([*layout.MEMORY_COLUMNS.values()])
_FLOPS_COLUMN = [*layout.HOST_STRING_COLUMNS.values()].index(_CONCRETE)
_METADATA_SLOTS = np.array([*layout.COLLECTIVE_SLOTS, *layout.KERNEL_SLOTS])
_N_COLLECTIVE, _N_METADATA = len(layout.COLLECTIVE_SLOTS), len(_METADATA_SLOTS)
_STRING = int(SlotKind.STRING)
_HOST_NEEDS = _bits(
    *layout.HOST_COLUMNS.values(),
    *layout.HOST_STRING_COLUMNS.values(),
    *_METADATA_SLOTS.tolist(),
    _OLD_ID,
    _OLD_DIMS,
)
_DEVICE_NEEDS = _bits(
    *layout.DEVICE_COLUMNS.values(),
    *layout.DEVICE_STRING_COLUMNS.values(),
    *layout.COLLECTIVE_SLOTS,
    _OLD_ID,
)
_MEMORY_NEEDS = _bits(*layout.MEMORY_COLUMNS.values(), _TYPE)


@compiled
def increment(buffers: int, field: int) -> None:
    """Add one to a count of the row buffers' header."""
    poke(buffers, field, peek(buffers, field) + 1)


@compiled
def _mixed(number: int) -> int:
    number *= MIX
    return number ^ (number >> 32)


@compiled
def _hash(address: int, length: int) -> int:
    """Hash a text in two independent streams, since each step of one waits for the step before."""
    left, right = length, MIX
    while length >= 2 * WORD:
        left, right = _mixed(left ^ word(address)), _mixed(right ^ word(address + WORD))
        address += 2 * WORD
        length -= 2 * WORD
    if length >= WORD:
        left = _mixed(left ^ word(address))
        address += WORD
        length -= WORD
    if length:
        right = _mixed(right ^ (word(address) & ((1 << 8 * length) - 1)))
    return _mixed(left ^ right)


@compiled
def code_of(interner: int, address: int, length: int) -> int:
    """Return the code of a string, adding it if it is new; `FULL` if there is no space for it."""
    hashes, spans, text = (
        peek(interner, layout.AT_HASHES),
        peek(interner, layout.AT_SPANS),
        peek(interner, layout.AT_BYTES),
    )
    wanted = _hash(address, length)
    entry = (wanted >> (64 - layout.HASH_BITS)) & (layout.HASH_SIZE - 1)
    code = peek(hashes, 2 * entry + 1)
    while code != layout.EMPTY:
        candidate = peek(hashes, 2 * entry) == wanted and peek(spans, 2 * code + 1) == length
        if candidate and equal(text + peek(spans, 2 * code), address, length):
            return code
        entry = (entry + 1) & (layout.HASH_SIZE - 1)
        code = peek(hashes, 2 * entry + 1)
    return _add_string(interner, address, length, entry, wanted)


@compiled
def _add_string(interner: int, address: int, length: int, entry: int, wanted: int) -> int:
    code, start = peek(interner, layout.N_STRINGS), peek(interner, layout.N_BYTES)
    words = (length + WORD - 1) // WORD
    if code == layout.MAX_STRINGS or start + words * WORD > layout.MAX_STRING_BYTES:
        return layout.FULL
    for index in range(words):
        poke(peek(interner, layout.AT_BYTES) + start, index, word(address + index * WORD))
    hashes, spans = peek(interner, layout.AT_HASHES), peek(interner, layout.AT_SPANS)
    poke(hashes, 2 * entry, wanted)
    poke(hashes, 2 * entry + 1, code)
    poke(spans, 2 * code, start)
    poke(spans, 2 * code + 1, length)
    poke(interner, layout.N_STRINGS, code + 1)
    poke(interner, layout.N_BYTES, start + words * WORD)
    return code


@compiled
def _span_code(packed: int, origin: int, interner: int) -> int:
    return code_of(interner, span_start(packed, origin), span_length(packed))


@compiled
def _row_of(scratch: int, origin: int, interner: int, buffers: int) -> int:
    """Determine the `Row` of an event, with its kind in the low bits."""
    phase = peek(scratch, _PH)
    if phase == NULL or span_length(phase) != 1:
        return _UNSUPPORTED << layout.KIND_BITS
    letter = byte(span_start(phase, origin))
    if letter == _X:
        return _row_of_interval(peek(scratch, _CAT), origin, interner, buffers)
    if letter in (_I, _OLD_I):
        return _row_of_instant(peek(scratch, _NAME), origin) << layout.KIND_BITS
    if letter == _C:
        return _COUNTER << layout.KIND_BITS
    return (_NONE if _IGNORED_PHASES[letter] else _UNSUPPORTED) << layout.KIND_BITS


@compiled
def _row_of_interval(category: int, origin: int, interner: int, buffers: int) -> int:
    if category == NULL:
        return _UNSUPPORTED << layout.KIND_BITS
    code = _span_code(category, origin, interner)
    if code == layout.FULL:
        return _NO_SPACE << layout.KIND_BITS
    row = layout.CATEGORY_ROWS[code] if code < len(layout.CATEGORY_ROWS) else -1
    if row >= 0:
        return row
    if _has_escape(category, origin) or peek(buffers, layout.N_UNKNOWN) >= peek(buffers, layout.CAPACITY):
        return _UNSUPPORTED << layout.KIND_BITS
    poke(peek(buffers, layout.UNKNOWN), peek(buffers, layout.N_UNKNOWN), code)
    increment(buffers, layout.N_UNKNOWN)
    return _NONE << layout.KIND_BITS


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
    row, kind = becomes >> layout.KIND_BITS, becomes & ((1 << layout.KIND_BITS) - 1)
    if row == _NONE:
        return layout.DONE
    if row == _HOST:
        return _add_host(kind, scratch, mistyped, origin, interner, buffers)
    if row == _DEVICE:
        return _add_device(kind, scratch, mistyped, origin, interner, buffers)
    if row == _MEMORY:
        return _add_memory(scratch, mistyped, buffers)
    if row == _COUNTER:
        return _add_counter(begin - origin, end - origin, buffers)
    return layout.NO_SPACE if row == _NO_SPACE else layout.UNSUPPORTED


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
def _count_unfinished(scratch: int, buffers: int) -> None:
    """Count a duration that is absent or negative; it stays so."""
    if peek(scratch, _DUR) < 0:
        increment(buffers, layout.N_BAD_DURATION)


@compiled
def _add_host(kind: int, scratch: int, mistyped: int, origin: int, interner: int, buffers: int) -> int:
    row, capacity = peek(buffers, layout.N_HOST), peek(buffers, layout.CAPACITY)
    if not _prepare(scratch, mistyped, _HOST_NEEDS) or row >= capacity:
        return layout.UNSUPPORTED
    _fill(scratch, _DIMS, _OLD_DIMS)
    strings = peek(buffers, layout.HOST_STRINGS)
    for column in range(len(_HOST_STRING_SLOTS)):
        packed = peek(scratch, _HOST_STRING_SLOTS[column])
        code = _NO_CODE
        if column == _FLOPS_COLUMN and peek(strings, row) >= layout.N_COUNTED:
            packed = NULL
        if packed != NULL:
            code = _span_code(packed, origin, interner)
            if code == layout.FULL:
                return layout.NO_SPACE
        poke(strings, column * capacity + row, code)
    if peek(scratch, _COLLECTIVE) != NULL and not _add_metadata(
        layout.COLLECTIVES, layout.N_COLLECTIVES, row, scratch, origin, interner, buffers
    ):
        return layout.NO_SPACE
    if peek(scratch, _BACKEND) != NULL and not _add_metadata(
        layout.GENERATED, layout.N_GENERATED, row, scratch, origin, interner, buffers
    ):
        return layout.NO_SPACE
    _count_unfinished(scratch, buffers)
    for column in range(len(_HOST_SLOTS)):
        poke(peek(buffers, layout.HOST), column * capacity + row, peek(scratch, _HOST_SLOTS[column]))
    poke(peek(buffers, layout.HOST), len(_HOST_SLOTS) * capacity + row, kind)
    increment(buffers, layout.N_HOST)
    return layout.DONE


@compiled
def _add_metadata(
    buffer: int, count: int, of: int, scratch: int, origin: int, interner: int, buffers: int
) -> bool:
    """Add the metadata that few rows have; return whether there was space for its strings."""
    # Its slots are from `first` to `stop` in `_METADATA_SLOTS`; its buffer begins with the row that has it.
    first, stop = 0, _N_COLLECTIVE
    if buffer == layout.GENERATED:
        first, stop = _N_COLLECTIVE, _N_METADATA
    row, capacity, metadata = peek(buffers, count), peek(buffers, layout.CAPACITY), peek(buffers, buffer)
    poke(metadata, row, of)
    for column in range(first, stop):
        slot = _METADATA_SLOTS[column]
        value = peek(scratch, slot)
        if layout.SLOT_KINDS[slot] == _STRING:
            if value == NULL:
                value = _NO_CODE
            else:
                value = _span_code(value, origin, interner)
                if value == layout.FULL:
                    return False
        poke(metadata, (1 + column - first) * capacity + row, value)
    increment(buffers, count)
    return True


@compiled
def _add_device(kind: int, scratch: int, mistyped: int, origin: int, interner: int, buffers: int) -> int:
    row, capacity = peek(buffers, layout.N_DEVICE), peek(buffers, layout.CAPACITY)
    needs = _DEVICE_NEEDS
    if peek(scratch, _ON_DEVICE) == NULL:
        needs |= 1 << _PID
    if peek(scratch, _STREAM) == NULL:
        needs |= 1 << _TID
    if not _prepare(scratch, mistyped, needs) or row >= capacity:
        return layout.UNSUPPORTED
    _fill(scratch, _ON_DEVICE, _PID)
    _fill(scratch, _STREAM, _TID)
    _replace(scratch, _GRAPH, 0, NULL)
    _replace(scratch, _NODE, 0, NULL)
    code = _span_code(peek(scratch, _NAME), origin, interner)
    if code == layout.FULL:
        return layout.NO_SPACE
    poke(peek(buffers, layout.DEVICE_STRINGS), row, code)
    if peek(scratch, _COLLECTIVE) != NULL and not _add_metadata(
        layout.OF_KERNELS, layout.N_OF_KERNELS, row, scratch, origin, interner, buffers
    ):
        return layout.NO_SPACE
    _count_unfinished(scratch, buffers)
    for column in range(len(_DEVICE_SLOTS)):
        poke(peek(buffers, layout.DEVICE), column * capacity + row, peek(scratch, _DEVICE_SLOTS[column]))
    poke(peek(buffers, layout.DEVICE), len(_DEVICE_SLOTS) * capacity + row, kind)
    increment(buffers, layout.N_DEVICE)
    return layout.DONE


@compiled
def _add_memory(scratch: int, mistyped: int, buffers: int) -> int:
    row, capacity = peek(buffers, layout.N_MEMORY), peek(buffers, layout.CAPACITY)
    if not _prepare(scratch, mistyped, _MEMORY_NEEDS) or row >= capacity:
        return layout.UNSUPPORTED
    if peek(scratch, _TYPE) == NULL or peek(scratch, _TYPE) == 0:
        poke(scratch, _INDEX, HOST_DEVICE)
    _replace(scratch, _INDEX, NULL, 0)
    _replace(scratch, _BYTES, NULL, 0)
    for column in range(len(_MEMORY_SLOTS)):
        poke(peek(buffers, layout.MEMORY), column * capacity + row, peek(scratch, _MEMORY_SLOTS[column]))
    increment(buffers, layout.N_MEMORY)
    return layout.DONE


@compiled
def _add_counter(start: int, end: int, buffers: int) -> int:
    row, capacity = peek(buffers, layout.N_COUNTERS), peek(buffers, layout.CAPACITY)
    if row >= capacity:
        return layout.UNSUPPORTED
    poke(peek(buffers, layout.COUNTERS), row, start)
    poke(peek(buffers, layout.COUNTERS), capacity + row, end)
    increment(buffers, layout.N_COUNTERS)
    return layout.DONE


@compiled
def distinct(count: int, codes: int, indices: int, codes_found: int, latest: int) -> int:
    """Find the distinct codes of some rows, in the order of their first occurrence.

    Args:
        count: Number of rows.
        codes: Address of their codes, -1 for none.
        indices: Address for the index of each row's code among the distinct ones, -1 for none.
        codes_found: Address for the distinct codes.
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
                poke(codes_found, index, code)
                occur += 1
        poke(indices, row, index)
    for index in range(occur):
        poke(latest, peek(codes_found, index), _NO_CODE)
    return occur


@compiled
def nest(
    count: int, n_known: int, thread: int, start: int, end: int, parent: int, depth: int, latest: int
) -> int:
    """Find the parent and the depth of each interval: the compiled counterpart of `ingest.nesting`.

    Args:
        count: Number of rows.
        n_known: Number of first rows whose depths are given.
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
        if row >= n_known:
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
