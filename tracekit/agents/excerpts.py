"""Excerpts of a run as text: the rows that are evidence of a finding, and all rows of a time range."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.agents.replies import name, page
from tracekit.errors import UnusableInputError
from tracekit.runs import intervals
from tracekit.runs.run import Run
from tracekit.runs.text import format_ranks, human
from tracekit.schema import C, DeviceKind

_DEVICE, _HOST = "device_intervals", "host_intervals"
_INTERVAL = (C.ROW_ID, C.KIND, C.NAME, C.RANK, C.START_NS, C.DUR_NS)
_OF_DEVICE = (*_INTERVAL, C.DEVICE, C.STREAM, C.OP_ROW, C.LAUNCH_ROW, C.IDLE_CAUSE, C.IDLE_OP_ROW)
_OF_HOST = (*_INTERVAL, C.TID, C.DEPTH, C.PARENT_ROW, C.STACK)
_MAX_EVIDENCE = 8
"""Maximum rows of evidence per table in a reply."""
_MAX_CLIMB = 64
"""Maximum enclosing rows that are searched for a source line."""
_FRAME = re.compile(r"\.pyx?\(\d+\)|\.py:\d+")
_LIBRARY = re.compile(r"(?:site|dist)-packages/|(?:^|/)torch/|/lib/python\d|^<")

Row = Mapping[str, Any]


def read_rows(run: Run, table: str, ids: Iterable[int | None], columns: Sequence[str]) -> dict[int, Row]:
    """Return rows of a table by row id; ids that are None or missing have none."""
    wanted = sorted({row for row in ids if row is not None and row >= 0})
    if not wanted:
        return {}
    where = pc.field(C.ROW_ID).isin(pa.array(wanted, pa.int64()))
    return {row[C.ROW_ID]: row for row in run.arrow(table, columns=columns, where=where).to_pylist()}


def describe_evidence(run: Run, evidence: Mapping[str, Sequence[int]]) -> list[str]:
    """Describe the rows of a finding's evidence by name, time and source line, those with most time first.

    Args:
        run: The run.
        evidence: Row ids by table.

    Returns:
        A line each, at most `_MAX_EVIDENCE` of each table; one line that counts further rows.
    """
    lines: list[str] = []
    for table, ids in evidence.items():
        shown = list(ids)[:_MAX_EVIDENCE]
        if table not in (_DEVICE, _HOST) or not shown:
            continue
        rows = read_rows(run, table, shown, _OF_DEVICE if table == _DEVICE else _OF_HOST)
        ops = read_rows(run, _HOST, [_op_of(row) for row in rows.values()], _OF_HOST)
        lines += [_describe(run, table, rows[row], ops) for row in shown if row in rows]
        if len(ids) > len(shown):
            lines.append(f"and {len(ids) - len(shown)} more of {table.replace('_', ' ')}")
    return lines


def _op_of(row: Row) -> int | None:
    """Return the host row that a device row belongs to."""
    for column in (C.OP_ROW, C.IDLE_OP_ROW, C.LAUNCH_ROW):
        if row.get(column) is not None:
            return int(row[column])
    return None


def _describe(run: Run, table: str, row: Row, ops: Mapping[int, Row]) -> str:
    op = ops.get(_op_of(row) or -1) if table == _DEVICE else row
    line = source_line(run, op)
    where = f"device {row[C.DEVICE]}" if table == _DEVICE else f"thread {row[C.TID]}"
    cause = f", cause {name(row[C.IDLE_CAUSE])}" if table == _DEVICE and row[C.IDLE_CAUSE] else ""
    of_op = f", op {name(op[C.NAME])}" if table == _DEVICE and op else ""
    what = row[C.KIND] if row[C.KIND] == row[C.NAME] else f"{row[C.KIND]} {name(row[C.NAME])}"
    at = f"rank {row[C.RANK]}, {where}, from {row[C.START_NS]} ns for {human(row[C.DUR_NS], 'ns')}"
    return f"- {what}: {at}{cause}{of_op}, source {name(line) if line else 'not recorded'}"


def source_line(run: Run, row: Row | None) -> str:
    """Return the line of user code of a host row, from its stack or the nearest enclosing one.

    Args:
        run: The run.
        row: The row with its stack, name and parent; None for no row.

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
        row = read_rows(run, _HOST, [parent], _OF_HOST).get(parent) if parent is not None else None
    return library


def describe_range(
    run: Run, window: tuple[int, int], *, rank: int, tracks: str, min_dur_ns: int, start: int
) -> str:
    """Return all that devices and host threads of a rank do in a time range, by start, with totals.

    Args:
        run: The run, with the rank.
        window: Start and end, ns since the start of the run's clock.
        rank: The rank.
        tracks: `device`, `host` or `all`.
        min_dur_ns: Omit shorter intervals.
        start: Number of the first row to show.

    Raises:
        UnusableInputError: The range is empty, or the tracks are unknown.
    """
    if window[0] >= window[1]:
        raise UnusableInputError("the range is empty", hint="give start_ns below end_ns")
    if tracks not in {"all", "device", "host"}:
        raise UnusableInputError(f"unknown tracks {tracks!r}", hint="use all, device or host")
    view = run.of_ranks(rank) if len(run.ranks) > 1 else run
    device = view.arrow(_DEVICE, columns=_OF_DEVICE, window=window) if tracks != "host" else None
    host = view.arrow(_HOST, columns=_OF_HOST, window=window) if tracks != "device" else None
    head = [
        f"run {run.id}, rank {rank} (of {format_ranks(run.ranks)}), "
        f"{window[0]} to {window[1]} ns: {human(window[1] - window[0], 'ns')}",
    ]
    rows: list[tuple[int, str]] = []
    if device is not None:
        head += _totals(device, window)
        rows += [(row[C.START_NS], _device_line(row)) for row in _long(device, min_dur_ns)]
    if host is not None:
        rows += [(row[C.START_NS], _host_line(row)) for row in _long(host, min_dur_ns)]
    lines = [line for _, line in sorted(rows, key=lambda item: item[0])]
    omitted = (device.num_rows if device else 0) + (host.num_rows if host else 0) - len(lines)
    head.append(
        f"{len(lines):,} intervals{f', {omitted:,} shorter than min_dur_ns omitted' if omitted else ''}; "
        "start_ns | duration | track | kind | name"
    )
    return page(head, lines[start:], start=start, total=len(lines), what="intervals")


def _long(table: pa.Table, min_dur_ns: int) -> list[Row]:
    rows: list[Row] = table.filter(pc.field(C.DUR_NS) >= min_dur_ns).to_pylist()
    return rows


def _totals(device: pa.Table, window: tuple[int, int]) -> list[str]:
    """Return busy time (a union) and idle time of each device, within the window."""
    lines = []
    for number in sorted(set(device[C.DEVICE].to_pylist())):
        rows = device.filter(pc.field(C.DEVICE) == number)
        start = np.maximum(rows[C.START_NS].to_numpy(), window[0])
        end = np.minimum(rows[C.START_NS].to_numpy() + rows[C.DUR_NS].to_numpy(), window[1])
        kinds = np.array(rows[C.KIND].to_pylist(), object)
        is_busy = ~np.isin(kinds, [str(DeviceKind.IDLE), str(DeviceKind.SYNC)])
        busy = int(intervals.length(intervals.union(start[is_busy], end[is_busy]))) if is_busy.any() else 0
        idle = int((end - start)[kinds == str(DeviceKind.IDLE)].sum())
        text = f"device {number}: busy {human(busy, 'ns')} (union), idle {human(idle, 'ns')}"
        lines.append(f"{text}; causes of idle time: analyze('idle_gaps')")
    return lines


def _device_line(row: Row) -> str:
    stream = "" if row[C.STREAM] is None else f" stream {row[C.STREAM]}"
    cause = f" ({name(row[C.IDLE_CAUSE])})" if row[C.IDLE_CAUSE] else ""
    return _line(row, f"device {row[C.DEVICE]}{stream}", f"{name(row[C.NAME])}{cause}")


def _host_line(row: Row) -> str:
    nested = "  " * min(row[C.DEPTH], 8)
    return _line(row, f"thread {row[C.TID]}", f"{nested}{name(row[C.NAME])}")


def _line(row: Row, track: str, what: str) -> str:
    return f"{row[C.START_NS]} | {human(row[C.DUR_NS], 'ns')} | {track} | {row[C.KIND]} | {what}"
