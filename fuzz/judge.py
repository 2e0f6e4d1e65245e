"""What a reader may do with an input: make a run that holds together, or say in one line why not."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tracekit.errors import TracekitError
from tracekit.ingest.decoding import close
from tracekit.ingest.importer import import_each
from tracekit.ingest.text_columns import LATEST_NS
from tracekit.schema import DEVICE_INTERVALS, HOST_INTERVALS, TABLES, C

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from tracekit.ingest.nesting import Trace
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

FARTHEST = 3 * LATEST_NS
"""Any instant is less than this far from 1970: base, start and duration each less than a third of it."""
LONGEST_LINE = 4096
"""Characters that a message may have; paths may be that long."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class DefectError(Exception):
    """The reader did what it must never do."""


def imports(path: Path, store: Store) -> bool:
    """Import an input, and look at what came of it; returns whether that was a run.

    Raises:
        DefectError: The run contradicts itself, or the message is none that can be shown.
    """
    runs = 0
    try:
        for outcome in import_each(store, [path]):
            if isinstance(outcome, TracekitError):
                said(str(outcome))
            else:
                holds(outcome)
                runs += 1
                store.remove(outcome)
        left = [entry.name for entry in store.path.glob("*") if entry.name != ".gitignore"]
        if left:
            raise DefectError(f"left behind: {left}")
    finally:
        shutil.rmtree(Path(str(store.path)), ignore_errors=True)
    return runs > 0


def decodes(read: Callable[[Path], Sequence[Trace]], folder: Path) -> bool:
    """Decode an input as an import begins, and measure it: what a reader does by itself.

    Returns:
        Whether there is anything in it.

    Raises:
        DefectError: The message is none that can be shown.
    """
    place = folder / "spooled"
    place.mkdir()
    held = False
    try:
        for trace in read(place):
            size = close(trace)
            held = held or size is not None
            for message in [note.message for note in trace.notes()] if size else [str(trace.empty())]:
                said(message)
            if size and not -FARTHEST < size.first_ns <= size.last_ns < FARTHEST:
                raise DefectError(f"times from {size.first_ns} to {size.last_ns}")
    except TracekitError as error:
        said(str(error))
    return held


def said(message: str) -> None:
    """Whether a message is one line that a terminal can show.

    Raises:
        DefectError: It is not.
    """
    if _CONTROL.search(message):
        raise DefectError(f"a message with control characters: {message[:300]!r}")
    if len(message) > LONGEST_LINE:
        raise DefectError(f"a message of {len(message)} characters: {message[:300]!r}")


def holds(run: Run) -> None:
    """Whether a run's tables are what their schema promises.

    Raises:
        DefectError: They are not.
    """
    for diagnostic in type(run)(run.path).meta.diagnostics:
        said(diagnostic.message)
    for name, table in TABLES.items():
        found = run.arrow(name)
        if found.num_rows != run.rows(name):
            raise DefectError(f"{name} has {found.num_rows} rows, run.json says {run.rows(name)}")
        for column in table.columns:
            if not column.nullable and found[column.name].null_count:
                raise DefectError(f"{name}.{column.name} has nulls")
        _in_order(name, found)
    _numbered(run)


def _in_order(name: str, found: pa.Table) -> None:
    """Intervals are by time, none before the run's zero, and none ends before it starts."""
    if C.DUR_NS not in found.column_names or not found.num_rows:
        return
    start, duration = (found[column].to_numpy() for column in (C.START_NS, C.DUR_NS))
    if (start[1:] < start[:-1]).any():
        raise DefectError(f"{name} is not in order of time")
    if start.min() < 0 or duration.min() < 0 or (start + duration < start).any():
        raise DefectError(f"{name} has times that are negative or overflow")


def _numbered(run: Run) -> None:
    """Row ids count up, and whatever refers to one refers to one that is there."""
    hosts = run.rows(HOST_INTERVALS.name)
    for table in (HOST_INTERVALS, DEVICE_INTERVALS):
        ids = run.arrow(table.name, columns=[C.ROW_ID])[C.ROW_ID].to_pylist()
        if ids != list(range(len(ids))):
            raise DefectError(f"row ids of {table.name} do not count up")
    for table, column in (
        (HOST_INTERVALS, C.PARENT_ROW),
        (DEVICE_INTERVALS, C.LAUNCH_ROW),
        (DEVICE_INTERVALS, C.OP_ROW),
    ):
        found = pc.min_max(run.arrow(table.name, columns=[column])[column]).as_py()
        if found["min"] is not None and not 0 <= found["min"] <= found["max"] < hosts:
            raise DefectError(f"{table.name}.{column} refers to no row")
