"""The members of an event that are kept: a number for each.

They are those of the reference decoder's `Event` and `Args`; a slot goes by the attribute's name there.
"""

from __future__ import annotations

from enum import IntEnum
from types import SimpleNamespace

import msgspec
import numpy as np

from tracekit.ingest.kineto.events import Args, Event


class Kind(IntEnum):
    """What a slot takes; anything else is odd there, which matters where the event becomes a row."""

    INTEGER = 0
    TIME = 1
    REAL = 2
    TEXT = 3
    JSON = 4
    TRIPLE = 5
    LANE = 6
    ARGS = 7


_KINDS = {
    **dict.fromkeys(("ph", "cat", "name", "stack"), Kind.TEXT),
    **dict.fromkeys(("ts", "dur"), Kind.TIME),
    **dict.fromkeys(("dims", "dims_old", "dtypes", "concrete"), Kind.JSON),
    **dict.fromkeys(("grid", "block"), Kind.TRIPLE),
    **dict.fromkeys(("pid", "tid", "device", "stream", "alloc_bytes", "device_id"), Kind.LANE),
    "occupancy": Kind.REAL,
    "args": Kind.ARGS,
}
_FIELDS = (*msgspec.structs.fields(Event), *msgspec.structs.fields(Args))  # `args` is the last of an event's
SLOT = SimpleNamespace(**{field.name: number for number, field in enumerate(_FIELDS)})
"""Number of each slot; those before that of `args` are an event's own, those behind it its arguments'."""
COUNT = len(_FIELDS)
KINDS = np.array([_KINDS.get(field.name, Kind.INTEGER) for field in _FIELDS], np.int64)
KEYS = [field.encode_name.encode() for field in _FIELDS]
"""What each is called in the file."""
