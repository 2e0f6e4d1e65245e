"""Source lines of the intervals that are evidence of a finding."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tracekit.analysis import Finding
from tracekit.runs.run import Run
from tracekit.schema import C

DEVICE, HOST = "device_intervals", "host_intervals"
_INTERVAL = (C.ROW_ID, C.KIND, C.NAME, C.RANK, C.START_NS, C.DUR_NS)
OF_DEVICE = (*_INTERVAL, C.DEVICE, C.STREAM, C.OP_ROW, C.LAUNCH_ROW, C.IDLE_CAUSE, C.IDLE_OP_ROW)
OF_HOST = (*_INTERVAL, C.TID, C.DEPTH, C.PARENT_ROW, C.STACK)
_MAX_CLIMB = 64  # maximum enclosing rows that are searched for a source line
_MAX_ROWS = 8  # maximum rows of evidence whose lines are searched
_FRAME = re.compile(r"\.pyx?\(\d+\)|\.py:\d+")
_LIBRARY = re.compile(r"(?:site|dist)-packages/|(?:^|/)torch/|/lib/python\d|^<")
_PLACE = re.compile(r"^(.+\.pyx?)[(:](\d+)")

Row = Mapping[str, Any]


def read_rows(run: Run, table: str, ids: Iterable[int | None], columns: Sequence[str]) -> dict[int, Row]:
    """Return rows of a table by row id; ids that are None or missing have none."""
    wanted = sorted({row for row in ids if row is not None and row >= 0})
    if not wanted:
        return {}
    rows = run.arrow(table, columns=columns, row_ids=wanted)
    return {row[C.ROW_ID]: row for row in rows.to_pylist()}


def op_of(row: Row) -> int | None:
    """Return the host row that a device row belongs to."""
    for column in (C.OP_ROW, C.IDLE_OP_ROW, C.LAUNCH_ROW):
        if row.get(column) is not None:
            return int(row[column])
    return None


def source_line(run: Run, row: Row | None) -> str:
    """Return the line of user code of a host row, from its stack or the nearest enclosing one.

    The row has its stack, name and parent; None is no row.

    Returns:
        Such as `train.py(12): main`; empty if no stack was recorded.
    """
    library = ""
    for _ in range(_MAX_CLIMB):
        if row is None:
            break
        frames = [frame.strip() for frame in re.split(r"[;\n]", row.get(C.STACK) or "")]
        frames += [str(row[C.NAME])]
        for frame in filter(_FRAME.search, frames):
            if not _LIBRARY.search(frame):
                return frame
            library = library or frame
        parent = row.get(C.PARENT_ROW)
        row = read_rows(run, HOST, [parent], OF_HOST).get(parent) if parent is not None else None
    return library


def find_place(run: Run, finding: Finding, folder: Path) -> tuple[str, int] | None:
    """Return file and line of a finding's first evidence in a file of a folder; None if there is none.

    The file is relative to the folder, such as a checkout.
    """
    for table, columns in ((HOST, OF_HOST), (DEVICE, OF_DEVICE)):
        ids = finding.evidence.get(table, [])[:_MAX_ROWS]
        rows = read_rows(run, table, ids, columns)
        ops = rows if table == HOST else read_rows(run, HOST, map(op_of, rows.values()), OF_HOST)
        for row in (rows[number] for number in ids if number in rows):
            of_host = row if table == HOST else ops.get(op_of(row) or -1)
            match = _PLACE.match(source_line(run, of_host))
            file = folder / match[1] if match else None
            if match and file and file.is_file() and file.resolve().is_relative_to(folder.resolve()):
                return file.resolve().relative_to(folder.resolve()).as_posix(), int(match[2])
    return None
