"""What becomes of an event: which table its phase and category lead to, and its row there."""

from __future__ import annotations

import numpy as np

from tracekit.ingest.kineto import names
from tracekit.ingest.kineto.scan import layout
from tracekit.ingest.kineto.scan.codegen.grammar import plain_end
from tracekit.ingest.kineto.scan.codegen.interning import code_of
from tracekit.ingest.kineto.scan.codegen.intrinsics import WORD, byte, compiled, peek, poke, word
from tracekit.ingest.kineto.scan.codegen.spans import length_of, start_of
from tracekit.ingest.kineto.scan.interner import FULL
from tracekit.ingest.kineto.scan.layout import KIND_BITS, MEANING, NULL, Row
from tracekit.ingest.kineto.scan.sheets import (
    COUNTERS,
    CROWDED,
    DEVICE,
    DEVICE_TEXTS,
    DONE,
    HOST,
    HOST_TEXTS,
    MEMORY,
    N_BAD_DURATION,
    N_COUNTERS,
    N_DEVICE,
    N_HOST,
    N_MEMORY,
    N_UNKNOWN,
    ROWS,
    SURPRISED,
    UNKNOWN,
)
from tracekit.ingest.kineto.scan.slots import COUNT, SLOT
from tracekit.schema import HOST_DEVICE

_NONE, _HOST, _DEVICE, _MEMORY, _COUNTER, _SURPRISE, _NO_ROOM = (int(row) for row in Row)
_PH, _CAT, _NAME, _PID, _TID = SLOT.ph, SLOT.cat, SLOT.name, SLOT.pid, SLOT.tid
_TS, _DUR, _CONCRETE = SLOT.ts, SLOT.dur, SLOT.concrete
_ID, _OLD_ID, _DIMS, _OLD_DIMS = SLOT.external_id, SLOT.external_id_old, SLOT.dims, SLOT.dims_old
_ON_DEVICE, _STREAM, _GRAPH, _NODE = SLOT.device, SLOT.stream, SLOT.graph_id, SLOT.graph_node_id
_TYPE, _INDEX, _BYTES = SLOT.device_type, SLOT.device_id, SLOT.alloc_bytes

_X, _I, _OLD_I, _C = (ord(phase) for phase in "XiIC")
_SILENT = np.array([chr(code) in "MstfR" for code in range(256)])
_ESCAPED = len("\\u005b")  # the most bytes of a character that could be a plain one
_MEMORY_EVENT = int.from_bytes(names.MEMORY_EVENT.encode(), "little")


def _bits(*slots: int) -> int:
    return sum(1 << slot for slot in {*slots} if slot < COUNT)


_HOST_SLOTS = np.array([*layout.HOST.values()])
_HOST_TEXTS = np.array([*layout.HOST_TEXTS.values()])
_DEVICE_SLOTS = np.array([*layout.DEVICE.values()])
_MEMORY_SLOTS = np.array([*layout.MEMORY.values()])
_FLOPS_TEXT = [*layout.HOST_TEXTS.values()].index(_CONCRETE)
_HOST_NEEDS = _bits(*layout.HOST.values(), *layout.HOST_TEXTS.values(), _OLD_ID, _OLD_DIMS)
_DEVICE_NEEDS = _bits(*layout.DEVICE.values(), *layout.DEVICE_TEXTS.values(), _OLD_ID)
_MEMORY_NEEDS = _bits(*layout.MEMORY.values(), _TYPE)


@compiled
def counted(sheets: int, what: int) -> None:
    """Count one more."""
    poke(sheets, what, peek(sheets, what) + 1)


@compiled
def _text_code(place: int, origin: int, interner: int) -> int:
    return code_of(interner, start_of(place, origin), length_of(place))


@compiled
def _becomes(places: int, origin: int, interner: int, sheets: int) -> int:
    """The `Row` of an event, its kind in the low bits."""
    phase = peek(places, _PH)
    if phase == NULL or length_of(phase) != 1:
        return _SURPRISE << KIND_BITS
    letter = byte(start_of(phase, origin))
    if letter == _X:
        return _interval(peek(places, _CAT), origin, interner, sheets)
    if letter in (_I, _OLD_I):
        return _instant(peek(places, _NAME), origin) << KIND_BITS
    if letter == _C:
        return _COUNTER << KIND_BITS
    return (_NONE if _SILENT[letter] else _SURPRISE) << KIND_BITS


@compiled
def _instant(name: int, origin: int) -> int:
    if name == NULL:
        return _NONE
    if length_of(name) == WORD and word(start_of(name, origin)) == _MEMORY_EVENT:
        return _MEMORY
    escaped = length_of(name) <= _ESCAPED * WORD and _has_escape(name, origin)
    return _SURPRISE if escaped else _NONE


@compiled
def _has_escape(place: int, origin: int) -> bool:
    """Whether a text is another than it looks."""
    start = start_of(place, origin)
    return plain_end(start) != start + length_of(place)


@compiled
def _interval(category: int, origin: int, interner: int, sheets: int) -> int:
    if category == NULL:
        return _SURPRISE << KIND_BITS
    code = _text_code(category, origin, interner)
    if code == FULL:
        return _NO_ROOM << KIND_BITS
    meaning = MEANING[code] if code < len(MEANING) else -1
    if meaning >= 0:
        return meaning
    if _has_escape(category, origin) or peek(sheets, N_UNKNOWN) >= peek(sheets, ROWS):
        return _SURPRISE << KIND_BITS
    poke(peek(sheets, UNKNOWN), peek(sheets, N_UNKNOWN), code)
    counted(sheets, N_UNKNOWN)
    return _NONE << KIND_BITS


@compiled
def _either(places: int, first: int, second: int) -> None:
    if peek(places, first) == NULL:
        poke(places, first, peek(places, second))


@compiled
def _instead(places: int, slot: int, value: int, other: int) -> None:
    if peek(places, slot) == value:
        poke(places, slot, other)


@compiled
def add_row(begin: int, end: int, places: int, odd: int, origin: int, interner: int, sheets: int) -> int:
    """Add the event between two addresses to its table; gives how the scan goes on."""
    becomes = _becomes(places, origin, interner, sheets)
    row, kind = becomes >> KIND_BITS, becomes & ((1 << KIND_BITS) - 1)
    if row == _NONE:
        return DONE
    if row == _HOST:
        return _add_host(kind, places, odd, origin, interner, sheets)
    if row == _DEVICE:
        return _add_device(kind, places, odd, origin, interner, sheets)
    if row == _MEMORY:
        return _add_memory(places, odd, sheets)
    if row == _COUNTER:
        return _add_counter(begin - origin, end - origin, sheets)
    return CROWDED if row == _NO_ROOM else SURPRISED


@compiled
def _checked(places: int, odd: int, needs: int) -> bool:
    """Whether an interval has what its row needs; one without a duration keeps its links."""
    if odd & needs != 0 or peek(places, _TS) == NULL or peek(places, _NAME) == NULL:
        return False
    for lane in (_PID, _TID):
        _instead(places, lane, NULL, 0)
    _either(places, _ID, _OLD_ID)
    _instead(places, _ID, 0, NULL)  # CUPTI's "none"
    return True


@compiled
def _timed(places: int, sheets: int) -> None:
    """Give an interval without a usable duration one of zero."""
    if peek(places, _DUR) < 0:
        poke(places, _DUR, 0)
        counted(sheets, N_BAD_DURATION)


@compiled
def _add_host(kind: int, places: int, odd: int, origin: int, interner: int, sheets: int) -> int:
    row, room = peek(sheets, N_HOST), peek(sheets, ROWS)
    if not _checked(places, odd, _HOST_NEEDS) or row >= room:
        return SURPRISED
    _either(places, _DIMS, _OLD_DIMS)
    texts = peek(sheets, HOST_TEXTS)
    for column in range(len(_HOST_TEXTS)):
        place = peek(places, _HOST_TEXTS[column])
        code = -1
        if column == _FLOPS_TEXT and peek(texts, row) >= layout.COUNTED:
            place = NULL
        if place != NULL:
            code = _text_code(place, origin, interner)
            if code == FULL:
                return CROWDED
        poke(texts, column * room + row, code)
    _timed(places, sheets)
    for column in range(len(_HOST_SLOTS)):
        poke(peek(sheets, HOST), column * room + row, peek(places, _HOST_SLOTS[column]))
    poke(peek(sheets, HOST), len(_HOST_SLOTS) * room + row, kind)
    counted(sheets, N_HOST)
    return DONE


@compiled
def _add_device(kind: int, places: int, odd: int, origin: int, interner: int, sheets: int) -> int:
    row, room = peek(sheets, N_DEVICE), peek(sheets, ROWS)
    needs = _DEVICE_NEEDS
    if peek(places, _ON_DEVICE) == NULL:
        needs |= 1 << _PID
    if peek(places, _STREAM) == NULL:
        needs |= 1 << _TID
    if not _checked(places, odd, needs) or row >= room:
        return SURPRISED
    _either(places, _ON_DEVICE, _PID)
    _either(places, _STREAM, _TID)
    _instead(places, _GRAPH, 0, NULL)
    _instead(places, _NODE, 0, NULL)
    code = _text_code(peek(places, _NAME), origin, interner)
    if code == FULL:
        return CROWDED
    poke(peek(sheets, DEVICE_TEXTS), row, code)
    _timed(places, sheets)
    for column in range(len(_DEVICE_SLOTS)):
        poke(peek(sheets, DEVICE), column * room + row, peek(places, _DEVICE_SLOTS[column]))
    poke(peek(sheets, DEVICE), len(_DEVICE_SLOTS) * room + row, kind)
    counted(sheets, N_DEVICE)
    return DONE


@compiled
def _add_memory(places: int, odd: int, sheets: int) -> int:
    row, room = peek(sheets, N_MEMORY), peek(sheets, ROWS)
    if not _checked(places, odd, _MEMORY_NEEDS) or row >= room:
        return SURPRISED
    if peek(places, _TYPE) == NULL or peek(places, _TYPE) == 0:
        poke(places, _INDEX, HOST_DEVICE)
    _instead(places, _INDEX, NULL, 0)
    _instead(places, _BYTES, NULL, 0)
    for column in range(len(_MEMORY_SLOTS)):
        poke(peek(sheets, MEMORY), column * room + row, peek(places, _MEMORY_SLOTS[column]))
    counted(sheets, N_MEMORY)
    return DONE


@compiled
def _add_counter(begin: int, end: int, sheets: int) -> int:
    row, room = peek(sheets, N_COUNTERS), peek(sheets, ROWS)
    if row >= room:
        return SURPRISED
    poke(peek(sheets, COUNTERS), row, begin)
    poke(peek(sheets, COUNTERS), room + row, end)
    counted(sheets, N_COUNTERS)
    return DONE
