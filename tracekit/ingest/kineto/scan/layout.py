"""Which slots become which columns of which table, and what the categories and phases mean to a scan."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from tracekit.ingest import flops
from tracekit.ingest.kineto import names
from tracekit.ingest.kineto.scan.slots import COUNT, SLOTS
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


GRID_Y, BLOCK_Y = COUNT, COUNT + 2
"""Places of the second numbers of a triple, behind the slots; the third ones follow."""
PLACES = COUNT + 4

HOST = {
    C.START_NS: SLOTS["ts"],
    C.DUR_NS: SLOTS["dur"],
    C.PID: SLOTS["pid"],
    C.TID: SLOTS["tid"],
    C.CORRELATION_ID: SLOTS["correlation"],
    C.EXTERNAL_ID: SLOTS["external_id"],
    C.SEQUENCE: SLOTS["sequence"],
    C.FWD_TID: SLOTS["fwd_tid"],
}
HOST_TEXTS = {
    C.NAME: SLOTS["name"],
    C.INPUT_SHAPES: SLOTS["dims"],
    C.INPUT_DTYPES: SLOTS["dtypes"],
    C.STACK: SLOTS["stack"],
    C.FLOPS: SLOTS["concrete"],  # with the name and the shapes it tells the work
}
DEVICE = {
    C.START_NS: SLOTS["ts"],
    C.DUR_NS: SLOTS["dur"],
    C.DEVICE: SLOTS["device"],
    C.STREAM: SLOTS["stream"],
    C.CONTEXT: SLOTS["context"],
    C.CORRELATION_ID: SLOTS["correlation"],
    C.EXTERNAL_ID: SLOTS["external_id"],
    C.GRID_X: SLOTS["grid"],
    C.GRID_Y: GRID_Y,
    C.GRID_Z: GRID_Y + 1,
    C.BLOCK_X: SLOTS["block"],
    C.BLOCK_Y: BLOCK_Y,
    C.BLOCK_Z: BLOCK_Y + 1,
    C.REGISTERS: SLOTS["registers"],
    C.DYNAMIC_SHARED_BYTES: SLOTS["shared"],
    C.OCCUPANCY_PCT: SLOTS["occupancy"],
    C.GRAPH_ID: SLOTS["graph_id"],
    C.GRAPH_NODE_ID: SLOTS["graph_node_id"],
    C.BYTES: SLOTS["bytes"],
}
DEVICE_TEXTS = {C.NAME: SLOTS["name"]}
MEMORY = {
    C.T_NS: SLOTS["ts"],
    C.PID: SLOTS["pid"],
    C.TID: SLOTS["tid"],
    C.DEVICE: SLOTS["device_id"],
    C.BYTES: SLOTS["alloc_bytes"],
    C.ADDRESS: SLOTS["address"],
    C.TOTAL_ALLOCATED: SLOTS["total_allocated"],
    C.TOTAL_RESERVED: SLOTS["total_reserved"],
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
