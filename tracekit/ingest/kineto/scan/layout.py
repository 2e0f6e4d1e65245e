"""Which slots become which columns of which table, and what the categories and phases mean to a scan."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from tracekit.ingest import flops
from tracekit.ingest.kineto import names
from tracekit.ingest.kineto.scan.slots import COUNT, SLOT
from tracekit.schema import C, DeviceKind, HostKind


class Row(IntEnum):
    """What an event becomes."""

    NONE = 0
    HOST = 1
    DEVICE = 2
    MEMORY = 3
    COUNTER = 4
    SURPRISE = 5
    NO_ROOM = 6


NULL = -(1 << 63)
"""Stands for what is absent; no value that is taken is equal to it."""
GRID_Y, BLOCK_Y = COUNT, COUNT + 2
"""Places of the second numbers of a triple, behind the slots; the third ones follow."""
SLOTS = COUNT + 4
MOST_GAPS, GAP_FIELDS, GAP_WAYS = 256, 8, 4
"""How many different gaps between values are remembered, what is kept of each, and of how many followers."""
KNOWN_BITS = 11
"""Of so many bits is the place where a value that was read before is remembered."""
GAPS = SLOTS
VALUES = GAPS + MOST_GAPS * GAP_FIELDS
PLACES = VALUES + (2 << KNOWN_BITS)
"""Numbers that a scan keeps: an event's slots; behind them the gaps, then the values."""

HOST = {
    C.START_NS: SLOT.ts,
    C.DUR_NS: SLOT.dur,
    C.PID: SLOT.pid,
    C.TID: SLOT.tid,
    C.CORRELATION_ID: SLOT.correlation,
    C.EXTERNAL_ID: SLOT.external_id,
    C.SEQUENCE: SLOT.sequence,
    C.FWD_TID: SLOT.fwd_tid,
}
HOST_TEXTS = {
    C.NAME: SLOT.name,
    C.INPUT_SHAPES: SLOT.dims,
    C.INPUT_DTYPES: SLOT.dtypes,
    C.STACK: SLOT.stack,
    C.FLOPS: SLOT.concrete,  # with the name and the shapes it tells the work
}
DEVICE = {
    C.START_NS: SLOT.ts,
    C.DUR_NS: SLOT.dur,
    C.DEVICE: SLOT.device,
    C.STREAM: SLOT.stream,
    C.CONTEXT: SLOT.context,
    C.CORRELATION_ID: SLOT.correlation,
    C.EXTERNAL_ID: SLOT.external_id,
    C.GRID_X: SLOT.grid,
    C.GRID_Y: GRID_Y,
    C.GRID_Z: GRID_Y + 1,
    C.BLOCK_X: SLOT.block,
    C.BLOCK_Y: BLOCK_Y,
    C.BLOCK_Z: BLOCK_Y + 1,
    C.REGISTERS: SLOT.registers,
    C.DYNAMIC_SHARED_BYTES: SLOT.shared,
    C.OCCUPANCY_PCT: SLOT.occupancy,
    C.GRAPH_ID: SLOT.graph_id,
    C.GRAPH_NODE_ID: SLOT.graph_node_id,
    C.BYTES: SLOT.bytes,
}
DEVICE_TEXTS = {C.NAME: SLOT.name}
MEMORY = {
    C.T_NS: SLOT.ts,
    C.PID: SLOT.pid,
    C.TID: SLOT.tid,
    C.DEVICE: SLOT.device_id,
    C.BYTES: SLOT.alloc_bytes,
    C.ADDRESS: SLOT.address,
    C.TOTAL_ALLOCATED: SLOT.total_allocated,
    C.TOTAL_RESERVED: SLOT.total_reserved,
}

HOST_KINDS, DEVICE_KINDS = tuple(HostKind), tuple(DeviceKind)
KIND_BITS = 8
_CATEGORIES = {
    **{text: Row.HOST << KIND_BITS | HOST_KINDS.index(kind) for text, kind in names.HOST_CATEGORIES.items()},
    **{
        text: Row.DEVICE << KIND_BITS | DEVICE_KINDS.index(kind)
        for text, kind in names.DEVICE_CATEGORIES.items()
    },
    **dict.fromkeys(sorted(names.DERIVED_CATEGORIES), Row.NONE << KIND_BITS),
}
KNOWN = [name.encode() for name in (*sorted(flops.COUNTED), *_CATEGORIES)]
"""Texts that have their codes from the start: ops whose work is counted, then categories."""
COUNTED = len(flops.COUNTED)
MEANING = np.array([-1] * COUNTED + list(_CATEGORIES.values()), np.int64)
"""For each of those codes what an event of the category becomes: its `Row`, and its kind in the low bits."""
