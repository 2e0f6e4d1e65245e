"""Texts and sampled times of a spooled table, by which its rows are read in their final order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from tracekit.ingest.spool.part_files import RowRange, SpooledTable
from tracekit.ingest.spool.rows import AnyInts, Ints, Rows
from tracekit.ingest.spool.text_columns import Strings, StringsBuilder

WINDOW_ROWS = 1 << 16
"""Approximate number of rows of a window."""
_STRIDE = 64
"""Rows of a part per sampled time, if windows are large."""


class TableIndex(msgspec.Struct, frozen=True, kw_only=True):
    """A spooled table with its texts and sampled times.

    Attributes:
        spooled: The spooled table.
        texts: Its text columns.
        lengths: Rows of each part.
        first: First time of each part, int64 ns.
        last: Last time of each part, int64 ns.
        sampled: Time of every `stride`-th row, int64 ns, part by part.
        stride: Rows per sampled time.
    """

    spooled: SpooledTable
    texts: dict[str, Strings]
    lengths: list[int]
    first: Ints
    last: Ints
    sampled: Ints
    stride: int

    @property
    def rows(self) -> int:
        """Number of rows of all parts."""
        return sum(self.lengths)

    def whole_part(self, part: int) -> RowRange:
        """Return the range of all rows of a part."""
        return RowRange(part=part, first=0, stop=self.lengths[part])

    def read(self, ranges: Sequence[RowRange], columns: Sequence[str]) -> Rows:
        """Read ranges of rows; columns that were not spooled are left out."""
        return self.spooled.read(ranges, columns, self.texts)


def read_table_index(spooled: SpooledTable, *, texts: Sequence[str] | None = None) -> TableIndex:
    """Read the texts and sampled times of a spooled table.

    Args:
        spooled: The spooled table.
        texts: The text columns that will be read; all of them by default.
    """
    names = [name for name in spooled.texts if texts is None or name in texts]
    stride = max(1, min(_STRIDE, WINDOW_ROWS // _STRIDE))
    builders = {name: StringsBuilder() for name in names}
    sampled = [np.empty(0, np.int64)]
    for part in spooled.parts:
        part_texts = spooled.texts_of(part) if names else {}
        for name in names:
            builders[name].add(part_texts.get(name, []))
        # other offsets in each part, so that samples of interleaved parts differ; a view keeps all times
        sampled.append(spooled.times(part)[part % stride :: stride].copy())
    return TableIndex(
        spooled=spooled,
        texts={name: builder.build() for name, builder in builders.items()},
        lengths=[part.rows for part in spooled.extents],
        first=np.array([part.first for part in spooled.extents], np.int64),
        last=np.array([part.last for part in spooled.extents], np.int64),
        sampled=np.concatenate(sampled),
        stride=stride,
    )


class SortedColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of a table to be read in their final order.

    Attributes:
        table: The table.
        columns: The columns; those that were not spooled are left out.
        order: Positions that sort rows, by time first; None if the order of a window's rows is irrelevant.
    """

    table: TableIndex
    columns: Sequence[str]
    order: Callable[[Rows], AnyInts] | None = None

    def read(self, ranges: Sequence[RowRange]) -> Rows:
        """Read ranges of rows, and sort them."""
        return self.sort(self.table.read(ranges, self.columns))

    def sort(self, rows: Rows) -> Rows:
        """Sort rows; equal ones keep their order."""
        return rows if self.order is None else rows.take(self.order(rows))
