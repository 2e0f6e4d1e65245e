"""Read the tables of a run: whole, filtered, or the rows of a window of time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from tracekit import storage
from tracekit.errors import TracekitError, UnusableInputError, check_type, unknown_name
from tracekit.runs import meta as run_meta
from tracekit.runs import tables
from tracekit.runs.meta import RunMeta
from tracekit.schema import BUSY_KINDS, TABLES, C, Column, Table
from tracekit.storage import Place

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from tracekit.runs.devices import Device
    from tracekit.runs.rank_view import Holders


Window: TypeAlias = tuple[int, int]
"""Start and end (exclusive) of a window, ns since the run's t0."""


def rows_in(schema: pa.Schema, window: Window) -> pc.Expression:
    """Return the filter for rows of a window: intervals that overlap it or start in it, and samples.

    Rows without a time are in every window.

    Example:
        >>> from tracekit.schema import TABLES
        >>> str(rows_in(TABLES["counters"].arrow, (5, 9)))
        '((t_ns >= 5) and (t_ns < 9))'
    """
    import pyarrow.compute as pc

    low, high = window
    if C.T_NS in schema.names:
        return (pc.field(C.T_NS) >= low) & (pc.field(C.T_NS) < high)
    if C.START_NS not in schema.names:
        return pc.scalar(True)  # noqa: FBT003 (has no keyword)
    start = pc.field(C.START_NS)
    return (start < high) & ((start >= low) | (pc.add(start, pc.field(C.DUR_NS)) > low))


def row_groups_in(dataset: ds.FileSystemDataset, window: Window) -> ds.FileSystemDataset:
    """Return files with only the row groups that can have rows in a window.

    Statistics bound the starts and durations of a row group; row groups without statistics are included.
    """
    import pyarrow.dataset as ds

    parts = list(_parts(dataset, window))
    return ds.FileSystemDataset(parts, schema=dataset.schema, format=dataset.format)


def _parts(dataset: ds.FileSystemDataset, window: Window) -> Iterator[ds.ParquetFileFragment]:
    for file in dataset.get_fragments():
        chosen = [group.id for group in file.row_groups if _may_overlap(group.statistics or {}, window)]
        if chosen:
            yield file.subset(row_group_ids=chosen)


def _may_overlap(statistics: dict[str, Any], window: Window) -> bool:
    low, high = window
    key = C.T_NS if C.T_NS in statistics else C.START_NS
    if key not in statistics or (key == C.START_NS and C.DUR_NS not in statistics):
        return True
    longest = 0 if key == C.T_NS else int(statistics[C.DUR_NS]["max"])
    first, last = int(statistics[key]["min"]), int(statistics[key]["max"])
    return first < high and last + longest >= low


ENDING = ".parquet"
_COUNTED = ("steps", "device_intervals", "host_intervals")
"""Tables whose rows stand for the size of a run."""


@dataclass(frozen=True)
class Run:
    """A run, on disk or on object storage; tables are read on demand and not cached.

    Attributes:
        path: Its folder.
        peaks: Peaks that analyses use instead of those of the recorded devices; None for the latter.

    Example:
        >>> import tracekit
        >>> run = tracekit.open("latest")  # doctest: +SKIP
        >>> run.table("device_intervals", columns=["name", "dur_ns"])  # doctest: +SKIP
    """

    path: Place
    peaks: Device | None = None

    def __repr__(self) -> str:
        """Describe the run in one line.

        Example:
            >>> from pathlib import Path
            >>> Run(Path("/nothing/here"))
            <Run at /nothing/here: not readable>
        """
        try:
            meta = self.meta
        except TracekitError:
            return f"<Run at {self.path}: not readable>"
        label = [f"label {meta.label!r}"] if meta.label else []
        sizes = [f"{meta.tables[name].rows:,} {_words(name)}" for name in _COUNTED if name in meta.tables]
        return f"<Run {meta.run_id}: {', '.join([*label, *sizes]) or 'no tables'}>"

    @classmethod
    def known(
        cls, path: Place, written_ns: int, *, meta: RunMeta | None = None, outline: RunMeta | None = None
    ) -> Self:
        """Return a run whose metadata, or its outline, was read already."""
        run = cls(path)
        known = {"written_ns": written_ns, "meta": meta, "outline": outline}
        vars(run).update({name: value for name, value in known.items() if value is not None})
        return run

    @cached_property
    def meta(self) -> RunMeta:
        """The content of `run.json`."""
        return run_meta.read(self.path)

    @cached_property
    def outline(self) -> RunMeta:
        """What lists of runs show of `run.json`; see `tracekit.runs.meta.outline`.

        It may come from the index of the store.
        """
        return run_meta.outline(self.meta)

    @cached_property
    def written_ns(self) -> int:
        """Modification time of `run.json`, ns since the epoch.

        Raises:
            OSError: It was deleted.
        """
        return (self.path / run_meta.FILE_NAME).stat().st_mtime_ns

    @property
    def id(self) -> str:
        """The run id."""
        return self.meta.run_id

    def rows(self, name: str) -> int:
        """Return the number of rows of a table, 0 if the run does not have it.

        Raises:
            UnknownNameError: There is no such table in the schema.
        """
        stored = self.meta.tables.get(_spec(name).name)
        return stored.rows if stored else 0

    def arrow(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        window: Window | None = None,
    ) -> pa.Table:
        """Return a table as Arrow, sorted by start. Times are integer nanoseconds since the run's t0.

        Args:
            name: A table of `tracekit.schema.TABLES`, such as `steps` or `device_intervals`.
            columns: Columns, in this order; all of them by default.
            where: Filter expression of `pyarrow.compute`; row groups that cannot match are not read.
            window: Only rows that overlap this window or start in it, (start, end) in ns; row groups without
                such rows are not read.

        Returns:
            The rows; an empty table with the columns if the run has none.

        Raises:
            UnknownNameError: The schema has no such table, or the table no such column.
            TypeError: An argument has another type than is documented.
            UnusableInputError: The file is missing or unreadable, or its columns are not those of the schema;
                or the filter does not suit the columns.

        Example:
            >>> import pyarrow.compute as pc
            >>> run = tracekit.open("latest")  # doctest: +SKIP
            >>> run.arrow("steps", columns=["step", "dur_ns"], where=pc.field("rank") == 0)  # doctest: +SKIP
        """
        spec = _spec(name)
        schema = spec.arrow
        wanted = _columns(spec, columns)
        _check_filters(where, window)
        if not self.rows(name):
            return schema.empty_table().select(wanted)
        with self.reading(name):
            dataset = self._dataset(name)
            condition = where
            if window is not None:
                inside = rows_in(schema, window)
                dataset = row_groups_in(dataset, window)
                condition = inside if where is None else inside & where
            try:
                table = dataset.to_table(columns=wanted, filter=condition)
            except Exception:
                _check_expression(spec, where)
                raise
            table = tables.sound(spec, table)
        return _by_start(table) if self.in_parts(name) else table

    def table(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        window: Window | None = None,
    ) -> pd.DataFrame:
        """Return a table as a DataFrame: integers (`Int64` in nullable columns), texts as categories.

        Arguments, units and errors are those of `arrow`.

        Example:
            >>> run = tracekit.open("latest")  # doctest: +SKIP
            >>> run.table("device_intervals", columns=["name", "dur_ns"])  # doctest: +SKIP
        """
        import pandas as pd
        import pyarrow as pa

        held = self.arrow(name, columns=columns, where=where, window=window)
        specs = {column.name: column for column in TABLES[name].columns}
        made: dict[str, object] = {}
        rows = held.num_rows
        for column in held.column_names:  # frees each column after its conversion
            made[column] = _converted(held[column], specs[column])
            held = held.drop_columns([column])
            pa.default_memory_pool().release_unused()
        return pd.DataFrame(made, index=pd.RangeIndex(rows), copy=False)

    def reading(self, name: str) -> AbstractContextManager[None]:
        """Convert errors of reading a table to one line; see `tracekit.runs.tables`."""
        return tables.reading(name, self.id)

    def dataset(self, name: str) -> ds.FileSystemDataset:
        """Return the files of a table with rows, to be read in batches; parts are in order.

        Raises:
            UnknownNameError: There is no such table in the schema.
            UnusableInputError: A file is missing or unreadable, or its columns are not those of the schema.
        """
        _spec(name)
        with self.reading(name):
            return self._dataset(name)

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Return the ranks with rows, sorted; empty for a run without a profile.

        Raises:
            UnusableInputError: A file is missing or unreadable.
        """
        return tuple(sorted({rank for ranks in self.holders.values() for rank in ranks}))

    @cached_property
    def holders(self) -> Holders:
        """Return the ranks in each file."""
        from tracekit.runs import rank_view

        return rank_view.holders(self)

    def of_ranks(self, *ranks: int) -> Run:
        """Return a view of some ranks, which does not read the files of others.

        Raises:
            TypeError: A rank is not an integer.
            UnusableInputError: The run has no such rank.

        Example:
            >>> import tracekit
            >>> tracekit.open("latest").of_ranks(17).table("device_intervals")  # doctest: +SKIP
        """
        from tracekit.runs import rank_view

        for rank in ranks:
            check_type(rank, int, "a rank", "an integer, as in of_ranks(0, 1)")
        return rank_view.view(self, ranks)

    def with_peaks(self, peaks: Device | None) -> Self:
        """Return this run with other peaks for its devices, or, with None, with those of the recorded ones.

        Example:
            >>> import tracekit
            >>> from tracekit.runs.devices import given
            >>> run = tracekit.open("latest").with_peaks(given("H100 SXM"))  # doctest: +SKIP
            >>> tracekit.analyze(run, "roofline").tables["summary"]["peaks"]  # doctest: +SKIP
        """
        if peaks == self.peaks:
            return self
        other = copy(self)
        cached = {
            name: value for name, value in vars(self).items() if name in {"meta", "outline", "written_ns"}
        }
        vars(other).update(cached, peaks=peaks)
        return other

    def files(self, name: str) -> list[Place]:
        """Return the Parquet files of a table, in order; empty without rows.

        Raises:
            OSError: Object storage denies access.
        """
        stored = self.meta.tables.get(name)
        if not stored or not stored.rows:
            return []
        if stored.parts:
            return [self.path / name / part.name for part in stored.parts]
        if stored.footers.keys() == {f"{name}{ENDING}"}:
            return [self.path / f"{name}{ENDING}"]
        folder = self.path / name
        parts = storage.inside(folder, f"*{ENDING}") if name in self._parted else []
        return parts or [self.path / f"{name}{ENDING}"]

    def in_parts(self, name: str) -> bool:
        """Return whether a table has several files, whose rows `arrow` merges."""
        return name in self._parted

    @cached_property
    def _parted(self) -> set[str]:
        in_parts = {name for name, stored in self.meta.tables.items() if stored.parts}
        return in_parts or {
            one.name for one in storage.inside(self.path) if one.name in TABLES and one.is_dir()
        }

    def fragments(self, name: str) -> Iterator[ds.ParquetFileFragment]:
        """Return the files of a table as Arrow fragments."""
        yield from self._dataset(name).get_fragments()

    def _dataset(self, name: str) -> ds.FileSystemDataset:
        stored = self.meta.tables.get(name)
        footers = stored.footers if stored else {}
        return tables.opened(TABLES[name], self.files(name), self._stored_rows(name), footers)

    def _stored_rows(self, name: str) -> int | None:
        """Return the number of rows of the files according to `run.json`; None if unknown."""
        return self.rows(name)


def busy(run: Run, columns: Sequence[str]) -> pd.DataFrame:
    """Return the intervals of device work: kernels, copies, memsets and opaque graphs."""
    import pyarrow.compute as pc

    kinds = pc.field(C.KIND).isin([str(kind) for kind in BUSY_KINDS])
    return run.table("device_intervals", columns=columns, where=kinds)


def _words(table: str) -> str:
    return table.replace("_", " ")


def _spec(name: str) -> Table:
    """Return the table of the schema.

    Example:
        >>> _spec("device_interval")
        Traceback (most recent call last):
        tracekit.errors.UnknownNameError: unknown table: 'device_interval' (did you mean device_intervals?)
    """
    check_type(name, str, "name", "the name of a table (str), such as 'steps'")
    if name not in TABLES:
        raise unknown_name("table", name, TABLES)
    return TABLES[name]


def _columns(spec: Table, columns: Sequence[str] | None) -> list[str]:
    known = [column.name for column in spec.columns]
    if columns is None:
        return known
    wanted = "a list of names of columns, such as ['name', 'dur_ns']"
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        check_type(columns, (), "columns", wanted)
    chosen = list(columns)
    for name in chosen:
        check_type(name, str, "columns", wanted)
        if name not in known:
            raise unknown_name(f"column of table {spec.name}", name, known)
    return chosen


def _check_filters(where: pc.Expression | None, window: Window | None) -> None:
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


def _check_expression(spec: Table, where: pc.Expression | None) -> None:
    """Raise what is wrong with a filter that failed; nothing if it suits the table, so the file does not.

    Raises:
        UnknownNameError: The table has no such column.
        UnusableInputError: The filter does not suit the types of the columns.
    """
    import pyarrow as pa

    if where is None:
        return
    try:
        spec.arrow.empty_table().filter(where)
    except pa.ArrowException as error:
        known = [column.name for column in spec.columns]
        if field := _NO_FIELD.search(str(error)):
            raise unknown_name(f"column of table {spec.name}", field[1], known) from error
        raise UnusableInputError(
            f"the filter {where} does not suit table {spec.name}: {storage.reason(error)}",
            hint="compare a column with a value of its type",
        ) from error


def _by_start(table: pa.Table) -> pa.Table:
    """Sort the rows of parts by the selected columns of the order; without a start, keep their order."""
    for key in (C.START_NS, C.T_NS):
        if key in table.column_names:
            return table.sort_by(key)
    return table


def _converted(column: pa.ChunkedArray, spec: Column) -> object:
    """Convert a column to pandas: exact integers, with a mask if nullable."""
    if spec.is_integer and not spec.nullable:
        return column.to_numpy()
    return column.to_pandas(types_mapper=_nullable_type)


def _nullable_type(type_: pa.DataType) -> object:
    import pandas as pd
    import pyarrow as pa

    return {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}.get(type_)
