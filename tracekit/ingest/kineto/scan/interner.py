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
AT_PLACES, AT_SPANS, AT_TEXT, COUNT, USED = range(5)
"""Places of the directory: addresses of the table's memory, how many codes there are, and bytes of texts."""


class Interner:
    """The table: its memory, and a directory of that for the compiled functions.

    Attributes:
        directory: Addresses of what follows, how many codes there are, and bytes of texts.
        places: At each place of the hash table a text's hash and its code, which is -1 where there is none.
        spans: Where each code's text starts, and its length.
        text: The texts, each from a multiple of eight on.
    """

    def __init__(self, known: Sequence[bytes], code_of: Callable[..., int]) -> None:
        self.places = np.full((PLACES, 2), EMPTY, np.int64)
        self.spans = np.empty((MOST, 2), np.int64)
        self.text = np.zeros(BYTES + ROOM, np.uint8)
        memory = (self.places, self.spans, self.text)
        self.directory = np.array([*(array.ctypes.data for array in memory), 0, 0], np.int64)
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
        start, length = self.spans[code].tolist()
        return self.text[start : start + length].tobytes()
