"""Runs, and views of some of their ranks: read tables as a whole, filtered, or in a window of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, cast
from weakref import ref

from tracekit import storage
from tracekit.errors import TracekitError, UnusableInputError, check_type
from tracekit.runs import meta as run_meta
from tracekit.runs import tables
from tracekit.runs.column_cache import MAX_SMALL_ROWS, ColumnCache
from tracekit.runs.display import Displayed
from tracekit.runs.meta import RunMeta
from tracekit.runs.selection import (
    RowIds,
    Selection,
    Window,
    check_expression,
    check_filters,
    combine,
    find_columns,
    find_table,
    has_ids,
    restrict,
    rows_in,
    time_column,
)
from tracekit.runs.text import format_ranks
from tracekit.schema import BUSY_KINDS, COUNTERS, TABLES, C, Table
from tracekit.storage import Place

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from tracekit.runs.devices import Device


MAX_ROWS_OF_KEPT_VIEWS = 1_000_000
"""Rows of a run up to which views of its ranks are kept with what was computed of them."""
RanksByFile: TypeAlias = Mapping[str, frozenset[int]]
"""Ranks in each part file, by file name; the parts of one trace have the same name in all tables."""
_SIZES = ("steps", "device_intervals", "host_intervals")  # whose rows stand for the size of a run
RANKED = [
    table.name
    for table in TABLES.values()
    if any(column.name == C.RANK and not column.nullable for column in table.columns)
]
"""Tables of which every row has a rank."""
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Run(Displayed):
    """A run, on disk or on object storage; tables are read on demand and not cached.

    Attributes:
        path: Its folder.
        peaks: Peaks that analyses use instead of those of the recorded devices, if any.

    Example:
        >>> tracekit.open("latest").table("device_intervals", columns=["name", "dur_ns"])  # doctest: +SKIP
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
        sizes = [
            f"{meta.tables[name].rows:,} {name.replace('_', ' ')}" for name in _SIZES if name in meta.tables
        ]
        return f"<Run {meta.run_id}: {', '.join([*label, *sizes]) or 'no tables'}>"

    @classmethod
    def from_metadata(
        cls, path: Place, written_ns: int, *, meta: RunMeta | None = None, header: RunMeta | None = None
    ) -> Self:
        """Return a run whose metadata, or its header, was read already.

        Args:
            path: Its folder.
            written_ns: Modification time of `run.json`, ns since the epoch.
            meta: The metadata.
            header: See `header`.
        """
        run = cls(path)
        cached = {"written_ns": written_ns, "meta": meta, "header": header}
        # As if the cached properties had been read.
        vars(run).update({name: value for name, value in cached.items() if value is not None})
        return run

    @cached_property
    def keeps_facts(self) -> bool:
        """Whether what its analyses share stays in memory even of many rows (`by_rank.keep_facts`)."""
        return False

    @cached_property
    def meta(self) -> RunMeta:
        """The content of `run.json`."""
        return run_meta.read(self.path)

    @cached_property
    def header(self) -> RunMeta:
        """What lists of runs show, maybe from the store's index; see `tracekit.runs.meta.header`."""
        return run_meta.header(self.meta)

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
        stored = self.meta.tables.get(find_table(name).name)
        return stored.rows if stored else 0

    def arrow(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        window: Window | None = None,
        row_ids: RowIds | None = None,
    ) -> pa.Table:
        """Return a table as Arrow, sorted by start. Times are integer nanoseconds since the run's t0.

        Args:
            name: A table of `tracekit.schema.TABLES`, such as `steps` or `device_intervals`.
            columns: Columns, in this order; all of them by default.
            where: Filter expression of `pyarrow.compute`. Whole columns are read, and stay in memory for the
                next call.
            row_ids: Only rows with these ids; of large tables, only row groups that can have them are read.
            window: Only rows that overlap this window or start in it, (start, end) in ns. Of large tables,
                row groups without such rows are not read.

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
        spec = find_table(name)
        chosen = find_columns(spec, columns)
        check_filters(where, window)
        if not self.rows(name):
            return spec.arrow.empty_table().select(chosen)
        with self.one_line_errors(name):
            try:
                selection = Selection(where, window, row_ids)
                kept = self._select_kept(spec, chosen, selection)
                return self._read(spec, chosen, selection) if kept is None else kept
            except Exception:  # Arrow has one error for a bad filter and for a bad file
                check_expression(spec, where)
                raise

    def _read(self, spec: Table, columns: list[str], selection: Selection) -> pa.Table:
        """Return columns of rows, from the files."""
        where = combine(selection.where, has_ids(selection.row_ids))
        where = combine(where, self._rank_filter(spec.name))
        in_window, condition = restrict(self._dataset(spec.name), selection.window, where)
        rows = tables.check_values(spec, in_window.to_table(columns=columns, filter=condition))
        # Rows of parts are merged by time if it was selected.
        time = time_column(rows.column_names) if self.in_parts(spec.name) else None
        return rows.sort_by(time) if time else rows

    def _select_kept(self, spec: Table, columns: list[str], selection: Selection) -> pa.Table | None:
        """Return columns of rows, from columns in memory; None if none are kept."""
        whole, window = self._whole, selection.window
        # Of object storage and of windows of many rows only what is asked for is read; large ranks alone.
        is_small, in_parts = whole.rows(spec.name) <= MAX_SMALL_ROWS, whole.in_parts(spec.name)
        if not isinstance(self.path, Path) or (not is_small and (in_parts or window is not None)):
            return None
        if in_parts and spec.name not in RANKED and whole is not self:
            return None  # which files have rows of the ranks is known, but not which rows
        in_ranks = self._rank_filter(spec.name, of_whole=True)
        part = None if in_ranks is None else (f"{spec.name} of {self.ranks}", in_ranks)
        where = combine(selection.where, None if window is None else rows_in(spec.arrow, window))
        order_by = time_column(spec.arrow.names) if in_parts else None
        dataset = whole._dataset(spec.name)
        return whole._columns.select(spec, dataset, columns, where, order_by, selection.row_ids, part)

    def table(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        window: Window | None = None,
        row_ids: RowIds | None = None,
    ) -> pd.DataFrame:
        """Return a table as a DataFrame: integers (`Int64` in nullable columns), texts as categories.

        Arguments, units and errors are those of `arrow`.

        Example:
            >>> run = tracekit.open("latest")  # doctest: +SKIP
            >>> run.table("device_intervals", columns=["name", "dur_ns"])  # doctest: +SKIP
        """
        import pandas as pd

        table = self.arrow(name, columns=columns, where=where, window=window, row_ids=row_ids)
        specs = {column.name: column for column in TABLES[name].columns}
        categories = self._whole._columns.categories.setdefault(name, {})
        names, rows, read = table.column_names, table.num_rows, table.columns[::-1]
        del table  # free each column at once: both copies of a table would not fit
        converted = {name: tables.to_pandas(read.pop(), specs[name], categories) for name in names}
        return pd.DataFrame(converted, index=pd.RangeIndex(rows), copy=False)

    def one_line_errors(self, name: str) -> AbstractContextManager[None]:
        """Convert errors of reading a table to one line; see `tracekit.runs.tables`."""
        return tables.one_line_errors(name, self.id)

    def dataset(self, name: str) -> ds.FileSystemDataset:
        """Return the files of a table with rows, to be read in batches; parts are in order.

        Raises:
            UnknownNameError: There is no such table in the schema.
            UnusableInputError: A file is missing or unreadable, or its columns are not those of the schema.
        """
        find_table(name)
        with self.one_line_errors(name):
            return self._dataset(name)

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Return the ranks with rows, sorted; empty for a run without a profile.

        Raises:
            UnusableInputError: A file is missing or unreadable.
        """
        return tuple(sorted({rank for ranks in self.ranks_by_file.values() for rank in ranks}))

    @cached_property
    def ranks_by_file(self) -> RanksByFile:
        """The ranks in each part file, from the statistics of one file per trace.

        Raises:
            UnusableInputError: A file is missing or unreadable.
        """
        ranks: dict[str, frozenset[int]] = {}
        for name in filter(self.rows, RANKED):
            with self.one_line_errors(name):
                for fragment in self._dataset(name).get_fragments():
                    file = fragment.path.rpartition("/")[2]
                    ranks[file] = ranks.get(file) or tables.ranks_in(TABLES[name], fragment)
        return ranks

    def of_ranks(self, *ranks: int) -> Run:
        """Return a view of some ranks, which does not read the files of others.

        Raises:
            TypeError: A rank is not an integer.
            UnusableInputError: The run has no such rank.

        Example:
            >>> import tracekit
            >>> tracekit.open("latest").of_ranks(17).table("device_intervals")  # doctest: +SKIP
        """
        for rank in ranks:
            check_type(rank, int, "a rank", "an integer, as in of_ranks(0, 1)")
        if unknown := sorted(set(ranks) - set(self.ranks)):
            hint = f"it has {format_ranks(self.ranks) or 'no ranks'}"
            raise UnusableInputError(f"run {self.id} has no rank {unknown[0]}", hint=hint)
        chosen = frozenset(ranks)
        if chosen in self._views:
            return self._views[chosen]
        included = {file: held for file, held in self.ranks_by_file.items() if held & chosen}
        others = frozenset(self.ranks_by_file) - set(included)
        view = RankView(self.path, self.peaks, chosen, included, others, ref(self._whole))
        vars(view)["meta"] = self.meta
        if sum(map(self._whole.rows, RANKED)) <= MAX_ROWS_OF_KEPT_VIEWS:
            self._views[chosen] = view
        return view

    @cached_property
    def _views(self) -> dict[frozenset[int], Run]:
        return {}

    def compute_once(self, function: Callable[[Run], _Value]) -> _Value:
        """Return what a function computes from this run; once per object, as runs never change.

        Args:
            function: A function without other inputs; its result is shared and must not be changed.
        """
        if function not in self._computed:
            self._computed[function] = function(self)
        return cast(_Value, self._computed[function])

    @cached_property
    def _computed(self) -> dict[Callable[[Run], Any], Any]:
        return {}

    def with_peaks(self, peaks: Device | None) -> Self:
        """Return this run with other peaks for its devices, or, with None, with those of the recorded ones.

        Example:
            >>> import tracekit
            >>> from tracekit.runs.devices import parse_device
            >>> run = tracekit.open("latest").with_peaks(parse_device("H100 SXM"))  # doctest: +SKIP
            >>> tracekit.analyze(run, "roofline").tables["summary"]["peaks"]  # doctest: +SKIP
        """
        if peaks == self.peaks:
            return self
        other = copy(self)  # without what is cached, as `__getstate__`: it may depend on the peaks
        unchanged = {"meta", "header", "written_ns", "keeps_facts"} & vars(self).keys()
        vars(other).update({name: vars(self)[name] for name in unchanged}, peaks=peaks)
        return other

    def files(self, name: str) -> list[Place]:
        """Return the Parquet files of a table, in order; empty without rows. `OSError` without access."""
        return tables.list_files(self.path, name, self.meta.tables.get(name), in_parts=name in self._parted)

    def in_parts(self, name: str) -> bool:
        """Return whether a table has several files, whose rows `arrow` merges."""
        return name in self._parted

    @cached_property
    def _parted(self) -> set[str]:
        in_parts = {name for name, stored in self.meta.tables.items() if stored.parts}
        return in_parts or {
            path.name for path in storage.inside(self.path) if path.name in TABLES and path.is_dir()
        }

    def _dataset(self, name: str) -> ds.FileSystemDataset:
        if name not in self._datasets:
            stored = self.meta.tables.get(name)
            footers = stored.footers if stored else {}
            files, rows = self.files(name), self._expected_rows(name)
            self._datasets[name] = tables.open_dataset(TABLES[name], files, rows, footers)
        return self._datasets[name]

    @cached_property
    def _datasets(self) -> dict[str, ds.FileSystemDataset]:
        return {}

    @property
    def _whole(self) -> Run:
        """The run of all ranks, whose columns stay in memory."""
        return self

    @cached_property
    def _columns(self) -> ColumnCache:
        return ColumnCache()

    def __getstate__(self) -> dict[str, object]:
        """Pickle without cached data, and a view without the whole run: a worker reads its ranks' files."""
        return {field.name: vars(self)[field.name] for field in fields(self) if field.compare}

    def _expected_rows(self, name: str) -> int | None:
        """Return the number of rows of the files according to `run.json`; None if unknown."""
        return self.rows(name)

    def _rank_filter(self, _name: str, *, of_whole: bool = False) -> pc.Expression | None:
        """Return the filter for the ranks of a view, if its files, or all if `of_whole`, have others too."""
        return None


@dataclass(frozen=True, repr=False)
class RankView(Run):
    """A run restricted to some ranks. Row ids and times are those of the run.

    Samples of `counters` without a rank are included: those in the ranks' traces, and those of the collector.
    """

    chosen: frozenset[int] = frozenset()  # the ranks
    # ranks in the files with rows of these ranks
    ranks_by_file: RanksByFile = field(default_factory=dict, repr=False)
    other_files: frozenset[str] = field(default=frozenset(), repr=False)  # names of the other files
    # the run of all ranks, which keeps views: a reference in each direction would outlive both
    whole: ref[Run] | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        """Describe the run and the ranks in one line, without reading tables."""
        return f"{super().__repr__().removesuffix('>')}, of which {format_ranks(self.ranks) or 'no ranks'}>"

    def rows(self, name: str) -> int:
        """Return the number of rows of a table.

        Raises:
            UnknownNameError: There is no such table in the schema.
        """
        if name not in self._row_counts:
            with self.one_line_errors(name):
                self._row_counts[name] = self._count_rows(name)
        return self._row_counts[name]

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """The ranks, in order."""
        return tuple(sorted(self.chosen))

    def files(self, name: str) -> list[Place]:
        """Return the files of a table with rows of these ranks."""
        if name not in self._files:
            only_known = name in RANKED and super().in_parts(name)
            self._files[name] = [
                file
                for file in super().files(name)
                if (file.name in self.ranks_by_file if only_known else file.name not in self.other_files)
            ]
        return self._files[name]

    def in_parts(self, name: str) -> bool:
        """Return whether the rows are in several files."""
        return super().in_parts(name) and len(self.files(name)) > 1

    @property
    def _whole(self) -> Run:
        return (self.whole and self.whole()) or self

    def _rank_filter(self, name: str, *, of_whole: bool = False) -> pc.Expression | None:
        import pyarrow.compute as pc

        in_ranks = pc.field(C.RANK).isin(list(self.ranks))
        if name == COUNTERS.name:
            return pc.field(C.RANK).is_null() | in_ranks
        ranks = [self.ranks_by_file.get(file.name, self.chosen) for file in self.files(name)]
        if of_whole and self._whole is not self:  # else the files are those of this view
            ranks = [frozenset(self._whole.ranks)]
        return None if name not in RANKED or all(held <= self.chosen for held in ranks) else in_ranks

    def _count_rows(self, name: str) -> int:
        if not super().rows(name) or not self.files(name):
            return 0
        count: int = self._dataset(name).count_rows(filter=self._rank_filter(name))
        return count

    def _expected_rows(self, name: str) -> int | None:
        return None

    @cached_property
    def _files(self) -> dict[str, list[Place]]:
        return {}

    @cached_property
    def _row_counts(self) -> dict[str, int]:
        return {}


def busy(run: Run, columns: Sequence[str]) -> pd.DataFrame:
    """Return the intervals of device work: kernels, copies, memsets and opaque graphs."""
    import pyarrow.compute as pc

    kinds = pc.field(C.KIND).isin([str(kind) for kind in BUSY_KINDS])
    return run.table("device_intervals", columns=columns, where=kinds)
