"""Interval unions per group, row lookups, and shared columns and notes.

Groups are numbers from 0 up to `groups`; `codes` are those of the rows. Times are integer nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import EVIDENCE_ROWS, Column, Remark, TableSpec
from tracekit.analysis.kernel_names import matches, search_each
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, Union
from tracekit.runs.run import Run, busy
from tracekit.runs.selection import RowIndex
from tracekit.runs.text import SIZES, TIMES, human
from tracekit.schema import C, DeviceKind, HostKind

from .groups import codes_of, max_so_far, order_in_groups, rows_by_device, search_by, sum_by_code

Bools: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]
Objects: TypeAlias = npt.NDArray[np.object_]
Small: TypeAlias = npt.NDArray[np.integer[Any]]
"""Integers of at most 8 bytes: smaller ones save memory for millions of rows."""

NO_PARENT = -1
LAUNCH_PATTERN = r"(?i)(?:launch|memcpy|memset)"
"""Runtime and driver calls that launch device work, except those of `HOST_FUNCTION_PATTERN`."""
GRAPH_CALL = r"(?i)graphlaunch"
"""Calls that launch a CUDA or HIP graph."""
HOST_FUNCTION_PATTERN = r"(?i)launchhostfunc"
"""Calls that enqueue a host function in a stream, which has no device interval."""
NO_DEVICE = "no device in this capture: nothing ran on a GPU, or recording of its activity was off"
NOT_RECORDED = (
    "the host launched GPU work but no GPU activity was recorded (the profiler lacked permission, or another "
    "tool held CUPTI): this is not an idle GPU; allow GPU performance counters and record again"
)
NO_STEPS = Remark(
    "no profiled steps in this capture: call `profiler.step()` once per iteration to get per-step numbers"
)
UNLINKED = "device intervals could not be linked to ops"
"""Note for device intervals without known launches, whose time per op is unknown, not zero."""

RANK = Column(C.RANK, "", "rank of the process in its job")
DEVICE = Column(C.DEVICE, "", "device index")
STEP = Column(C.STEP, "", "number of the profiled step")
PLACE, PLACE_COLUMNS = [C.RANK, C.DEVICE], (RANK, DEVICE)
"""Columns that identify a device of a job."""


def map_texts(texts: pd.Series, function: Callable[[str], Any]) -> pd.Series:
    """Result of a function for each text, called once per distinct text.

    Example:
        >>> map_texts(pd.Series(["b", "a", "b"], dtype="category"), str.upper).tolist()
        ['B', 'A', 'B']
    """
    codes, distinct = _number_texts(texts)
    results = np.empty(len(distinct), object)
    for code in _occurring(codes, len(distinct)):
        results[code] = function(str(distinct[code]))
    return pd.Series(results[codes], texts.index, dtype=object)


def map_categories(texts: pd.Series, function: Callable[[str], str]) -> pd.Categorical:
    """Like `map_texts`, as sorted categories; no text is missing.

    Example:
        >>> map_categories(pd.Series(["b", "a", "b"]), str.upper).codes.tolist()
        [1, 0, 1]
    """
    codes, distinct = _number_texts(texts)
    used = _occurring(codes, len(distinct))
    results = dict(zip(used.tolist(), map(function, distinct[used]), strict=True))
    return to_categorical([results.get(code, "") for code in range(len(distinct))], codes)


def fill_categories(texts: pd.Categorical, absent: str) -> pd.Categorical:
    """A text column with a replacement for missing values, as sorted categories.

    Example:
        >>> fill_categories(pd.Categorical(["b", None]), "a").codes.tolist()
        [1, 0]
    """
    codes, count = texts.codes, len(texts.categories)
    return to_categorical([*texts.categories, absent], np.where(codes < 0, count, codes))


def _occurring(codes: Small, count: int) -> Ints:
    """Sorted distinct codes, of which -1 is the last of all; `np.unique` takes ten times as long."""
    occurs = np.zeros(count, np.bool_)
    occurs[codes] = True
    return np.flatnonzero(occurs)


def _number_texts(texts: pd.Series) -> tuple[Small, Objects]:
    """A number of each text, -1 if missing, and the texts by number, of which the last is that of -1."""
    if isinstance(texts.dtype, pd.CategoricalDtype):
        codes, distinct = texts.array.codes, texts.dtype.categories
    else:
        codes, distinct = pd.factorize(texts)
    return codes, np.append(distinct.to_numpy(object), np.nan)


def contains(texts: pd.Series, pattern: str) -> Bools:
    """Whether each text contains the pattern, searched once per distinct text.

    Example:
        >>> contains(pd.Series(["cudaLaunchKernel", "cudaFree"]), "(?i)launch")
        array([ True, False])
    """
    codes, distinct = _number_texts(texts)
    contained, used = np.zeros(len(distinct), np.bool_), _occurring(codes, len(distinct))
    contained[used] = search_each(distinct[used].tolist(), pattern)
    return contained[codes]


def sort_by(table: pd.DataFrame, *order: str) -> pd.DataFrame:
    """Sort rows by columns, falling where a name begins with `-`.

    Example:
        >>> sort_by(pd.DataFrame({"n": [1, 1, 2], "at": [8, 7, 9]}), "-n", "at")["at"].tolist()
        [9, 7, 8]
    """
    keys = [_sort_key(table[name.removeprefix("-")], falls=name.startswith("-")) for name in reversed(order)]
    return table.take(np.lexsort(keys)).reset_index(drop=True)


def _sort_key(values: pd.Series, *, falls: bool) -> npt.NDArray[Any]:
    """Numbers in the order of the values, missing ones last."""
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "if":
        numbers = values.to_numpy()
        return -numbers if falls else numbers
    codes, count = codes_of(values)
    return np.where(codes < 0, count, -codes if falls else codes)


def select(table: pd.DataFrame, columns: Iterable[Column], *order: str) -> pd.DataFrame:
    """The declared columns of a table, after sorting it as `sort_by` does."""
    return (sort_by(table, *order) if order else table)[[column.name for column in columns]]


def typed_table(rows: Sequence[Mapping[str, Any]], spec: TableSpec) -> pd.DataFrame:
    """Build a table with the declared columns: nullable integers, and rates and ratios."""
    table = pd.DataFrame(rows, columns=[column.name for column in spec.columns])
    types = dict.fromkeys(("ns", "bytes", "count"), "Int64") | dict.fromkeys(("GB/s", "×"), "float64")
    return table.astype({column.name: types[column.unit] for column in spec.columns if column.unit in types})


def ints(frame: pd.DataFrame, column: str) -> Ints:
    """A column without nulls as int64."""
    return frame[column].to_numpy(dtype=np.int64)


def in_steps(rows: pd.DataFrame, *, marked: bool) -> pd.DataFrame:
    """Rows in profiled steps, or all if no steps are marked."""
    return rows[rows[C.STEP].notna()] if marked else rows


def spans(frame: pd.DataFrame) -> tuple[Ints, Ints]:
    """Starts and ends of a table's rows."""
    start = ints(frame, C.START_NS)
    return start, start + ints(frame, C.DUR_NS)


def extent(frame: pd.DataFrame) -> Union:
    """From the first start to the last end of a table's rows, of which there is at least one."""
    start, end = spans(frame)
    return start.min(keepdims=True), end.max(keepdims=True)


def is_kind(*kinds: HostKind | DeviceKind) -> pc.Expression:
    """Condition on rows of `host_intervals` or `device_intervals`: that they are of one of these kinds."""
    names = [str(kind) for kind in kinds]
    return pc.field(C.KIND).isin(names) if len(names) > 1 else pc.field(C.KIND) == names[0]


def absent_device_note(run: Run) -> str:
    """Note on why a run has no device intervals."""
    calls = run.table("host_intervals", columns=[C.NAME], where=is_kind(HostKind.RUNTIME, HostKind.SYNC))
    return NOT_RECORDED if is_launch(calls[C.NAME]).any() else NO_DEVICE


def nothing_note(run: Run, note: str) -> str:
    """Note on a run without what an analysis reads, or on why it has no device intervals at all."""
    return absent_device_note(run) if busy(run, [C.DUR_NS]).empty else note


def is_launch(names: pd.Series) -> pd.Series:
    """Whether each call launches device work.

    Example:
        >>> is_launch(pd.Series(["cudaMemcpyAsync", "cudaLaunchHostFunc"], dtype="category")).tolist()
        [True, False]
    """
    return matches(names, LAUNCH_PATTERN) & ~matches(names, HOST_FUNCTION_PATTERN)


def alone_ns(rows: pd.DataFrame, others: pd.DataFrame) -> Ints:
    """Time in which each device interval is the only one of `others`, which it is one of, on its device."""
    alone = np.zeros(len(rows), np.int64)
    (start, end), (other_start, other_end) = spans(rows), spans(others)
    of_others = rows_by_device(others)
    for place, mine in rows_by_device(rows).items():
        of_device = of_others[place]
        single = intervals.alone(other_start[of_device], other_end[of_device])
        alone[mine] = intervals.overlap_lengths(single, start[mine], end[mine])
    return alone


def union_by(codes: Ints, groups: int, start: Ints, end: Ints) -> Ints:
    """Length of the union of intervals within each group.

    Example:
        >>> union_by(np.array([0, 0, 1]), 2, np.array([0, 2, 0]), np.array([3, 5, 4]))
        array([5, 4])
    """
    lane, starts, ends = segments_by(codes, start, end)
    return sum_by_code(lane, groups, ends - starts)


def segments_by(codes: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Segments of the union of intervals within each group: group, start and end of each, sorted.

    Example:
        >>> segments_by(np.array([0, 0, 1]), np.array([0, 2, 0]), np.array([3, 5, 4]))
        (array([0, 1]), array([0, 0]), array([5, 4]))
    """
    nonempty = end > start
    order = order_in_groups(codes[nonempty], start[nonempty])
    lane, starts, ends = codes[nonempty][order], start[nonempty][order], end[nonempty][order]
    if not len(order):
        return lane, starts, ends
    reach = max_so_far(lane, ends)
    first = np.concatenate(([True], (lane[1:] != lane[:-1]) | (starts[1:] > reach[:-1])))
    last = np.concatenate((first[1:], [True]))
    return lane[first], starts[first], reach[last]


def sum_subtrees(parent: Ints, values: Ints) -> Ints:
    """Value of each node of a tree and of all nodes below it.

    A parent precedes its nodes; it is negative at the top.

    Example:
        >>> sum_subtrees(np.array([-1, 0, 1, 0]), np.array([1, 2, 4, 8]))
        array([15,  6,  4,  8])
    """
    parents, total = parent.tolist(), values.tolist()
    for node in range(len(total) - 1, -1, -1):
        if parents[node] >= 0:
            total[parents[node]] += total[node]
    return np.array(total, np.int64)


def overlap_by(groups: Small, bounds: Union, of_window: Small, windows: Union) -> Ints:
    """Overlap of each window with the union of the intervals of its group.

    Both have groups, and starts and ends in any order.

    Example:
        >>> busy = np.array([0, 2, 0]), np.array([3, 5, 4])
        >>> overlap_by(np.array([0, 0, 1]), busy, np.array([1, 0]), (np.array([1, 4]), np.array([9, 9])))
        array([3, 1])
    """
    lane, first, last = segments_by(groups.astype(np.int64), *bounds)
    if not len(lane):
        return np.zeros(len(of_window), np.int64)
    lanes = of_window.astype(np.int64)
    before, first_of_lane = np.cumsum(last - first) - (last - first), np.searchsorted(lane, lanes)

    def covered(times: Ints) -> Ints:
        """Length of the segments before each time, which counts from the first segment of all."""
        place = search_by(lane, first, lanes, times)
        begun = before[place] + np.minimum(times, last[place]) - first[place]
        return np.where(place < 0, np.append(before, 0)[first_of_lane], begun)

    low, high = windows
    return covered(high) - covered(low)


def max_per_rank(frame: pd.DataFrame, values: npt.ArrayLike) -> int:
    """Sum over ranks of the largest per-device sum: devices of a rank run concurrently.

    Example:
        >>> frame = pd.DataFrame({C.RANK: [0, 0, 0, 1], C.DEVICE: [0, 0, 1, 0]})
        >>> max_per_rank(frame, [2, 3, 4, 7])
        12
    """
    amounts = np.asarray(values, np.int64)
    largest: dict[int, int] = {}
    for (rank, _), rows in rows_by_device(frame).items():
        total = int(amounts[rows].sum())
        largest[rank] = max(largest.get(rank, total), total)
    return sum(largest.values())


def positions(row_ids: pd.Series, wanted: pd.Series) -> Ints:
    """Positions of the rows with the wanted ids, `NO_PARENT` for null and absent ids.

    Example:
        >>> positions(pd.Series([7, 9]), pd.Series([9, None, 8], dtype="Int64"))
        array([ 1, -1, -1])
    """
    return RowIndex(row_ids.to_numpy(dtype=np.int64)).of(ids_or_absent(wanted))


def ids_or_absent(ids: pd.Series) -> Ints:
    """Ids as plain integers, `NO_PARENT` for null.

    Example:
        >>> ids_or_absent(pd.Series([9, None], dtype="Int64"))
        array([ 9, -1])
    """
    if isinstance(ids.dtype, pd.Int64Dtype):
        plain: Ints = ids.to_numpy(dtype=np.int64, na_value=NO_PARENT)
        return plain
    return ids.fillna(NO_PARENT).to_numpy(dtype=np.int64)


def values_at(values: npt.NDArray[np.integer[Any]], places: Ints, absent: int) -> Ints:
    """Values at positions, `absent` where the position is `NO_PARENT`.

    Example:
        >>> values_at(np.array([7, 9]), np.array([1, -1]), 0)
        array([9, 0])
    """
    if not len(values):
        return np.full(len(places), absent, np.int64)
    return np.where(places >= 0, values[places].astype(np.int64, copy=False), absent)


def to_categorical(texts: Sequence[str], codes: npt.NDArray[np.integer[Any]]) -> pd.Categorical:
    """Categorical of texts by code, with distinct sorted categories.

    Example:
        >>> to_categorical(["b", "a", "b"], np.array([0, 1, 2])).codes.tolist()
        [1, 0, 1]
    """
    used = _occurring(codes, len(texts))
    distinct, place = np.unique(np.array([*texts, None], object)[used], return_inverse=True)
    moved = np.zeros(len(texts), np.int32)
    moved[used] = place
    return pd.Categorical.from_codes(moved[codes], pd.Index(distinct, dtype=object))


def share(part: Ints | Floats | pd.Series, total: int | Ints | Floats) -> Floats:
    """Ratio of part to whole, NaN if the whole is 0."""
    parts, wholes = np.asarray(part, np.float64), np.asarray(total, np.float64)
    result: Floats = np.divide(parts, wholes, out=np.full(parts.shape, np.nan), where=wholes != 0)
    return result


def percentile(values: Ints, rank: int) -> int:
    """Percentile without interpolation: one of the values.

    Example:
        >>> percentile(np.array([4, 1, 3, 2]), 50)
        2
    """
    return int(np.percentile(values, rank, method="inverted_cdf"))


def duration(ns: int) -> str:
    """Format a time with three digits.

    Example:
        >>> duration(12_345_678), duration(900)
        ('12.3 ms', '900 ns')
    """
    return _text(ns, TIMES, "ns")


def size(count: int) -> str:
    """Format an amount of memory with three digits, in powers of 1,024.

    Example:
        >>> size(1_572_864), size(-2048)
        ('1.5 MiB', '-2 KiB')
    """
    return _text(count, SIZES, "B")


def percent(share: float) -> str:
    """Format a share in percent.

    Example:
        >>> percent(0.1234)
        '12.3%'
    """
    return human(share, "share")


def _text(amount: int, units: tuple[tuple[int, str], ...], smallest: str) -> str:
    for factor, unit in units:
        if abs(amount) >= factor:
            value = amount / factor
            digits = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
            return f"{digits} {unit}"
    return f"{amount} {smallest}"


def medians(codes: Ints, groups: int, values: Ints) -> Ints:
    """Lower median of the values of each group; every group has at least one value.

    Example:
        >>> medians(np.array([1, 0, 0, 1]), 2, np.array([7, 3, 5, 9]))
        array([3, 7])
    """
    ordered = values[order_in_groups(codes, values)]
    count = np.bincount(codes, minlength=groups)
    first = np.cumsum(count) - count
    middle: Ints = ordered[first + (count - 1) // 2]
    return middle


def largest_rows(rows: pd.DataFrame, by: str) -> list[int]:
    """Ids of the rows with the largest integers in a column, at most `EVIDENCE_ROWS`; ties by id."""
    order = np.lexsort((ints(rows, C.ROW_ID), -ints(rows, by)))[:EVIDENCE_ROWS]
    return [int(row) for row in ints(rows, C.ROW_ID)[order]]


def concat_tables(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate tables with the same columns; empty tables do not affect the types.

    Categories remain categories, sorted.

    Example:
        >>> concat_tables([pd.DataFrame({"n": [2, 1]}), pd.DataFrame({"n": [3]})])["n"].tolist()
        [2, 1, 3]
    """
    full = [part for part in parts if len(part)] or list(parts[:1])
    if len(full) == 1:
        return full[0].reset_index(drop=True)
    texts = {
        str(name): pd.api.types.union_categoricals([part[name] for part in full], sort_categories=True)
        for name in full[0].select_dtypes("category")
    }
    others = pd.concat([part.drop(columns=[*texts]) for part in full], ignore_index=True)
    return others.assign(**texts)[full[0].columns]


def concat_by_name(
    parts: Sequence[Mapping[str, pd.DataFrame]], names: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """Concatenate tables by name, in the order of names; names without any table are omitted.

    Example:
        >>> one, other = {"a": pd.DataFrame({"n": [1]})}, {"a": pd.DataFrame({"n": [2]})}
        >>> concat_by_name([one, {}, other], ["b", "a"])["a"]["n"].tolist()
        [1, 2]
    """
    parts_by_name = {name: [part[name] for part in parts if name in part] for name in names}
    return {name: concat_tables(tables) for name, tables in parts_by_name.items() if tables}
