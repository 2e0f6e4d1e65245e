"""What an analysis consists of: metadata that states its definitions, its functions, and their result.

The metadata (title, columns with units and meaning, sources) is the one source of `tracekit analyze --list`,
the documentation page and the dashboard's menu.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tracekit.analysis.rules import Finding, Rule
from tracekit.errors import unknown_name
from tracekit.runs.display import Displayed

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.runs.run import Run

_Value = TypeVar("_Value")
NODE, PARENT = "node", "parent"
"""Columns of a table that is a tree: the number of each row, and that of the row above it."""


@dataclass(frozen=True)
class Column:
    """Column of a result table.

    Attributes:
        name: Its name.
        unit: `ns`, `bytes`, `share` (0 to 1) or `count`; `GB/s` (10⁹ bytes), `TFLOP/s`, `FLOP`, `tokens/s`
            and `×` (a ratio); `W`, `J`, `MHz` and `°C`; `prose` for sentences, which wrap; `id` for what is
            copied, which is never cut; empty for names and for numbers that name something (rows, devices,
            steps).
        meaning: What a value says.
        unit_in: The column that holds each row's unit, where a table lists quantities of several units; it is
            not shown to people, whose cells hold the unit.
        indent_by: The column that holds each row's depth in a tree, by which its cells are indented; such a
            table has the columns `NODE` and `PARENT`, and rows in depth-first order.
    """

    name: str
    unit: str
    meaning: str
    unit_in: str = ""
    indent_by: str = ""


@dataclass(frozen=True)
class TableSpec:
    """Table of a result: name, title and columns in order."""

    name: str
    title: str
    columns: tuple[Column, ...]


class Remark(str):
    """A note for information: no rule was skipped because of it.

    Example:
        >>> isinstance(Remark("nothing was copied"), str)
        True
    """

    __slots__ = ()


class Tables(dict[str, "pd.DataFrame"]):
    """Tables of a result by name; the error of a name that it lacks lists those that it has.

    Example:
        >>> Tables(whole=None)["hole"]
        Traceback (most recent call last):
        tracekit.errors.UnknownNameError: unknown table of the result: 'hole' (did you mean whole?)
    """

    def __missing__(self, name: str) -> pd.DataFrame:
        raise unknown_name("table of the result", str(name), self)


@dataclass(frozen=True)
class Result(Displayed):
    """Result of an analysis: tables by name, findings, and notes on missing data and how to get it.

    A note because of which no rule was skipped is a `Remark`.

    Attributes:
        tables: The tables.
        findings: The findings.
        notes: The notes.
        incomplete: Whether computing it again may find more, because a rank was lost; such results are not
            cached.
    """

    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    incomplete: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", Tables(self.tables))

    def __repr__(self) -> str:
        """List the tables with their rows, the findings and the notes, a line each.

        Example:
            >>> Result(notes=("nothing was copied",))
            <Result: no tables, 0 findings
              note: nothing was copied>
        """
        sizes = [f"{name} ({_format_count(len(frame), 'row')})" for name, frame in self.tables.items()]
        head = f"<Result: {', '.join(sizes) or 'no tables'}, {_format_count(len(self.findings), 'finding')}"
        lines = [*map(repr, self.findings), *(f"note: {note}" for note in self.notes)]
        return "\n  ".join([head, *lines]) + ">"


def _format_count(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def set_up_libraries() -> None:
    """Set what makes analyses fast in pandas and Arrow, unless the user has chosen it.

    Texts of new frames are Python strings: analyses make thousands of small frames, whose column names are
    texts too, and with Arrow arrays, the default, a whole report takes a third longer. Arrow allocates where
    NumPy does, so that what one frees is used by the other at once. Two allocators return memory to the
    system and get it back page by page, which takes 10% longer.
    """
    import pandas as pd
    import pyarrow as pa

    if pd.get_option("mode.string_storage") == "auto":
        pd.set_option("mode.string_storage", "python")
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ and pa.default_memory_pool().backend_name != "system":
        pa.set_memory_pool(pa.system_memory_pool())


MIN_COMPRESSED = 1 << 16
"""Bytes of a table from which its columns are compressed, which takes 0.1 ms for each."""


@dataclass(frozen=True, kw_only=True)
class StoredTable:
    """What a table of a result has beside the values of its columns (`encode_table`).

    Attributes:
        index: Start, stop and step of its rows.
        dtypes: Types of its columns by name, in order.
    """

    index: tuple[int, int, int]
    dtypes: dict[str, str]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> StoredTable:
        """Describe a table; one whose index is no range raises AttributeError."""
        index: Any = frame.index
        dtypes = {str(name): str(dtype) for name, dtype in frame.dtypes.items()}
        return cls(index=(index.start, index.stop, index.step), dtypes=dtypes)

    def decode(self, data: bytes) -> pd.DataFrame:
        """Return the table with the encoded columns. Damaged ones raise any error."""
        import pandas as pd
        import pyarrow as pa

        set_up_libraries()  # as in the process that computed it
        with pa.ipc.open_stream(data) as reader:
            batch = reader.read_next_batch()
        index = pd.RangeIndex(*self.index)
        columns = {name: _decode_column(batch[name], dtype, index) for name, dtype in self.dtypes.items()}
        return pd.DataFrame(columns, index=index)


def encode_table(frame: pd.DataFrame) -> memoryview:
    """Return the columns of a table as an Arrow stream, from which `StoredTable.decode` returns the same.

    Arrow's own metadata for pandas is omitted: to write and to read it takes longer than the columns of most
    tables.

    Raises:
        ValueError: A column does not read back unchanged; other errors have the same meaning.
    """
    import pyarrow as pa

    columns = {str(name): _encode_column(column) for name, column in frame.items()}
    if len(columns) < frame.shape[1]:
        raise ValueError("columns have the same name")
    batch = pa.RecordBatch.from_pydict(columns)
    options = pa.ipc.IpcWriteOptions(compression="zstd" if batch.nbytes > MIN_COMPRESSED else None)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema, options=options) as writer:
        writer.write_batch(batch)  # even without rows, for its categories
    return memoryview(stream.getvalue())


def _encode_column(column: pd.Series[Any]) -> Any:
    """Return a column as an Arrow array; raise ValueError if it does not read back unchanged."""
    import numpy as np
    import pyarrow as pa

    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "iufb":
        return pa.array(column.to_numpy(), from_pandas=True)  # a third of the time of a series
    values = pa.array(column)
    if not _reads_back(column, values):
        raise ValueError(f"{column.name} does not read back unchanged")
    return values


def _reads_back(column: pd.Series[Any], values: Any) -> bool:
    """Return whether a column reads back unchanged, as numbers and texts without missing ones do."""
    import pandas as pd
    import pyarrow as pa

    dtype = column.dtype
    if pd.api.types.is_numeric_dtype(dtype) or (pa.types.is_string(values.type) and not values.null_count):
        return True
    if dtype.kind == "O" and values.to_pylist() == column.tolist():
        return True
    read = pd.Series(_decode_column(values, str(dtype), column.index), column.index)
    return read.dtype == dtype and read.equals(column)


def _decode_column(values: Any, name: str, index: pd.Index[Any]) -> Any:
    """Return the values of a column in a type of pandas."""
    import numpy as np
    import pandas as pd

    dtype: Any = pd.api.types.pandas_dtype(name)
    if name == "object":  # in a series, as an array of texts would become of their type
        return pd.Series(values.to_pylist(), index, dtype=object)
    if name == "category":  # which is not all of the type
        return values.to_pandas().array
    is_of_numpy = isinstance(dtype, np.dtype)
    return values.to_numpy(zero_copy_only=False) if is_of_numpy else dtype.__from_arrow__(values)


@dataclass(frozen=True)
class ByRank:
    """An analysis as map and combine functions, so that no process holds the events of all ranks.

    The whole is `combine(run, [map(run)])`, and must be the same for every way to part the ranks.

    Attributes:
        map: Computes the partial result of a run of one or several ranks: small and picklable. A module-level
            function, since it runs in other processes.
        combine: Computes the result from the run and the partial results of its ranks, in order. It may read
            the run's metadata, and rows of `RankView`s that a finding names, but not all ranks.

    Example:
        >>> longest = ByRank(
        ...     map=lambda run: max(run.arrow("steps", columns=["dur_ns"])["dur_ns"].to_pylist()),
        ...     combine=lambda run, parts: Result(notes=(f"the longest step takes {max(parts)} ns",)),
        ... )
    """

    map: Callable[[Run], Any]
    combine: Callable[[Run, Sequence[Any]], Result]

    def whole(self, run: Run) -> Result:
        """Map and combine all ranks at once."""
        return self.combine(run, [self.map(run)])


@dataclass(frozen=True)
class Analysis:
    """Analysis: metadata and function.

    Attributes:
        name: Registered name, also the command-line name.
        title: Heading.
        question: The question it answers, in one sentence.
        definition: How its numbers are defined.
        tables: Specification of each table it may return.
        sources: Published work that defines it.
        order: Place in menus; `integrity` is 0.
        compute: The pure function; it never mutates a table it was given.
        rules: When it gives advice; empty where it only describes.
        compare: The pure function that explains how a second run differs from a first, in tables of
            `comparison`; None where there is no such explanation.
        comparison: Specification of the tables of `compare`.
        needs_profile: Whether a run without one leaves it nothing to read.
        reads: Tables, or columns as `table.column`; a run without values in any of them gives it no rows.
        by_rank: How it works rank by rank; None where it must read all ranks at once.
        measure_aside: How long the steps of a run, or its capture, are at an edge or in marked warm-up;
            savings are shares of the rest. Only `idle_gaps` has it.
        uses_peaks: Whether its results depend on the peaks of the devices; others never see those that a
            user gave (`Run.peaks`).
        shares: What of a run it needs as other analyses do, what takes longest first. Analyses are computed
            in an order (`order_by_facts`) in which one of two processes computes most of it.
        answer: Sentence of the dashboard's generated page, on the first row of the first table: `{column}` is
            a name, or a number in the unit of its column.
    """

    name: str
    title: str
    question: str
    definition: str
    tables: tuple[TableSpec, ...]
    sources: tuple[str, ...]
    order: int
    compute: Callable[[Run], Result]
    rules: tuple[Rule, ...] = ()
    compare: Callable[[Run, Run], Result] | None = None
    comparison: tuple[TableSpec, ...] = ()
    needs_profile: bool = True
    reads: tuple[str, ...] = ()
    by_rank: ByRank | None = None
    measure_aside: Callable[[Run], int] | None = None
    uses_peaks: bool = False
    shares: tuple[Callable[[Run], object], ...] = ()
    answer: str = ""

    @property
    def menu_place(self) -> tuple[int, str]:
        """The place among all analyses: `order`, then the name."""
        return self.order, self.name

    def finds_input(self, run: Run) -> bool:
        """Return whether a run has values that the analysis reads (`reads`)."""
        return not self.reads or any(has_values(run, *place.partition(".")[::2]) for place in self.reads)


MAX_SHARED_ROWS = 3_000_000
"""Rows of a run up to which what several analyses need always stays in memory: about 200 MB."""


def is_shared(run: Run) -> bool:
    """Return whether what several analyses need of a run stays in memory."""
    rows = run.rows("host_intervals") + run.rows("device_intervals")
    return rows <= MAX_SHARED_ROWS or run.keeps_facts


def compute_shared(run: Run, function: Callable[[Run], _Value]) -> _Value:
    """Return what a function computes from a run: once for all analyses if it stays in memory.

    Args:
        run: The run.
        function: A function without other inputs; its result is shared and must not be changed.
    """
    return run.compute_once(function) if is_shared(run) else function(run)


def has_values(run: Run, table: str, column: str = "") -> bool:
    """Return whether a run has values of a column, or rows of a table."""
    if not column or not run.rows(table):
        return run.rows(table) > 0
    values = run.arrow(table, columns=[column])[column]
    return bool(values.null_count < len(values))


def list_host_names(run: Run) -> list[str]:
    """Return the names of host intervals, each once per part of the table, and maybe of none."""
    names = run.arrow("host_intervals", columns=["name"])["name"]
    return [name for chunk in names.chunks for name in chunk.dictionary.to_pylist()]
