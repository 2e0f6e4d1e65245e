"""Spool of decoded batches on disk, so that memory depends on the size of chunks, not of the trace.

A part contains the rows of one table of one chunk, by time: the memory of each column, then the texts.
Every thread appends parts to a file of its own, and a line per part with the offsets to a shared index. Rows
are read from the files into their destination; parts are not kept in memory.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt

from tracekit.ingest.spool.rows import NONE, Batch, Column, Rows, distinct
from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.ingest.spool.text_columns import Strings

    Ints = npt.NDArray[np.int64]

_CODE = np.dtype(np.int32)
"""Type of spooled codes of texts: a chunk has fewer."""
_INDEX = "parts.index"
_ROWS = "{process}-{thread}.rows"


class _Location(msgspec.Struct, array_like=True):
    """Location of a column in its file: type of the numbers, offsets of the numbers and of the null mask."""

    kind: str
    values: int
    missing: int | None


class PartEntry(msgspec.Struct, array_like=True):
    """Index entry of a part.

    Attributes:
        file: Name of its file.
        rows: Number of rows.
        first: First time.
        last: Last time.
        end: Latest end of an interval; the last time in a table without durations.
        columns: Location of each column.
        texts: Start and end offsets of its texts.
    """

    file: str
    rows: int
    first: int
    last: int
    end: int
    columns: dict[str, _Location]
    texts: tuple[int, int]


class _Line(msgspec.Struct, array_like=True):
    """Line of the index; a later line of a part replaces an earlier one.

    Attributes:
        number: Number of the part.
        table: Table of the part.
        head: The entry; None if the part is discarded, in every table.
    """

    number: int
    table: str = ""
    head: PartEntry | None = None


_LINES = msgspec.json.Decoder(_Line)
_TEXTS = msgspec.msgpack.Decoder(dict[str, list[bytes]])


def write_batches(directory: Path, number: int, batches: Mapping[str, Batch]) -> None:
    """Write the non-empty batches of a chunk, sorted by time, as parts of their tables.

    Args:
        directory: The spool folder.
        number: Number of the part in each table.
        batches: Batches by table.
    """
    path = directory / _ROWS.format(process=os.getpid(), thread=threading.get_native_id())
    with path.open("ab") as file:
        lines = [
            _Line(number, table, _write_part(file, path.name, _sort_by_time(batch.rows), batch.texts))
            for table, batch in batches.items()
            if batch.rows.count
        ]
    _append(directory, lines)


def discard(directory: Path, number: int) -> None:
    """Discard part `number` of every table."""
    _append(directory, [_Line(number)])


def clear(directory: Path) -> None:
    """Free the disk space of all parts."""
    for path in directory.glob(_ROWS.format(process="*", thread="*")):
        os.truncate(path, 0)  # now, even if the file is still open elsewhere
        path.unlink()


def _append(directory: Path, lines: Sequence[_Line]) -> None:
    """Append lines to the index, which other threads and processes append to as well."""
    encoded = msgspec.json.Encoder().encode_lines(lines)
    with (directory / _INDEX).open("ab", buffering=0) as file:  # one write, so that lines are not interleaved
        if file.write(encoded) != len(encoded):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _time_of(names: Collection[str]) -> str:
    """Return the time column of a table, or its first column."""
    return next((name for name in (C.START_NS, C.T_NS) if name in names), next(iter(names)))


def _sort_by_time(rows: Rows) -> Rows:
    time = rows.integers(_time_of(rows.columns))
    if (time[1:] >= time[:-1]).all():
        return rows
    return rows.take(np.argsort(time, kind="stable"))


def _write_part(file: BinaryIO, name: str, rows: Rows, texts: dict[str, list[bytes]]) -> PartEntry:
    places = {}
    for column, (values, missing) in rows.columns.items():
        held = values.astype(_CODE) if column in texts else values
        place = _Location(held.dtype.str, file.tell(), None)
        file.write(np.ascontiguousarray(held).data)
        if missing is not None:
            place.missing = file.tell()
            file.write(missing.data)
        places[column] = place
    start = file.tell()
    file.write(msgspec.msgpack.encode(texts))
    return PartEntry(name, *_extent(rows), places, (start, file.tell()))


def _extent(rows: Rows) -> tuple[int, int, int, int]:
    """Return the number of rows, the first and last time, and the latest end."""
    time = rows.integers(_time_of(rows.columns))
    end = (time + rows.integers(C.DUR_NS)).max() if C.DUR_NS in rows.columns else time[-1]
    return rows.count, int(time[0]), int(time[-1]), int(end)


def _fill(file: int, room: memoryview, place: int) -> None:
    left = room.cast("B") if len(room) else room
    while left:
        read = os.preadv(file, [left], place)
        if not read:
            raise OSError(errno.EIO, "what was decoded is cut off")
        left, place = left[read:], place + read


class RowRange(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive rows of one part: from `first` up to, not including, `stop`."""

    part: int
    first: int
    stop: int


class Index:
    """Snapshot of the index of a spool folder."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tables: defaultdict[str, dict[int, PartEntry]] = defaultdict(dict)
        path = directory / _INDEX
        for line in _LINES.decode_lines(path.read_bytes()) if path.exists() else []:
            if line.head:
                self._tables[line.table][line.number] = line.head
                continue
            for heads in self._tables.values():
                heads.pop(line.number, None)

    def table(self, name: str) -> SpooledTable:
        """Return a table, with its parts by number."""
        heads = [head for _, head in sorted(self._tables[name].items())]
        return SpooledTable(self._directory, name, heads)


class SpooledTable:
    """A spooled table of one trace, with its parts in the order of the file.

    Attributes:
        directory: The spool folder.
        name: Name of the table.
        heads: Index entries of the parts.
    """

    def __init__(self, directory: Path, name: str, heads: list[PartEntry]) -> None:
        """See `Index.table`."""
        self.directory, self.name, self.heads = directory, name, heads
        self._files: dict[str, int] = {}

    @property
    def parts(self) -> range:
        """Numbers of the parts."""
        return range(len(self.heads))

    def _file(self, head: PartEntry) -> int:
        """Return the file of a part, which stays open as long as the table."""
        if head.file not in self._files:
            self._files[head.file] = file = os.open(self.directory / head.file, os.O_RDONLY)
            weakref.finalize(self, os.close, file)
        return self._files[head.file]

    @cached_property
    def _kinds(self) -> dict[str, np.dtype[Any]]:
        """Type of the numbers of each column."""
        return {name: np.dtype(place.kind) for head in self.heads for name, place in head.columns.items()}

    @property
    def names(self) -> list[str]:
        """Names of the columns with any value."""
        return list(self._kinds)

    @property
    def texts(self) -> list[str]:
        """Names of the text columns."""
        return [name for name, kind in self._kinds.items() if kind == _CODE]

    def texts_of(self, number: int) -> dict[str, list[bytes]]:
        """Read the texts of a part, in the order of its codes."""
        head = self.heads[number]
        start, stop = head.texts
        room = bytearray(stop - start)
        _fill(self._file(head), memoryview(room), start)
        return _TEXTS.decode(room)

    def times(self, number: int) -> Ints:
        """Read the sorted times of a part."""
        return self._column(number, _time_of(self.names))

    def _column(self, number: int, name: str) -> Ints:
        head = self.heads[number]
        return self.read([RowRange(part=number, first=0, stop=head.rows)], [name], {}).integers(name)

    def distinct(self, column: str) -> Ints:
        """Return the sorted distinct values of a column of integers."""
        values = [distinct(self._column(number, column)) for number in self.parts]
        return distinct(np.concatenate([np.empty(0, np.int64), *values]))

    def read(self, spans: Sequence[RowRange], columns: Sequence[str], texts: Mapping[str, Strings]) -> Rows:
        """Read spans of rows, in their order.

        Args:
            spans: The rows.
            columns: The columns; those that were not spooled are left out.
            texts: For each text column its distinct values over all parts.
        """
        count = sum(span.stop - span.first for span in spans)
        rooms = {
            name: _ColumnBuffer(count, self._kinds[name], texts.get(name))
            for name in columns
            if name in self._kinds
        }
        position = 0
        for span in spans:
            head = self.heads[span.part]
            for name, room in rooms.items():
                room.fill(position, self._file(head), span, head.columns.get(name))
            position += span.stop - span.first
        return Rows(count=count, columns={name: room.column for name, room in rooms.items()})


class _ColumnBuffer:
    """Buffer of one column, filled span by span."""

    def __init__(self, count: int, kind: np.dtype[Any], texts: Strings | None) -> None:
        self._is_text, self._texts = kind == _CODE, texts
        self._values = np.empty(count, np.intp if self._is_text else kind)
        self._missing: npt.NDArray[np.bool_] | None = None

    @property
    def column(self) -> Column:
        """Return the filled column."""
        return Column(self._values, self._missing)

    def fill(self, position: int, file: int, span: RowRange, place: _Location | None) -> None:
        """Read a range of a part at the column's location, or mark it missing.

        Args:
            position: Where the range begins in the buffer.
            file: Descriptor of the part's file.
            span: The range.
            place: Location of the column; None if the part has none.
        """
        target = slice(position, position + span.stop - span.first)
        if place is None:
            self._values[target] = NONE
            if not self._is_text:
                self._nulls()[target] = True
        elif self._is_text:
            codes = np.empty(span.stop - span.first, _CODE)
            _fill(file, codes.data, place.values + span.first * codes.itemsize)
            self._values[target] = self._texts.codes(span.part, codes) if self._texts else codes
        else:
            _fill(file, self._values[target].data, place.values + span.first * self._values.itemsize)
            if place.missing is not None:
                _fill(file, self._nulls()[target].data, place.missing + span.first)

    def _nulls(self) -> npt.NDArray[np.bool_]:
        if self._missing is None:
            self._missing = np.zeros(len(self._values), np.bool_)
        return self._missing
