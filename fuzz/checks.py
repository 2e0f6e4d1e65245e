"""Checks of a reader's result: a consistent run, or a one-line error."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tracekit.errors import TracekitError
from tracekit.ingest.importer import import_each
from tracekit.ingest.importer.local import close
from tracekit.ingest.spool.text_columns import LATEST_NS
from tracekit.schema import DEVICE_INTERVALS, HOST_INTERVALS, TABLES, C

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from tracekit.ingest.link.trace import Trace
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

LIMIT_NS = 3 * LATEST_NS
"""Limit of times since 1970: the sum of base, start and duration, each below `LATEST_NS`."""
MAX_MESSAGE = 4096
"""Maximum length of a message; paths may be that long."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class DefectError(Exception):
    """The reader violated a requirement."""


def check_import(path: Path, store: Store) -> bool:
    """Import an input and check the result; returns whether that was a run.

    Raises:
        DefectError: The run is inconsistent, or the message is not printable.
    """
    runs = 0
    try:
        for outcome in import_each(store, [path]):
            if isinstance(outcome, TracekitError):
                check_message(str(outcome))
            else:
                check_run(outcome)
                runs += 1
                store.remove(outcome)
        left = [entry.name for entry in store.path.glob("*") if entry.name != ".gitignore"]
        if left:
            raise DefectError(f"left in the store: {left}")
    finally:
        shutil.rmtree(Path(str(store.path)), ignore_errors=True)
    return runs > 0


def check_decoding(read: Callable[[Path], Sequence[Trace]], folder: Path) -> bool:
    """Decode an input without importing it.

    Returns:
        Whether it has rows.

    Raises:
        DefectError: A message is not printable, or a time is out of range.
    """
    spool = folder / "spool"
    spool.mkdir()
    accepted = False
    try:
        for trace in read(spool):
            size = close(trace)
            accepted = accepted or size is not None
            for message in [note.message for note in trace.notes] if size else [str(trace.empty)]:
                check_message(message)
            if size and not -LIMIT_NS < size.first_ns <= size.last_ns < LIMIT_NS:
                raise DefectError(f"times from {size.first_ns} to {size.last_ns}")
    except TracekitError as error:
        check_message(str(error))
    return accepted


def check_message(message: str) -> None:
    """Check that a message is one printable line.

    Raises:
        DefectError: It is not.
    """
    if _CONTROL.search(message):
        raise DefectError(f"a message with control characters: {message[:300]!r}")
    if len(message) > MAX_MESSAGE:
        raise DefectError(f"a message of {len(message)} characters: {message[:300]!r}")


def check_run(run: Run) -> None:
    """Check a run's tables against the schema.

    Raises:
        DefectError: They violate it.
    """
    for diagnostic in type(run)(run.path).meta.diagnostics:
        check_message(diagnostic.message)
    for name, table in TABLES.items():
        found = run.arrow(name)
        if found.num_rows != run.rows(name):
            raise DefectError(f"{name} has {found.num_rows} rows, run.json says {run.rows(name)}")
        for column in table.columns:
            if not column.nullable and found[column.name].null_count:
                raise DefectError(f"{name}.{column.name} has nulls")
        _check_times(name, found)
    _check_references(run)


def _check_times(name: str, found: pa.Table) -> None:
    """Check that intervals are sorted by start, with no negative start or duration."""
    if C.DUR_NS not in found.column_names or not found.num_rows:
        return
    start, duration = (found[column].to_numpy() for column in (C.START_NS, C.DUR_NS))
    if (start[1:] < start[:-1]).any():
        raise DefectError(f"{name} is not sorted by start")
    if start.min() < 0 or duration.min() < 0 or (start + duration < start).any():
        raise DefectError(f"{name} has times that are negative or overflow")


def _check_references(run: Run) -> None:
    """Check that row ids are consecutive and references are valid."""
    hosts = run.rows(HOST_INTERVALS.name)
    for table in (HOST_INTERVALS, DEVICE_INTERVALS):
        ids = run.arrow(table.name, columns=[C.ROW_ID])[C.ROW_ID].to_pylist()
        if sorted(ids) != list(range(len(ids))):  # rows of several ranks are in the order of time
            raise DefectError(f"row ids of {table.name} are not consecutive")
    for table, column in (
        (HOST_INTERVALS, C.PARENT_ROW),
        (DEVICE_INTERVALS, C.LAUNCH_ROW),
        (DEVICE_INTERVALS, C.OP_ROW),
    ):
        found = pc.min_max(run.arrow(table.name, columns=[column])[column]).as_py()
        if found["min"] is not None and not 0 <= found["min"] <= found["max"] < hosts:
            raise DefectError(f"{table.name}.{column} refers to no row")
