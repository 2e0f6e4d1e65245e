"""Where a scan puts its rows: one sheet of columns for each table, as large as a text can need."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

import numpy as np

from tracekit.ingest.kineto.scan import layout

if TYPE_CHECKING:
    import numpy.typing as npt

DONE, CLOSED, SURPRISED, CROWDED = range(4)
"""How a scan ends: with the text, at the bracket that closes the events, at something that only the reference
handles, or without room for another text (what was scanned before that stands)."""

HOST, HOST_TEXTS, DEVICE, DEVICE_TEXTS, MEMORY, COUNTERS, UNKNOWN, ROWS = range(8)
"""Places of the directory: addresses of the sheets, and the rows of each."""
N_EVENTS, N_HOST, N_DEVICE, N_MEMORY, N_COUNTERS, N_UNKNOWN, N_BAD_DURATION, PLACE = range(8, 16)
"""Further places of it: how many there are of what, and how far the scan has come in the text."""
_EVENT_BYTES = 60
"""No recorded event is shorter; a text with more rows than that allows is left to the reference."""
_COLUMNS = {
    HOST: len(layout.HOST) + 1,  # the last is the kind
    HOST_TEXTS: len(layout.HOST_TEXTS),
    DEVICE: len(layout.DEVICE) + 1,
    DEVICE_TEXTS: len(layout.DEVICE_TEXTS),
    MEMORY: len(layout.MEMORY),
    COUNTERS: 2,  # start and end in the text
    UNKNOWN: 1,  # categories of intervals whose category is not known
}


def memory(columns: int, rows: int) -> npt.NDArray[np.int64]:
    """A sheet of which only what is filled takes memory; NumPy's would have huge pages, cleared whole."""
    held = mmap.mmap(-1, columns * rows * 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(held, np.int64).reshape(columns, rows)


class Sheets:
    """Sheets for texts of up to so many bytes; used again for one text after another."""

    def __init__(self, length: int) -> None:
        self.length = length
        rows = length // _EVENT_BYTES + 1
        self._sheets = {sheet: memory(columns, rows) for sheet, columns in _COLUMNS.items()}
        addresses = [self._sheets[sheet].ctypes.data for sheet in range(ROWS)]
        self.directory = np.array([*addresses, rows, *(0 for _ in range(N_EVENTS, PLACE + 1))], np.int64)

    @property
    def address(self) -> int:
        """What a scan asks for."""
        return self.directory.ctypes.data

    def clear(self) -> None:
        """Forget all rows."""
        self.directory[N_EVENTS:] = 0

    def count(self, what: int) -> int:
        """How many there are of what."""
        return int(self.directory[what])

    def rows(self, sheet: int, count: int) -> npt.NDArray[np.int64]:
        """The columns of a sheet, as far as they are filled; valid until the next scan."""
        return self._sheets[sheet][:, : self.count(count)]
