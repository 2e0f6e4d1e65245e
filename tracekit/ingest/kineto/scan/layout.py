"""The memory that Python and the compiled code share: an event's slots, row buffers and the string interner.

The compiled code gets addresses of int64 arrays. The constants here say what each element means.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from enum import IntEnum
from types import SimpleNamespace

import msgspec
import numpy as np
import numpy.typing as npt

from tracekit.ingest.kineto import columns, flops
from tracekit.ingest.kineto.batches import (
    COLLECTIVE_NUMBERS,
    COLLECTIVE_TEXTS,
    DEVICE_NUMBERS,
    HOST_NUMBERS,
    KERNEL_TEXTS,
    MEMORY_NUMBERS,
)
from tracekit.ingest.kineto.events import Args, Event
from tracekit.ingest.kineto.split import ROOM
from tracekit.schema import C, DeviceKind, HostKind

NULL = -(1 << 63)
"""Marks an absent value; no value that is accepted is equal to it."""


class SlotKind(IntEnum):
    """Values that a slot accepts; an event with another value in a slot that its row needs is refused."""

    INTEGER = 0
    TIME = 1
    REAL = 2
    STRING = 3
    JSON = 4
    TRIPLE = 5
    ID = 6
    ARGS = 7


_SLOT_KINDS = {
    **dict.fromkeys(
        ("ph", "cat", "name", "stack", "direction", *COLLECTIVE_TEXTS, *KERNEL_TEXTS), SlotKind.STRING
    ),
    **dict.fromkeys(("ts", "dur"), SlotKind.TIME),
    **dict.fromkeys(("dims", "dims_old", "dtypes", "concrete"), SlotKind.JSON),
    **dict.fromkeys(("grid", "block"), SlotKind.TRIPLE),
    **dict.fromkeys(("pid", "tid", "device", "stream", "alloc_bytes", "device_id"), SlotKind.ID),
    C.OCCUPANCY_PCT: SlotKind.REAL,
    "args": SlotKind.ARGS,
}
_FIELDS = (*msgspec.structs.fields(Event), *msgspec.structs.fields(Args))  # `args` is the last of an event's
SLOT = SimpleNamespace(**{field.name: number for number, field in enumerate(_FIELDS)})
"""Slot of each attribute of the reference decoder's `Event`, which ends with `args`, and then of `Args`."""
N_KEYS = len(_FIELDS)
SLOT_KINDS = np.array([_SLOT_KINDS.get(field.name, SlotKind.INTEGER) for field in _FIELDS], np.int64)
KEYS = [field.encode_name.encode() for field in _FIELDS]
"""Key of each slot in the file."""
GRID_Y, BLOCK_Y = N_KEYS, N_KEYS + 2
"""Slots of the second number of each triple; the third number has the next one."""
N_SLOTS = N_KEYS + 4

MAX_GAPS, GAP_FIELDS, GAP_WAYS = 256, 8, 4
"""Gaps between values that are cached, numbers for each, and how many of these are its successors."""
VALUE_BITS, VALUE_FIELDS = 11, 2
"""The cache of arrays and objects: bits of an index, and numbers for each."""
GAPS = N_SLOTS
VALUES = GAPS + MAX_GAPS * GAP_FIELDS
SCRATCH = VALUES + (VALUE_FIELDS << VALUE_BITS)
"""Numbers of a scan's scratch memory: an event's slots, then the gaps, then the values."""


def _slots(*columns: str) -> dict[str, int]:
    """Return the slots of columns that are named as attributes of `Event` or `Args`."""
    return {column: getattr(SLOT, column) for column in columns}


HOST_COLUMNS = {
    C.START_NS: SLOT.ts,
    C.DUR_NS: SLOT.dur,
    **_slots(C.PID, C.TID, C.EXTERNAL_ID, *HOST_NUMBERS),
}
HOST_STRING_COLUMNS = {
    C.NAME: SLOT.name,
    C.INPUT_SHAPES: SLOT.dims,
    C.INPUT_DTYPES: SLOT.dtypes,
    C.STACK: SLOT.stack,
    C.FLOPS: SLOT.concrete,  # the work is computed from the name, the shapes and this
}
COLLECTIVE_SLOTS = [*_slots(*COLLECTIVE_NUMBERS, *COLLECTIVE_TEXTS).values()]
"""Slots of a collective's metadata: numbers, then strings."""
KERNEL_SLOTS = [*_slots(*KERNEL_TEXTS).values()]
"""Slots of a generated kernel's metadata, which are strings."""
DEVICE_COLUMNS = {
    C.START_NS: SLOT.ts,
    C.DUR_NS: SLOT.dur,
    **_slots(C.DEVICE, C.STREAM, C.EXTERNAL_ID, *DEVICE_NUMBERS, C.OCCUPANCY_PCT, C.BYTES),
    **_slots(C.GRAPH_ID, C.GRAPH_NODE_ID),
    **dict(zip((C.GRID_X, C.GRID_Y, C.GRID_Z), (SLOT.grid, GRID_Y, GRID_Y + 1), strict=True)),
    **dict(zip((C.BLOCK_X, C.BLOCK_Y, C.BLOCK_Z), (SLOT.block, BLOCK_Y, BLOCK_Y + 1), strict=True)),
}
DEVICE_STRING_COLUMNS = {C.NAME: SLOT.name}
MEMORY_COLUMNS = {
    C.T_NS: SLOT.ts,
    C.DEVICE: SLOT.device_id,
    C.BYTES: SLOT.alloc_bytes,
    **_slots(C.PID, C.TID, *MEMORY_NUMBERS),
}


class Row(IntEnum):
    """Kinds of rows that an event can become."""

    NONE = 0
    HOST = 1
    DEVICE = 2
    MEMORY = 3
    COUNTER = 4
    UNSUPPORTED = 5
    NO_SPACE = 6


HOST_KINDS, DEVICE_KINDS = tuple(HostKind), tuple(DeviceKind)
KIND_BITS = 8
_CATEGORIES = {
    **{
        name: Row.HOST << KIND_BITS | HOST_KINDS.index(kind) for name, kind in columns.HOST_CATEGORIES.items()
    },
    **{
        name: Row.DEVICE << KIND_BITS | DEVICE_KINDS.index(kind)
        for name, kind in columns.DEVICE_CATEGORIES.items()
    },
    **dict.fromkeys(sorted(columns.DERIVED_CATEGORIES), Row.NONE << KIND_BITS),
    columns.MTIA_DEVICE: Row.UNSUPPORTED << KIND_BITS,
}
PRESET_STRINGS = [name.encode() for name in (*sorted(flops.COUNTED), *_CATEGORIES)]
"""Strings with fixed codes: ops whose work is counted, then categories."""
N_COUNTED = len(flops.COUNTED)
CATEGORY_ROWS = np.array([-1] * N_COUNTED + list(_CATEGORIES.values()), np.int64)
"""For each of those codes, what an event of the category becomes: its `Row`, and its kind in the low bits."""

DONE, CLOSED, UNSUPPORTED, NO_SPACE = range(4)
"""How a scan ends: with the text, at the bracket that closes the events, at something that only the reference
decoder supports, or without space for another string (the rows before that are valid)."""
HOST, HOST_STRINGS, COLLECTIVES, GENERATED, DEVICE, DEVICE_STRINGS, OF_KERNELS = range(7)
MEMORY, COUNTERS, UNKNOWN, CAPACITY = range(7, 11)
"""Header of the row buffers: address of each buffer, and the rows that each can hold."""
N_EVENTS, N_HOST, N_COLLECTIVES, N_GENERATED, N_DEVICE, N_OF_KERNELS = range(11, 17)
N_MEMORY, N_COUNTERS, N_UNKNOWN, N_BAD_DURATION, POSITION = range(17, 22)
"""The rest of the header: counts, and how far in the text the scan has come."""
_MIN_EVENT_BYTES = 60
"""Recorded events are longer; a text with more rows than that allows is left to the reference."""
_BUFFER_COLUMNS = {
    HOST: len(HOST_COLUMNS) + 1,  # the last is the kind
    HOST_STRINGS: len(HOST_STRING_COLUMNS),
    COLLECTIVES: 1 + len(COLLECTIVE_SLOTS),  # the first is the row of the host; few have a collective
    GENERATED: 1 + len(KERNEL_SLOTS),  # likewise: few launch a generated kernel
    DEVICE: len(DEVICE_COLUMNS) + 1,
    DEVICE_STRINGS: len(DEVICE_STRING_COLUMNS),
    OF_KERNELS: 1 + len(COLLECTIVE_SLOTS),  # as `COLLECTIVES`, of rows of the device
    MEMORY: len(MEMORY_COLUMNS),
    COUNTERS: 2,  # start and end in the text
    UNKNOWN: 1,  # categories of intervals whose category is not known
}


def allocate(columns: int, rows: int) -> npt.NDArray[np.int64]:
    """Allocate a buffer whose pages take memory once written; NumPy's would be cleared huge pages."""
    mapped = mmap.mmap(-1, columns * rows * 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(mapped, np.int64).reshape(columns, rows)


class RowBuffers:
    """Buffers for the rows of a text of up to so many bytes, reused for one text after another."""

    def __init__(self, length: int) -> None:
        self.length = length
        capacity = length // _MIN_EVENT_BYTES + 1
        self._buffers = {buffer: allocate(columns, capacity) for buffer, columns in _BUFFER_COLUMNS.items()}
        addresses = [self._buffers[buffer].ctypes.data for buffer in range(CAPACITY)]
        self._header = np.array([*addresses, capacity, *(0 for _ in range(N_EVENTS, POSITION + 1))], np.int64)

    @property
    def address(self) -> int:
        """Address of the header."""
        return self._header.ctypes.data

    def clear(self) -> None:
        """Discard all rows."""
        self._header[N_EVENTS:] = 0

    def count(self, field: int) -> int:
        """A count of the header."""
        return int(self._header[field])

    def rows(self, buffer: int, count: int) -> npt.NDArray[np.int64]:
        """Columns of a buffer, as far as they are filled; valid until the next scan."""
        return self._buffers[buffer][:, : self.count(count)]


HASH_BITS = 18
HASH_SIZE = 1 << HASH_BITS
MAX_STRINGS = HASH_SIZE // 2
MAX_STRING_BYTES = 8 << 20
FULL = -1
"""Returned in place of a code when there is no space for another string."""
EMPTY = -1
"""Code of an unused entry of the hash table."""
AT_HASHES, AT_SPANS, AT_BYTES, N_STRINGS, N_BYTES = range(5)
"""Header of the interner: addresses of its arrays, how many strings there are, and bytes of them."""


class Interner:
    """A hash table that numbers distinct strings in the order of their first occurrence.

    Scans fill it, chunk after chunk. `_hashes` holds the hash and the code of each entry, `_spans` the start
    and length of each string in `_bytes`, where strings start at multiples of eight.
    """

    def __init__(self, preset: Sequence[bytes], code_of: Callable[..., int]) -> None:
        self._hashes = np.full((HASH_SIZE, 2), EMPTY, np.int64)
        self._spans = np.empty((MAX_STRINGS, 2), np.int64)
        self._bytes = np.zeros(MAX_STRING_BYTES + ROOM, np.uint8)
        arrays = (self._hashes, self._spans, self._bytes)
        self._header = np.array([*(array.ctypes.data for array in arrays), 0, 0], np.int64)
        for string in preset:
            padded = np.frombuffer(string + bytes(ROOM), np.uint8)
            code_of(self.address, padded.ctypes.data, len(string))

    @property
    def address(self) -> int:
        """Address of the header."""
        return self._header.ctypes.data

    @property
    def count(self) -> int:
        """Number of strings."""
        return int(self._header[N_STRINGS])

    def since(self, code: int) -> list[bytes]:
        """The strings from a code on, as they are written in the file."""
        if code >= self.count:
            return []
        spans = self._spans[code : self.count]
        origin = int(spans[0, 0])
        written = self._bytes[origin : int(spans[-1].sum())].tobytes()
        starts = (spans[:, 0] - origin).tolist()
        return [
            written[start : start + size] for start, size in zip(starts, spans[:, 1].tolist(), strict=True)
        ]
