"""Decoded columns of a run, kept in memory: its analyses ask for the same columns over a thousand times.

A column is read whole when it is first asked for. Those that were used longest ago are released when all of a
run take more than `MAX_BYTES`, and those of the runs that were read longest ago when all runs take more than
`MAX_BYTES_OF_RUNS`: the dashboard keeps every run that it has shown.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from tracekit.runs.selection import RowIds, RowIndex, combine
from tracekit.runs.tables import Categories, check_values
from tracekit.schema import C, Table

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

MAX_BYTES = 1024 << 20
MAX_BYTES_OF_RUNS = 1280 << 20
MAX_ROWS_AT_ONCE = 20_000
"""Rows of a table up to which all of its columns are read at once: each read of a file costs 2 ms."""
MAX_SMALL_ROWS = 300_000
"""Rows of a table up to which a window, ranks in files of their own, and row ids are cut out of columns."""
_MIN_ROWS_PER_ID = 64
"""Ratio of all rows to row ids above which row groups can be expected without any of them."""
_MAX_CONDITION = 300
"""Length of a condition up to which its rows are kept: longer ones list row ids and do not recur."""


class ColumnCache:
    """The columns of a run's tables that were read, and the rows that satisfied conditions.

    Attributes:
        categories: Dictionaries of columns of text that were converted to pandas, and their types there, by
            table and column.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.categories: dict[str, Categories] = {}
        self._rows: dict[str, int] = {}  # of each table
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[tuple[str, str], tuple[Any, int]] = OrderedDict()
        self._lock = Lock()  # the dashboard reads a run from several threads

    def select(
        self,
        table: Table,
        dataset: ds.FileSystemDataset,
        columns: Sequence[str],
        condition: pc.Expression | None,
        order_by: str | None = None,
        row_ids: RowIds | None = None,
        part: tuple[str, pc.Expression] | None = None,
    ) -> pa.Table | None:
        """Return columns of the rows that satisfy a condition, in one chunk; without a condition, no copies.

        None where the row groups that can have such rows have to be read instead: row ids are in few of them,
        and columns may be damaged in other rows.

        Args:
            table: The table.
            dataset: Its files.
            columns: Names of columns.
            condition: Filter; all rows if None.
            order_by: Column by which rows are sorted; those of equal values stay in the order of the files.
            row_ids: Only rows with these ids.
            part: Name and filter of rows, such as those of a rank, whose columns are kept, too.
        """
        names = [column.name for column in table.columns]
        in_condition = _find_names(condition) if row_ids is None else {*_find_names(condition), C.ROW_ID}
        needed = [name for name in names if name in in_condition or name in columns]
        if table.name not in self._rows:
            self._rows[table.name] = dataset.count_rows()
        rows = self._rows[table.name]
        if part is not None and rows > MAX_SMALL_ROWS:  # both copies might be large
            condition, part = combine(condition, part[1]), None
        is_selective = C.ROW_ID in in_condition and rows > MAX_SMALL_ROWS
        is_selective &= row_ids is None or len(row_ids) * _MIN_ROWS_PER_ID < rows
        if not columns or (is_selective and not all((table.name, name) in self._entries for name in needed)):
            return None
        try:
            place = part[0] if part else table.name
            loaded = self._load(table, dataset, needed, order_by, part)
            positions = None if condition is None else self._find_rows(place, loaded, condition)
            if row_ids is not None:
                positions = _find_common(self._find_ids(place, loaded, row_ids), positions)
        except Exception:  # Arrow has many errors for damage, and for a condition that does not suit
            return None
        chosen = loaded.select(columns)
        return chosen if positions is None else chosen.take(positions)

    def _load(
        self,
        table: Table,
        dataset: ds.FileSystemDataset,
        needed: list[str],
        order_by: str | None,
        part: tuple[str, pc.Expression] | None = None,
    ) -> pa.Table:
        """Return columns, read from the files, or taken from those of all rows, unless they are kept."""
        import pyarrow as pa

        kept = {name: self._find((part[0] if part else table.name, name)) for name in needed}
        if part and (missing := _find_missing(kept)):
            kept |= self._take(table, dataset, missing, order_by, part)
        if self._rows[table.name] <= MAX_ROWS_AT_ONCE and _find_missing(kept):
            with suppress(Exception):  # one of them is damaged, which may not be asked for
                kept |= self._read(table, dataset, table.arrow.names, order_by)
        if missing := _find_missing(kept):
            if {C.START_NS, C.DUR_NS} & set(missing) and {C.START_NS, C.DUR_NS} <= set(table.arrow.names):
                missing = [*{*missing, C.START_NS, C.DUR_NS}]  # their sum is checked
            kept |= self._read(table, dataset, missing, order_by)
        schema = pa.schema([table.arrow.field(name) for name in needed])
        return pa.Table.from_arrays([kept[name] for name in needed], schema=schema)

    def _take(
        self,
        table: Table,
        dataset: ds.FileSystemDataset,
        names: list[str],
        order_by: str | None,
        part: tuple[str, pc.Expression],
    ) -> dict[str, Any]:
        place, condition = part
        in_condition = _find_names(condition)
        needed = [name for name in table.arrow.names if name in in_condition or name in names]
        loaded = self._load(table, dataset, needed, order_by)
        positions = self._find_rows(table.name, loaded, condition)
        rows = loaded.select(names)
        return self._keep_columns(place, rows if positions is None else rows.take(positions))

    def _read(
        self, table: Table, dataset: ds.FileSystemDataset, names: list[str], order_by: str | None
    ) -> dict[str, Any]:
        import pyarrow as pa

        # Of a large table, which is one file, only one column is in memory twice.
        parts = [names] if self._rows[table.name] <= MAX_SMALL_ROWS else [[name] for name in names]
        columns = [
            column for part in parts for column in dataset.to_table(columns=part).combine_chunks().columns
        ]
        rows = check_values(table, pa.Table.from_arrays(columns, names=names))
        if order_by:
            rows = rows.take(self._sort(table.name, dataset, order_by))
        return self._keep_columns(table.name, rows)

    def _sort(self, table: str, dataset: ds.FileSystemDataset, order_by: str) -> pa.Array:
        """Return the positions of rows in the order of a column."""
        import pyarrow.compute as pc

        order = self._find((table, "?"))
        if order is None:
            order = pc.sort_indices(dataset.to_table(columns=[order_by]), sort_keys=[(order_by, "ascending")])
            self._keep((table, "?"), order, order.nbytes)
        return order

    def _find_rows(self, place: str, loaded: pa.Table, condition: pc.Expression) -> pa.Array | None:
        """Return the positions of the rows that satisfy a condition; None if all do."""
        text = str(condition)  # it omits some of many values
        same_text = self._find((place, f"?{text}")) or []
        for other, positions in same_text:
            if condition.equals(other):
                return positions
        positions = _find_satisfying(loaded, condition)
        if len(text) <= _MAX_CONDITION:
            kept = [*same_text, (condition, positions)]
            sizes = (0 if rows is None else rows.nbytes for _, rows in kept)
            self._keep((place, f"?{text}"), kept, len(text) + sum(sizes))
        return positions

    def _find_ids(self, place: str, loaded: pa.Table, row_ids: RowIds) -> pa.Array:
        """Return the positions of the rows with these ids, in the order of the rows."""
        import numpy as np
        import pyarrow as pa

        index = self._find((place, "#"))
        if index is None:
            index = RowIndex(loaded[C.ROW_ID].to_numpy())
            self._keep((place, "#"), index, index.nbytes)
        occurs = np.zeros(loaded.num_rows + 1, np.bool_)
        occurs[index.of(np.asarray(row_ids, np.int64))] = True  # an absent one has the last place
        return pa.array(np.flatnonzero(occurs[:-1]).astype(np.int32))

    def _find(self, key: tuple[str, str]) -> Any:
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def _keep_columns(self, place: str, rows: pa.Table) -> dict[str, Any]:
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        for name, column in columns.items():
            self._keep((place, name), column, column.nbytes)
        return columns

    def _keep(self, key: tuple[str, str], value: object, size: int) -> None:
        with self._lock:
            self._bytes += size - self._entries.pop(key, (None, 0))[1]
            self._entries[key] = value, size
            while self._bytes > self._max_bytes:
                self._bytes -= self._entries.popitem(last=False)[1][1]
        self._release_others()

    def _release_others(self) -> None:
        """Release the columns of the runs that were read longest ago, if those of all runs take too much."""
        if not _READ_LOCK.acquire(blocking=False):  # a process may be forked while another thread has it
            return
        try:
            _READ.pop(id(self), None)
            _READ[id(self)] = self
            caches = [*_READ.values()]
            excess = sum(cache._bytes for cache in caches) - MAX_BYTES_OF_RUNS
            while excess > 0 and caches[0] is not self:
                released = caches.pop(0)
                _READ.pop(id(released), None)
                excess -= released._release()
        finally:
            _READ_LOCK.release()

    def _release(self) -> int:
        """Release all columns; returns their bytes."""
        if not self._lock.acquire(blocking=False):
            return 0
        released, self._bytes = self._bytes, 0
        self._entries.clear()
        self._lock.release()
        self.categories.clear()
        return released


_READ = WeakValueDictionary[int, ColumnCache]()
"""The caches of all runs, those that were read longest ago first."""
_READ_LOCK = Lock()


def _find_missing(kept: dict[str, Any]) -> list[str]:
    return [name for name, column in kept.items() if column is None]


def _find_names(condition: pc.Expression | None) -> set[str]:
    """Return the words of a condition, with the names of its columns."""
    return set() if condition is None else set(re.findall(r"\w+", str(condition)))


def _find_satisfying(rows: pa.Table, condition: pc.Expression) -> pa.Array | None:
    """Return the positions of the rows that satisfy a condition; None if all do."""
    import numpy as np
    import pyarrow as pa

    in_condition = _find_names(condition)
    columns = rows.select([name for name in rows.column_names if name in in_condition])
    is_of_texts = columns.num_columns == 1 and pa.types.is_dictionary(columns.schema[0].type)
    satisfied = _evaluate_texts(columns, condition) if is_of_texts else _evaluate(rows, condition)
    return None if satisfied.all() else pa.array(np.flatnonzero(satisfied).astype(np.int32))


def _find_common(positions: pa.Array, others: pa.Array | None) -> pa.Array:
    """Return the positions that are among others too, which ascend as they do; all of them for None."""
    import numpy as np
    import pyarrow as pa

    if others is None or not len(others):
        return positions if others is None else others
    wanted, among = positions.to_numpy(), others.to_numpy()
    nearest = np.minimum(np.searchsorted(among, wanted), len(among) - 1)
    return pa.array(wanted[among[nearest] == wanted])


def _evaluate_texts(column: pa.Table, condition: pc.Expression) -> Any:
    """Return whether each row satisfies a condition on its text, evaluated once per distinct text."""
    import pyarrow as pa

    texts = column.column(0).combine_chunks()
    missing = len(texts.dictionary)
    codes = pa.array([*range(missing), None], texts.type.index_type)
    distinct = pa.DictionaryArray.from_arrays(codes, texts.dictionary)
    satisfied = _evaluate(pa.table([distinct], column.column_names), condition)
    return satisfied[texts.indices.fill_null(missing).to_numpy()]


def _evaluate(rows: pa.Table, condition: pc.Expression) -> Any:
    """Return whether each row satisfies a condition; false if that is unknown."""
    from pyarrow import acero

    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(rows)),
        acero.Declaration("project", acero.ProjectNodeOptions([condition], ["satisfied"])),
    ]
    satisfied = acero.Declaration.from_sequence(steps).to_table(use_threads=False)["satisfied"]
    return satisfied.fill_null(False).to_numpy()  # noqa: FBT003 (as of any type)
