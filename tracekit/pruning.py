"""Reading a window of time: which row groups can have rows in it, by their statistics, and which rows do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

Window: TypeAlias = tuple[int, int]
"""From a time on, until before another, ns since the run's t0."""


def rows_in(schema: pa.Schema, window: Window) -> pc.Expression:
    """Rows of a table that have a part of the window: intervals that overlap it or start in it, and samples.

    Example:
        >>> from tracekit.schema import TABLES
        >>> str(rows_in(TABLES["counters"].arrow, (5, 9)))
        '((t_ns >= 5) and (t_ns < 9))'
    """
    import pyarrow.compute as pc

    low, high = window
    if C.T_NS in schema.names:
        return (pc.field(C.T_NS) >= low) & (pc.field(C.T_NS) < high)
    start = pc.field(C.START_NS)
    return (start < high) & ((start >= low) | (pc.add(start, pc.field(C.DUR_NS)) > low))


def row_groups_in(dataset: ds.FileSystemDataset, window: Window) -> ds.FileSystemDataset:
    """The same files with only the row groups that can have rows in a window.

    Statistics bound the starts and the durations of a row group; one without them is kept.
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
