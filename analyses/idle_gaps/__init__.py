"""Idle gaps: every idle interval of a device with its cause, and the host op or call responsible.

A gap is a part of the complement of the union of a device's kernels, copies, memsets and opaque graphs
between their first start and last end; a zero-length interval splits a gap. Each gap has one cause, so the
causes sum exactly to the idle time of `gpu_breakdown` (`whole`). `idle_gaps.causes` defines the causes:
launch_bound, host_work, slow_call, first_call, sync, dataload, profiler (the host was late),
kernel_to_kernel, stream_dependency (work was queued and did not start), unknown.

* `by_cause`: gaps of each device by cause; the share is of the device's idle time.
* `by_op`: by the responsible op: the innermost op, annotation or Python frame that covers more than half of
  the host's part of the gap; for a wait the op around the wait; for queued work the op that launched it. If
  nothing covers half, the next op is named.
* `gaps`: gaps of `MIN_LISTED_NS` and more, longest first. Shorter ones are below the clock resolution of many
  traces; they count in all other tables.
* `summary`: per device; `edges_ns` is the time of the profiled steps before its first and after its last
  interval, which is not part of the idle time.

HTA divides the gaps of each stream: host wait if the launch call began after the gap did, kernel wait for the
others below a threshold. Here the host is also late if a call began before the gap and returned late in it,
and gaps are per device, not per stream. The profiler adds a few µs per op on the host, so gaps are longer
than without it.

Sources: TorchBench (Hao et al., 2023), 4.1.1, and its tool TorchExpert; HTA's idle time breakdown.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "idle_gaps")  # doctest: +SKIP
    >>> result.tables["by_cause"]  # doctest: +SKIP
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from tracekit.analysis import Analysis, Remark, Result, TableSpec
from tracekit.analysis.idle_causes import QUEUED
from tracekit.analysis.idle_causes import IdleCause as Cause
from tracekit.runs import intervals
from tracekit.runs.run import Run
from tracekit.runs.step_windows import END_NS, step_windows
from tracekit.schema import C, HostKind

from ..shared.common import NO_STEPS, absent_device_note, duration, ints, share, spans
from ..shared.idle_neighbors import inside_steps
from . import causes as idle_rows
from . import findings as idle_findings
from .causes import ASIDE, CAUSE, MIN_DEPENDENCY_NS, OP, SOURCE, Idle
from .context import MAX_DISPATCH_NS, MAX_FIRST_CALLS, MIN_FIRST_RATIO, MIN_LONG_NS
from .tables import BY_CAUSE, BY_OP, GAPS, HOST_LATE, IDLE_NS, MIN_LISTED_NS, SUMMARY

MIN_UNKNOWN_SHARE, MIN_PROFILER_SHARE = 0.15, 0.01
"""Shares of idle time of an unknown cause, and of the profiler, from which a note is given."""

_PLACE = [C.RANK, C.DEVICE]

NEVER_IDLE = Remark("no device was idle between its first start and its last end")


def compute(run: Run) -> Result:
    """Explain the idle time of each device."""
    idle = idle_rows.read_idle(run)
    if idle.device.empty:
        return Result(notes=(absent_device_note(run),))
    windows = step_windows(run)
    gaps = idle_rows.describe_gaps(run, idle)
    tables = {"summary": _summary(idle, gaps, windows)}
    notes: list[str] = [] if len(windows) else [NO_STEPS]
    if gaps.empty:
        return Result(tables, notes=(*notes, NEVER_IDLE))
    notes += _unknown_note(idle, gaps) + _other_notes(idle, gaps)
    del idle  # free memory for the tables
    findings = idle_findings.findings(run, gaps, tables["summary"])
    tables = {"by_cause": _by_cause(gaps, windows), "by_op": _by_op(gaps), **tables, "gaps": _listed(gaps)}
    return Result(tables, findings, tuple(notes))


def _by_cause(gaps: pd.DataFrame, windows: pd.DataFrame) -> pd.DataFrame:
    grouped = gaps.groupby([*_PLACE, CAUSE], sort=True, observed=True)[C.DUR_NS]
    table = grouped.agg(gaps="size", idle_ns="sum", longest_ns="max").reset_index()
    table[CAUSE] = table[CAUSE].astype(object)
    idle = table.groupby(_PLACE)[IDLE_NS].transform("sum")
    table["share"] = share(table[IDLE_NS], idle.to_numpy(np.int64))
    table = table.assign(**_in_steps(table, gaps, windows))
    table = table.sort_values([*_PLACE, IDLE_NS, CAUSE], ascending=[True, True, False, True])
    return table[[column.name for column in BY_CAUSE]].reset_index(drop=True)


def _in_steps(table: pd.DataFrame, gaps: pd.DataFrame, windows: pd.DataFrame) -> dict[str, pd.Series]:
    """Idle time inside the profiled steps, in all and per step of the rank, and its part that is set aside.

    Without steps the former are missing, and the latter is that of the whole capture.
    """
    keys = [*_PLACE, CAUSE]
    lengths = inside_steps(gaps, windows) if len(windows) else ints(gaps, C.DUR_NS)
    inside = gaps[keys].assign(inside=lengths, aside=np.where(gaps[ASIDE], lengths, 0))
    sums = inside.groupby(keys, observed=True)[["inside", "aside"]].sum().reset_index()
    sums_by_cause = (
        table[keys].merge(sums.astype({CAUSE: object}), how="left", on=keys).astype({"inside": "Int64"})
    )
    steps = table[C.RANK].map(windows.groupby(C.RANK).size()).astype("Int64")
    stepped = sums_by_cause["inside"].where(steps.notna())
    return {"steps_ns": stepped, "per_step_ns": stepped // steps, "aside_ns": sums_by_cause["aside"]}


def _by_op(gaps: pd.DataFrame) -> pd.DataFrame:
    keys = [*_PLACE, CAUSE, OP, SOURCE]
    order = np.lexsort((ints(gaps, C.ROW_ID), -ints(gaps, C.DUR_NS)))
    grouped = gaps[[*keys, C.DUR_NS, C.ROW_ID]].iloc[order].groupby(keys, sort=True, observed=True)
    table = grouped.agg(
        gaps=(C.DUR_NS, "size"),
        idle_ns=(C.DUR_NS, "sum"),
        longest_ns=(C.DUR_NS, "max"),
        longest_row=(C.ROW_ID, "first"),
    ).reset_index()
    table = table.astype(dict.fromkeys((CAUSE, OP, SOURCE), str))
    idle = gaps.groupby(_PLACE)[C.DUR_NS].sum().rename("whole")
    table["share"] = share(table[IDLE_NS], ints(table.join(idle, on=_PLACE), "whole"))
    table = table.sort_values([IDLE_NS, *keys], ascending=[False, *(True for _ in keys)])
    return table[[column.name for column in BY_OP]].reset_index(drop=True)


def _listed(gaps: pd.DataFrame) -> pd.DataFrame:
    length = ints(gaps, C.DUR_NS)
    order = np.lexsort((ints(gaps, C.ROW_ID), ints(gaps, C.RANK), -length))
    order = order[: int((length >= MIN_LISTED_NS).sum())]
    shown = {column.name: _plain(gaps[column.name].array[order]) for column in GAPS}
    return pd.DataFrame(shown, copy=False)


def _plain(values: ExtensionArray) -> ExtensionArray | pd.Series:
    """Convert categories to objects that share their strings: separate strings would take many times more."""
    return pd.Series(values.astype(object), dtype=object) if isinstance(values, pd.Categorical) else values


def _summary(idle: Idle, gaps: pd.DataFrame, windows: pd.DataFrame) -> pd.DataFrame:
    """One row per device, even if it was never idle."""
    rows = []
    for (rank, device), of_device in idle.device.groupby(_PLACE, sort=True):
        start, end = spans(of_device)
        first, last = int(start.min()), int(end.max())
        mine = gaps.loc[(gaps[C.RANK] == rank) & (gaps[C.DEVICE] == device), [C.DUR_NS, CAUSE]]
        lengths = np.sort(ints(mine, C.DUR_NS))
        row = {C.RANK: rank, C.DEVICE: device, "window_ns": last - first, "gaps": len(lengths)}
        row |= {IDLE_NS: int(lengths.sum()), "listed": int((lengths >= MIN_LISTED_NS).sum())}
        row |= {"host_late_ns": _sum_of(mine, HOST_LATE), "had_work_ns": _sum_of(mine, QUEUED)}
        row["unknown_ns"] = _sum_of(mine, (Cause.UNKNOWN,))
        row["median_ns"] = lengths[(len(lengths) - 1) // 2] if len(lengths) else pd.NA
        row["longest_ns"] = lengths[-1] if len(lengths) else pd.NA
        row["edges_ns"] = _edges(windows[windows[C.RANK] == rank], first, last)
        rows.append(row)
    table = pd.DataFrame(rows)
    table["idle_share"] = share(table[IDLE_NS], ints(table, "window_ns"))
    nullable = ["median_ns", "longest_ns", "edges_ns"]
    return table.astype(dict.fromkeys(nullable, "Int64"))[[column.name for column in SUMMARY]]


def _sum_of(gaps: pd.DataFrame, causes: tuple[Cause, ...]) -> int:
    return int(gaps[C.DUR_NS][gaps[CAUSE].isin([str(cause) for cause in causes])].sum())


def _edges(windows: pd.DataFrame, first: int, last: int) -> object:
    """Time of the profiled steps outside the device's window."""
    if windows.empty:
        return pd.NA
    steps = intervals.union(ints(windows, C.START_NS), ints(windows, END_NS))
    inside = intervals.clip(steps, first, last)
    return intervals.length(steps) - intervals.length(inside)


def _unknown_note(idle: Idle, gaps: pd.DataFrame) -> list[str]:
    unknown = _sum_of(gaps, (Cause.UNKNOWN,)) / max(1, idle_rows.total_ns(gaps))
    if unknown < MIN_UNKNOWN_SHARE:
        return []
    if not len(idle.host.start):
        return ["no host activity was recorded, so causes are unknown: record CPU activity too"]
    return [
        f"{unknown:.0%} of the idle time has no known cause, because the launch of the next interval was not "
        "recorded: record the runtime calls of the whole capture (`--collector torch`)"
    ]


def _other_notes(idle: Idle, gaps: pd.DataFrame) -> list[str]:
    """Notes on missing ops and on idle time caused by the profiler."""
    notes = []
    if len(idle.host.start) and not idle.host.of_kind(HostKind.OP).any():
        notes.append("no ops were recorded, so no op is named: record CPU activity too")
    profiler = _sum_of(gaps, (Cause.PROFILER,)) / max(1, idle_rows.total_ns(gaps))
    if profiler >= MIN_PROFILER_SHARE:
        notes.append(f"{profiler:.0%} of the idle time is profiler overhead, absent without the profiler")
    return notes


ANALYSIS = Analysis(
    name="idle_gaps",
    title="Idle gaps",
    question="Why was each device idle, and which host op or call is responsible?",
    definition=(
        "gap = idle interval of a device; each has one cause. unknown: the launch of the next interval is "
        "not recorded. Work queued (its launch had ended before the gap, or was part of the same CUDA graph, "
        "or it was queued for most of the gap): stream_dependency from "
        f"{duration(MIN_DEPENDENCY_NS)} or if a stream waited for an event of another, else "
        "kernel_to_kernel. Otherwise the host was late; the cause covers more than half of the gap before "
        "the launch: profiler overhead, dataload, sync (also a wait that ended in the gap and was at least "
        "half as long as the gap before the launch); else, where that part is "
        f"{duration(MIN_LONG_NS)} or more: slow_call (mostly runtime calls), first_call (an op's call that "
        f"took {MIN_FIRST_RATIO} times its median, at most {MAX_FIRST_CALLS} times), host_work "
        f"({duration(MAX_DISPATCH_NS)} or more, or outside ops, modules and ranges); else launch_bound."
    ),
    tables=(
        TableSpec("by_cause", "Idle time by cause, per device", BY_CAUSE),
        TableSpec("by_op", "Idle time by cause and op", BY_OP),
        TableSpec("summary", "Idle time per device", SUMMARY),
        TableSpec("gaps", f"Gaps of {duration(MIN_LISTED_NS)} and more, longest first", GAPS),
    ),
    sources=("TorchBench, 4.1.1, and TorchExpert", "HTA idle time breakdown"),
    order=40,
    compute=compute,
    rules=idle_findings.RULES,
)
