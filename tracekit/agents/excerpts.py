"""Excerpts of a run as text: the rows that are evidence of a finding, and all rows of a time range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.agents.replies import name, page
from tracekit.analysis.source_lines import (
    DEVICE,
    HOST,
    OF_DEVICE,
    OF_HOST,
    Row,
    op_of,
    read_rows,
    source_line,
)
from tracekit.errors import UnusableInputError
from tracekit.runs import intervals
from tracekit.runs.run import Run
from tracekit.runs.text import format_ranks, human
from tracekit.schema import C, DeviceKind

_MAX_EVIDENCE = 8  # maximum rows of evidence per table in a reply


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
        if table not in (DEVICE, HOST) or not shown:
            continue
        rows = read_rows(run, table, shown, OF_DEVICE if table == DEVICE else OF_HOST)
        ops = read_rows(run, HOST, [op_of(row) for row in rows.values()], OF_HOST)
        lines += [_describe(run, table, rows[row], ops) for row in shown if row in rows]
        if len(ids) > len(shown):
            lines.append(f"and {len(ids) - len(shown)} more of {table.replace('_', ' ')}")
    return lines


def _describe(run: Run, table: str, row: Row, ops: Mapping[int, Row]) -> str:
    op = ops.get(op_of(row) or -1) if table == DEVICE else row
    line = source_line(run, op)
    where = f"device {row[C.DEVICE]}" if table == DEVICE else f"thread {row[C.TID]}"
    cause = f", cause {name(row[C.IDLE_CAUSE])}" if table == DEVICE and row[C.IDLE_CAUSE] else ""
    of_op = f", op {name(op[C.NAME])}" if table == DEVICE and op else ""
    what = row[C.KIND] if row[C.KIND] == row[C.NAME] else f"{row[C.KIND]} {name(row[C.NAME])}"
    at = f"rank {row[C.RANK]}, {where}, from {row[C.START_NS]} ns for {human(row[C.DUR_NS], 'ns')}"
    return f"- {what}: {at}{cause}{of_op}, source {name(line) if line else 'not recorded'}"


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
    device = view.arrow(DEVICE, columns=OF_DEVICE, window=window) if tracks != "host" else None
    host = view.arrow(HOST, columns=OF_HOST, window=window) if tracks != "device" else None
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
