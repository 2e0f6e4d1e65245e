"""Distinct texts numbered as they come, in a table that a scan carries from chunk to chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.ingest.kineto.split import ROOM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BITS = 18
PLACES = 1 << BITS
"""Places of the hash table; at most half of them are used."""
MOST = PLACES // 2
BYTES = 8 << 20
"""Room for the texts themselves."""
FULL = -1
EMPTY = -1
AT_PLACES, AT_HASHES, AT_BOUNDS, AT_LENGTHS, AT_TEXT, COUNT = range(6)
"""Places of the directory: addresses of the table's memory, and how many codes there are."""


class Interner:
    """The table: its memory, and a directory of that for the compiled functions.

    Attributes:
        directory: Addresses of what follows, and how many codes there are.
        places: Code at each place of the hash table, -1 where there is none.
        hashes: Hash of each code.
        bounds: Where each code's text starts.
        lengths: Length of each code's text.
        text: The texts, each from a multiple of eight on.
    """

    def __init__(self, known: Sequence[bytes], code_of: Callable[..., int]) -> None:
        self.places = np.full(PLACES, EMPTY, np.int64)
        self.hashes = np.empty(MOST, np.int64)
        self.bounds = np.zeros(MOST + 1, np.int64)
        self.lengths = np.empty(MOST, np.int64)
        self.text = np.zeros(BYTES + ROOM, np.uint8)
        memory = (self.places, self.hashes, self.bounds, self.lengths, self.text)
        self.directory = np.array([*(array.ctypes.data for array in memory), 0], np.int64)
        for text in known:
            padded = np.frombuffer(text + bytes(ROOM), np.uint8)
            code_of(self.address, padded.ctypes.data, len(text))

    @property
    def address(self) -> int:
        """What `code_of` asks for."""
        return self.directory.ctypes.data

    @property
    def count(self) -> int:
        """How many texts there are."""
        return int(self.directory[COUNT])

    def bytes_of(self, code: int) -> bytes:
        """A code's text."""
        start = self.bounds[code]
        return self.text[start : start + self.lengths[code]].tobytes()
