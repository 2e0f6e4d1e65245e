"""Check which columns and rows are asked for; find the row groups of a window of time, and rows by id."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tracekit import storage
from tracekit.errors import UnusableInputError, check_type, unknown_name
from tracekit.schema import TABLES, C, Table

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from tracekit.runs.intervals import Ints

_SPARSE = 8  # number of possible ids per row above which ids are looked up by binary search
_BLOCK = 1 << 20  # rows per block, which limits the memory of intermediate results
Window: TypeAlias = tuple[int, int]
"""Start and end (exclusive) of a window, ns since the run's t0."""
RowIds: TypeAlias = "Sequence[int] | Ints"


@dataclass(frozen=True)
class Selection:
    """The rows that satisfy all of these, each of which may be None for all rows."""

    where: pc.Expression | None  # a filter expression
    window: Window | None  # a window of time that they overlap
    row_ids: RowIds | None


def find_table(name: str) -> Table:
    """Return a table of the schema."""
    check_type(name, str, "name", "the name of a table (str), such as 'steps'")
    if name not in TABLES:
        raise unknown_name("table", name, TABLES)
    return TABLES[name]


def find_columns(table: Table, columns: Sequence[str] | None) -> list[str]:
    """Return the names of columns, of all for None.

    Raises:
        UnknownNameError: The table has no such column.
        TypeError: They are not a list of names.
    """
    existing = [column.name for column in table.columns]
    if columns is None:
        return existing
    wanted = "a list of names of columns, such as ['name', 'dur_ns']"
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        check_type(columns, (), "columns", wanted)
    chosen = list(columns)
    for name in chosen:
        check_type(name, str, "columns", wanted)
        if name not in existing:
            raise unknown_name(f"column of table {table.name}", name, existing)
    return chosen


def check_filters(where: pc.Expression | None, window: Window | None) -> None:
    """Check the types of a filter and of a window.

    Raises:
        TypeError: The one is no expression, or the other no pair of integers.
    """
    if where is not None:
        import pyarrow.compute as pc  # loaded already by who made the expression

        check_type(where, pc.Expression, "where", "an expression such as pyarrow.compute.field('step') == 3")
    if window is not None:
        wanted = "(start, end) in integer nanoseconds"
        check_type(window, (tuple, list), "window", wanted)
        if len(window) != 2 or not all(hasattr(end, "__index__") for end in window):
            check_type(window, (), "window", wanted)


_NO_FIELD = re.compile(r"No match for FieldRef\.Name\((.*?)\) in ")


def check_expression(table: Table, where: pc.Expression | None) -> None:
    """Raise what is wrong with a filter that failed; nothing if it suits the table, so the file does not.

    Raises:
        UnknownNameError: The table has no such column.
        UnusableInputError: The filter does not suit the types of the columns.
    """
    import pyarrow as pa

    if where is None:
        return
    try:
        table.arrow.empty_table().filter(where)
    except pa.ArrowException as error:
        if field := _NO_FIELD.search(str(error)):
            names = [column.name for column in table.columns]
            raise unknown_name(f"column of table {table.name}", field[1], names) from error
        message = f"the filter {where} does not suit table {table.name}: {storage.reason(error)}"
        raise UnusableInputError(message, hint="compare a column with a value of its type") from error


def restrict(
    dataset: ds.FileSystemDataset, window: Window | None, where: pc.Expression | None
) -> tuple[ds.FileSystemDataset, pc.Expression | None]:
    """Return the row groups that can have rows in a window, and the filter for its rows and `where`.

    Args:
        dataset: Files of a table.
        window: Start and end, ns since the run's t0; None for all rows.
        where: Another filter; None for all rows.
    """
    if window is None:
        return dataset, where
    return row_groups_in(dataset, window), combine(where, rows_in(dataset.schema, window))


def has_ids(row_ids: RowIds | None) -> pc.Expression | None:
    """Return the filter for rows with one of these ids; None for all rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return None if row_ids is None else pc.field(C.ROW_ID).isin(pa.array(row_ids, pa.int64()))


class RowIndex:
    """Index from distinct row ids to row positions.

    Consecutive ids, as those of one trace, need no memory; other dense ids use a lookup table of 4 bytes per
    possible id, and sparse ids binary search.

    Attributes:
        nbytes: Memory of the index.

    Example:
        >>> import numpy as np
        >>> RowIndex(np.array([7, 9])).of(np.array([9, -1, 8]))
        array([ 1, -1, -1])
    """

    def __init__(self, ids: Ints) -> None:
        import numpy as np

        self._low, high = (int(ids.min()), int(ids.max())) if len(ids) else (0, -1)
        self._size = high - self._low + 1
        self._dense = self._size <= _SPARSE * len(ids)
        self.nbytes = 0
        self._consecutive = self._size == len(ids) and bool((ids[1:] > ids[:-1]).all())
        if self._consecutive:
            return
        if self._dense:
            self._at = np.full(self._size + 1, -1, np.int32)
            for first in range(0, len(ids), _BLOCK):
                block = ids[first : first + _BLOCK]
                self._at[block - self._low] = np.arange(first, first + len(block), dtype=np.int32)
        else:
            self._at = np.argsort(ids, kind="stable").astype(np.int32)
            self._ids = ids[self._at]
        self.nbytes = self._at.nbytes if self._dense else self._at.nbytes + self._ids.nbytes

    def of(self, wanted: Ints) -> Ints:
        """Return the positions of the wanted ids, -1 for absent ones."""
        import numpy as np

        if self._dense:
            inside = (wanted >= self._low) & (wanted < self._low + self._size)
            places = np.where(inside, wanted - self._low, -1)  # the last of the table is that of absent ids
            return places if self._consecutive else self._at[places].astype(np.int64)
        near = np.minimum(np.searchsorted(self._ids, wanted), len(self._ids) - 1)
        return np.where(self._ids[near] == wanted, self._at[near], -1).astype(np.int64)

    def of_every(self, wanted: Ints) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Return what `of` does for large arrays: processed in blocks, with 32-bit results."""
        import numpy as np

        blocks = (wanted[first : first + _BLOCK] for first in range(0, len(wanted), _BLOCK))
        return np.concatenate([np.empty(0, np.int32), *(self.of(block).astype(np.int32) for block in blocks)])


def combine(first: pc.Expression | None, second: pc.Expression | None) -> pc.Expression | None:
    """Return the filter for rows that satisfy two filters, each of which may be None for all rows."""
    if first is None or second is None:
        return second if first is None else first
    return second & first


def time_column(names: Sequence[str]) -> str | None:
    """Return which of some columns is the time by which rows are in order; None if none is."""
    return next((time for time in (C.START_NS, C.T_NS) if time in names), None)


def rows_in(schema: pa.Schema, window: Window) -> pc.Expression:
    """Return the filter for rows of a window: intervals that overlap it or start in it, and samples."""
    import pyarrow.compute as pc

    low, high = window
    if C.T_NS in schema.names:
        return (pc.field(C.T_NS) >= low) & (pc.field(C.T_NS) < high)
    if C.START_NS not in schema.names:
        return pc.scalar(True)  # noqa: FBT003 (rows without a time are in every window)
    start = pc.field(C.START_NS)
    return (start < high) & ((start >= low) | (pc.add(start, pc.field(C.DUR_NS)) > low))


def row_groups_in(dataset: ds.FileSystemDataset, window: Window) -> ds.FileSystemDataset:
    """Return files with only the row groups that can have rows in a window.

    Statistics bound the starts and durations of a row group; row groups without statistics are included.
    """
    import pyarrow.dataset as ds

    parts = []
    for file in dataset.get_fragments():
        chosen = [group.id for group in file.row_groups if _may_overlap(group.statistics or {}, window)]
        if chosen:
            parts.append(file.subset(row_group_ids=chosen))
    return ds.FileSystemDataset(parts, schema=dataset.schema, format=dataset.format)


def _may_overlap(statistics: dict[str, Any], window: Window) -> bool:
    low, high = window
    key = C.T_NS if C.T_NS in statistics else C.START_NS
    if key not in statistics or (key == C.START_NS and C.DUR_NS not in statistics):
        return True
    longest = 0 if key == C.T_NS else int(statistics[C.DUR_NS]["max"])
    first, last = int(statistics[key]["min"]), int(statistics[key]["max"])
    return first < high and last + longest >= low
