"""Decoded batches parked on disk until they are written, so that memory follows the chunk, not the trace.

A part is one chunk's rows of one table, by time: each column as it lies in memory, then the texts. Every
thread has a file that its parts go to, one behind the other; the index, which all add to, has a line for each
part that tells where these are. What is asked for is read straight to where it is needed: nothing of a part
stays in memory.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np

from tracekit.ingest.rows import NONE, Batch, Column, Rows, distinct
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tracekit.ingest.texts import Strings

    Ints = npt.NDArray[np.int64]

_CODE = np.dtype(np.int32)
"""Codes of texts, parked: a chunk has fewer than that."""
_INDEX = "parts.index"
_ROWS = "{process}-{thread}.rows"


class _Place(msgspec.Struct, array_like=True):
    """Where a column lies in its file: the kind of its numbers, the first byte of them and of their flags."""

    kind: str
    values: int
    missing: int | None


class Head(msgspec.Struct, array_like=True):
    """What is told of a part.

    Attributes:
        file: Name of the file that it is in.
        rows: How many rows it has.
        first: The first time.
        last: The last time.
        end: When the last interval ends; the last time in a table without durations.
        columns: Where each column lies.
        texts: The first byte of its texts, and the first one behind them.
    """

    file: str
    rows: int
    first: int
    last: int
    end: int
    columns: dict[str, _Place]
    texts: tuple[int, int]


class _Line(msgspec.Struct, array_like=True):
    """What the index tells of a part; a later line takes the place of an earlier one.

    Attributes:
        number: The part's.
        table: Its table.
        head: What it is; None when it is forgotten, in every table.
    """

    number: int
    table: str = ""
    head: Head | None = None


_LINES = msgspec.json.Decoder(_Line)
_TEXTS = msgspec.msgpack.Decoder(dict[str, list[bytes]])


def park(directory: Path, number: int, batches: Mapping[str, Batch]) -> None:
    """Write a chunk's batches that have rows, each sorted by time, as part `number` of their tables."""
    path = directory / _ROWS.format(process=os.getpid(), thread=threading.get_native_id())
    with path.open("ab") as file:
        lines = [
            _Line(number, table, _written(file, path.name, _by_time(batch.rows), batch.texts))
            for table, batch in batches.items()
            if batch.rows.count
        ]
    _tell(directory, lines)


def discard(directory: Path, number: int) -> None:
    """Forget part `number` of every table."""
    _tell(directory, [_Line(number)])


def clear(directory: Path) -> None:
    """Give back the space of all parts, which nobody reads any more; that takes as long as reading some."""
    for path in directory.glob(_ROWS.format(process="*", thread="*")):
        os.truncate(path, 0)  # now, not when the last who has it open lets go of it
        path.unlink()


def _tell(directory: Path, lines: Sequence[_Line]) -> None:
    """Add lines to the index, which others may be adding to."""
    told = msgspec.json.Encoder().encode_lines(lines)
    with (directory / _INDEX).open("ab", buffering=0) as file:  # at once, so that lines stay whole
        if file.write(told) != len(told):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _time_of(names: Collection[str]) -> str:
    """The column that sorts; a table without a time is sorted by its first one."""
    return next((name for name in (C.START_NS, C.T_NS) if name in names), next(iter(names)))


def _by_time(rows: Rows) -> Rows:
    time = rows.integers(_time_of(rows.columns))
    if (time[1:] >= time[:-1]).all():
        return rows
    return rows.take(np.argsort(time, kind="stable"))


def _written(file: BinaryIO, name: str, rows: Rows, texts: dict[str, list[bytes]]) -> Head:
    """Add a part to the end of a file."""
    places = {}
    for column, (values, missing) in rows.columns.items():
        held = values.astype(_CODE) if column in texts else values
        place = _Place(held.dtype.str, file.tell(), None)
        file.write(np.ascontiguousarray(held).data)
        if missing is not None:
            place.missing = file.tell()
            file.write(missing.data)
        places[column] = place
    start = file.tell()
    file.write(msgspec.msgpack.encode(texts))
    return Head(name, *_told(rows), places, (start, file.tell()))


def _told(rows: Rows) -> tuple[int, int, int, int]:
    """How many rows there are, their first time and last one, and their last end."""
    time = rows.integers(_time_of(rows.columns))
    end = (time + rows.integers(C.DUR_NS)).max() if C.DUR_NS in rows.columns else time[-1]
    return rows.count, int(time[0]), int(time[-1]), int(end)


def _fill(file: int, room: memoryview, place: int) -> None:
    """Read as much as there is room for, from a byte on."""
    left = room.cast("B") if len(room) else room
    while left:
        read = os.preadv(file, [left], place)
        if not read:
            raise OSError(errno.EIO, "what was decoded is cut off")
        left, place = left[read:], place + read


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbouring rows of one part: from `first` up to, not including, `stop`."""

    part: int
    first: int
    stop: int


class Index:
    """What is parked in a folder; parts that are added later are not in it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tables: defaultdict[str, dict[int, Head]] = defaultdict(dict)
        path = directory / _INDEX
        for line in _LINES.decode_lines(path.read_bytes()) if path.exists() else []:
            if line.head:
                self._tables[line.table][line.number] = line.head
                continue
            for heads in self._tables.values():
                heads.pop(line.number, None)

    def table(self, name: str) -> Parked:
        """One of its tables, in order of the parts' numbers."""
        return Parked(self._directory, [head for _, head in sorted(self._tables[name].items())])


class Parked:
    """One table of one trace: its parts in file order.

    Attributes:
        heads: What is told of each part.
    """

    def __init__(self, directory: Path, heads: list[Head]) -> None:
        """See `Index.table`."""
        self.heads = heads
        self._directory = directory
        self._files: dict[str, int] = {}

    @property
    def parts(self) -> range:
        """Numbers of its parts."""
        return range(len(self.heads))

    def _file(self, head: Head) -> int:
        """The file that a part is in; it stays open as long as the table is asked for."""
        if head.file not in self._files:
            self._files[head.file] = file = os.open(self._directory / head.file, os.O_RDONLY)
            weakref.finalize(self, os.close, file)
        return self._files[head.file]

    @cached_property
    def _kinds(self) -> dict[str, np.dtype[Any]]:
        """Of each column the kind of its numbers."""
        return {name: np.dtype(place.kind) for head in self.heads for name, place in head.columns.items()}

    @property
    def names(self) -> list[str]:
        """Names of the columns that have a value anywhere; none when nothing was parked."""
        return list(self._kinds)

    @property
    def texts(self) -> list[str]:
        """Names of its text columns."""
        return [name for name, kind in self._kinds.items() if kind == _CODE]

    def texts_of(self, number: int) -> dict[str, list[bytes]]:
        """The texts of a part, in the order of its codes."""
        head = self.heads[number]
        start, stop = head.texts
        room = bytearray(stop - start)
        _fill(self._file(head), memoryview(room), start)
        return _TEXTS.decode(room)

    def times(self, number: int) -> Ints:
        """The sorted times of a part."""
        return self._column(number, _time_of(self.names))

    def _column(self, number: int, name: str) -> Ints:
        head = self.heads[number]
        return self.read([Span(part=number, first=0, stop=head.rows)], [name], {}).integers(name)

    def distinct(self, column: str) -> Ints:
        """Sorted distinct values of a column of integers."""
        found = [distinct(self._column(number, column)) for number in self.parts]
        return distinct(np.concatenate([np.empty(0, np.int64), *found]))

    def read(self, spans: Sequence[Span], columns: Sequence[str], texts: Mapping[str, Strings]) -> Rows:
        """Rows of some parts, one span behind the other.

        Args:
            spans: Which rows.
            columns: Which columns; those that were not parked are left out.
            texts: For each text column its distinct values over all parts.
        """
        count = sum(span.stop - span.first for span in spans)
        rooms = {
            name: _Room(count, self._kinds[name], texts.get(name)) for name in columns if name in self._kinds
        }
        at = 0
        for span in spans:
            head = self.heads[span.part]
            for name, room in rooms.items():
                room.fill(at, self._file(head), span, head.columns.get(name))
            at += span.stop - span.first
        return Rows(count=count, columns={name: room.column for name, room in rooms.items()})


class _Room:
    """Memory for one column of some rows, filled span by span."""

    def __init__(self, count: int, kind: np.dtype[Any], texts: Strings | None) -> None:
        self._is_text, self._texts = kind == _CODE, texts
        self._values = np.empty(count, np.intp if self._is_text else kind)
        self._missing: npt.NDArray[np.bool_] | None = None

    @property
    def column(self) -> Column:
        """What it holds."""
        return Column(self._values, self._missing)

    def fill(self, at: int, file: int, span: Span, place: _Place | None) -> None:
        """Read a span of a part that has the column there, or not at all."""
        own = slice(at, at + span.stop - span.first)
        if place is None:
            self._values[own] = NONE
            if not self._is_text:
                self._nulls()[own] = True
        elif self._is_text:
            codes = np.empty(span.stop - span.first, _CODE)
            _fill(file, codes.data, place.values + span.first * codes.itemsize)
            self._values[own] = self._texts.codes(span.part, codes) if self._texts else codes
        else:
            _fill(file, self._values[own].data, place.values + span.first * self._values.itemsize)
            if place.missing is not None:
                _fill(file, self._nulls()[own].data, place.missing + span.first)

    def _nulls(self) -> npt.NDArray[np.bool_]:
        if self._missing is None:
            self._missing = np.zeros(len(self._values), np.bool_)
        return self._missing
