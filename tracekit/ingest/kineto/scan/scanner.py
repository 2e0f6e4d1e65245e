"""One thread's scanner: a chunk's text in, its batches out, or nothing where the reference must decode it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tracekit.ingest.kineto.batches import Tally
from tracekit.ingest.kineto.scan import layout, native
from tracekit.ingest.kineto.scan.interner import Interner
from tracekit.ingest.kineto.scan.sheets import CLOSED, CROWDED, PLACE, SURPRISED, Sheets
from tracekit.ingest.kineto.scan.tables import SurpriseError, batches
from tracekit.ingest.kineto.scan.texts import Texts
from tracekit.ingest.rows import Batch, concatenated

if TYPE_CHECKING:
    from tracekit.ingest.kineto.split import Text

Batches = dict[str, Batch]

_NOT_ASCII = 0x80
_SPARE = 8
"""The next text may be longer by this part of a text."""


class Scanned(msgspec.Struct, frozen=True):
    """A chunk's rows.

    Attributes:
        batches: A batch for each table; valid until the scanner's next scan, which uses their memory again.
        tally: What was noticed.
        closed: Where the bracket that closes the events is; None when it is not in the chunk.
    """

    batches: Batches
    tally: Tally
    closed: int | None


class Scanner:
    """Scans chunk after chunk; keeps the texts it has met."""

    def __init__(self) -> None:
        self._code = native.load()
        self._places = np.empty(layout.PLACES, np.int64)
        self._sheets: Sheets | None = None
        self._forget()

    def _forget(self) -> None:
        self._interner = Interner(layout.KNOWN, self._code.code_of)
        self._texts = Texts(self._interner, self._code)

    def scan(self, text: Text) -> Scanned | None:
        """Scan a chunk; None where something in it is the reference's to decode."""
        if not _is_utf8(text):
            return None
        try:
            return self._scan(text)
        except SurpriseError:
            return None

    def _scan(self, text: Text) -> Scanned | None:
        sheets = self._room(text.length)
        address = np.frombuffer(text.buffer, np.uint8).ctypes.data
        found: list[Batches] = []
        tally, start, emptied = Tally(), 0, False
        while True:
            sheets.clear()
            end = self._code.scan(
                address, text.length, start, self._interner.address, sheets.address, self._places.ctypes.data
            )
            place = sheets.count(PLACE)
            if end == SURPRISED or (end == CROWDED and place == start and emptied):
                return None
            found.append(batches(sheets, self._texts, text.view, tally))
            if end != CROWDED:
                return Scanned(_joined(found), tally, place if end == CLOSED else None)
            start, emptied = place, True
            self._forget()
            sheets = self._sheets = Sheets(text.length)  # the batches found so far lie in the old ones

    def _room(self, length: int) -> Sheets:
        if self._sheets is None or self._sheets.length < length:
            self._sheets = Sheets(length + length // _SPARE)
        return self._sheets


def _is_utf8(text: Text) -> bool:
    try:
        is_ascii = np.frombuffer(text.view, np.uint8).max(initial=0) < _NOT_ASCII
        return bool(is_ascii) or str(text.view, "utf-8") is not None
    except UnicodeDecodeError:
        return False


def _joined(found: list[Batches]) -> Batches:
    if len(found) == 1:
        return found[0]
    names = {name for batches in found for name in batches}
    return {name: concatenated([batches[name] for batches in found if name in batches]) for name in names}
