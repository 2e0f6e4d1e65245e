"""Idle gaps: every idle interval of a device with its cause, and the host op or call responsible.

A gap is a part of the complement of the union of a device's kernels, copies, memsets and opaque graphs
between their first start and last end; a zero-length interval splits a gap. Each gap has one cause, so the
causes sum exactly to the idle time of `gpu_breakdown` (`whole`). `idle_gaps.causes` defines the causes:
launch_bound, host_work, slow_call, first_call, stall, sync, dataload, profiler (the host was late),
kernel_to_kernel, stream_dependency, submission (work was queued and did not start), unknown.

* `by_op`: by the responsible op: the innermost op, annotation or Python frame that covers more than half of
  the host's part of the gap; for a wait the op around the wait; for queued work the op that launched it. If
  nothing covers half, the next op is named.
* `gaps`: those shorter than `MIN_LISTED_NS` count in all other tables.
* `before_work`: explained like a gap (see `causes`). Neither this time nor `tail_ns` nor `edges_ns` of the
  `summary` is part of the idle time.

HTA divides the gaps of each stream: host wait if the launch call began after the gap did, kernel wait for the
others below a threshold. Here the host is also late if a call began before the gap and returned late in it,
and gaps are per device, not per stream. The profiler adds a few µs per op on the host, so gaps are longer
than without it.

Sources: TorchBench (Hao et al., 2023), 4.1.1, and its tool TorchExpert; HTA's idle time breakdown.

Example:
    >>> tracekit.analyze(run, "idle_gaps").tables["by_cause"]  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from tracekit.analysis import Analysis, Column, Remark, Result, TableSpec
from tracekit.analysis.idle_causes import CALL_NS, CAUSES, COVERED_NS, HOST_LAUNCHES, QUEUED
from tracekit.analysis.idle_causes import IdleCause as Cause
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.runs.step_windows import END_NS, measured_from, step_windows, with_device_work
from tracekit.schema import C, HostKind

from ..shared.common import (
    DEVICE,
    NO_STEPS,
    PLACE,
    PLACE_COLUMNS,
    RANK,
    absent_device_note,
    duration,
    ints,
    select,
    share,
    spans,
)
from ..shared.groups import Groups, count_by_rank, group_rows, keys_of, rows_by_device, sum_by_code
from ..shared.host_columns import read_host_columns, read_parents
from ..shared.idle_neighbors import AFTER, BEFORE, inside_steps
from ..shared.intervals_by_class import find_searches
from . import causes as idle_rows
from . import findings as idle_findings
from .causes import (
    ANCHOR_ROW,
    ASIDE,
    CALL,
    CAUSE,
    COMMON_OP,
    HOST_NS,
    INITIAL,
    LATENCY_NS,
    MIN_DEPENDENCY_NS,
    NEXT_OP,
    OP,
    OVERHEAD_NS,
    QUEUED_NS,
    SOURCE,
    WAIT_NS,
    WAIT_ROW,
    WARM_UP,
    Idle,
)
from .context import MAX_DISPATCH_NS, MAX_FIRST_CALLS, MIN_FIRST_RATIO, MIN_LONG_NS, MIN_STALLED_OPS
from .host_part import largest_before, queued_before, time_after

COUNTED_NS = "counted_ns"
MIN_UNKNOWN_SHARE, MIN_PROFILER_SHARE = 0.15, 0.01
"""Shares of idle time of an unknown cause, and of the profiler, from which a note is given."""

NEVER_IDLE = Remark("no device was idle between its first start and its last end")


def compute(run: Run) -> Result:
    """Explain the idle time of each device."""
    idle = idle_rows.read_idle(run)
    if idle.device.empty:
        return Result(notes=(absent_device_note(run),))
    windows = step_windows(run)
    gaps = idle_rows.describe_gaps(run, idle)
    all_gaps, count = gaps, len(gaps) - idle.openings
    openings, gaps = gaps[count:][~gaps[ASIDE].to_numpy()[count:]], gaps[:count]
    before_work = _list_openings(openings)
    tables = {"summary": _summary(idle, gaps, windows, before_work)}
    if len(openings):
        tables["before_work"] = before_work
    notes: list[str] = [] if len(windows) else [NO_STEPS]
    if all_gaps.empty:
        return Result(tables, notes=(*notes, NEVER_IDLE))
    notes += _notes(idle, gaps) if len(gaps) else [NEVER_IDLE]
    stepped = with_device_work(windows, idle.device)
    del idle  # free memory for the tables
    findings = idle_findings.findings(run, all_gaps, tables["summary"])
    if gaps.empty:
        return Result(tables, findings, tuple(notes))
    inside = inside_steps(gaps, windows) if len(windows) else ints(gaps, C.DUR_NS)
    by = {"by_cause": _by_cause(gaps, stepped, inside), "by_op": _by_op(gaps, inside)}
    counted = np.where(gaps[ASIDE].to_numpy(), 0, inside)
    lengths = {COUNTED_NS: counted, RECURRING_NS: np.where(gaps[INITIAL].to_numpy(), 0, counted)}
    return Result({**by, **tables, "gaps": _listed(gaps.assign(**lengths))}, findings, tuple(notes))


def _by_cause(gaps: pd.DataFrame, windows: pd.DataFrame, inside: Ints) -> pd.DataFrame:
    groups, length = group_rows(gaps, [*PLACE, CAUSE]), ints(gaps, C.DUR_NS)
    sums = {"gaps": groups.sizes(), IDLE_NS: groups.sums(length), "longest_ns": groups.largest(length)}
    steps = _in_steps(gaps, groups, windows, inside)
    table = keys_of(gaps, [*PLACE, CAUSE], groups.first).assign(**sums, **steps)
    return select(_with_share(table), BY_CAUSE, *PLACE, f"-{IDLE_NS}", CAUSE)


def _list_openings(openings: pd.DataFrame) -> pd.DataFrame:
    length = ints(openings, C.DUR_NS)
    initial = openings[INITIAL].to_numpy(bool)
    divided = {
        START_UP_NS: np.where(initial, length, 0),
        LATENCY_NS: np.where(initial, 0, ints(openings, LATENCY_NS)),
    }
    table = select(openings.assign(**divided), BEFORE_WORK, *PLACE)
    return pd.DataFrame({name: _plain(table[name].array) for name in table}, copy=False)


def _with_share(rows: pd.DataFrame) -> pd.DataFrame:
    """Table with the share of each row in the idle time of its device."""
    devices, idle = group_rows(rows, PLACE), ints(rows, IDLE_NS)
    return rows.assign(share=share(idle, devices.sums(idle)[devices.codes]))


def _in_steps(gaps: pd.DataFrame, groups: Groups, windows: pd.DataFrame, lengths: Ints) -> dict[str, Any]:
    """Idle time inside the profiled steps, in all and per step of the rank, and its part that is set aside.

    Without steps the former are missing, and the latter is that of the whole capture. Last, the parts in
    marked warm-up and that are start-up.
    """
    inside, steps = groups.sums(lengths), count_by_rank(windows, ints(gaps, C.RANK)[groups.first])
    per_step = inside // np.maximum(steps, 1)
    return {
        "steps_ns": pd.arrays.IntegerArray(inside, steps == 0),
        "per_step_ns": pd.arrays.IntegerArray(per_step, steps == 0),
        "aside_ns": groups.sums(np.where(gaps[ASIDE].to_numpy(), lengths, 0)),
        WARM_UP_NS: groups.sums(np.where(gaps[WARM_UP].to_numpy(), lengths, 0)),
        START_UP_NS: groups.sums(np.where(gaps[INITIAL].to_numpy(), lengths, 0)),
        OVERHEAD_NS: groups.sums(np.minimum(ints(gaps, OVERHEAD_NS), lengths)),
        LATENCY_NS: groups.sums(
            np.where(gaps[ASIDE] | gaps[INITIAL], 0, np.minimum(ints(gaps, LATENCY_NS), lengths))
        ),
    }


def _by_op(gaps: pd.DataFrame, inside: Ints) -> pd.DataFrame:
    keys = [*PLACE, CAUSE, OP, SOURCE]
    order = np.lexsort((ints(gaps, C.ROW_ID), -ints(gaps, C.DUR_NS)))
    recurs = ~gaps[[ASIDE, INITIAL]].to_numpy(bool).any(axis=1)
    longest_first = gaps[[*keys, C.DUR_NS, C.ROW_ID]].take(order)
    groups, length = group_rows(longest_first, keys), ints(longest_first, C.DUR_NS)
    covered = np.minimum(ints(gaps, COVERED_NS), inside)
    table = keys_of(longest_first, keys, groups.first).assign(
        **{
            "gaps": groups.sizes(),
            IDLE_NS: groups.sums(length),
            "longest_ns": length[groups.first],
            "longest_row": ints(longest_first, C.ROW_ID)[groups.first],
            RECURRING_NS: groups.sums(np.where(recurs, inside, 0)[order]),
            COVERED_NS: groups.sums(np.where(recurs, covered, 0)[order]),
        }
    )
    return select(_with_share(table), BY_OP, f"-{IDLE_NS}", *keys)


def _listed(gaps: pd.DataFrame) -> pd.DataFrame:
    length = ints(gaps, C.DUR_NS)
    order = np.lexsort((ints(gaps, C.ROW_ID), ints(gaps, C.RANK), -length))
    order = order[: int((length >= MIN_LISTED_NS).sum())]
    shown = {column.name: _plain(gaps[column.name].array[order]) for column in GAPS}
    return pd.DataFrame(shown, copy=False)


def _plain(values: ExtensionArray) -> ExtensionArray | pd.Series:
    """Convert categories to objects that share their strings: separate strings would take many times more."""
    return pd.Series(values.astype(object), dtype=object) if isinstance(values, pd.Categorical) else values


def _summary(
    idle: Idle, gaps: pd.DataFrame, windows: pd.DataFrame, before_work: pd.DataFrame
) -> pd.DataFrame:
    """One row per device, even if it was never idle."""
    opening_ns = before_work.groupby(PLACE)[C.DUR_NS].sum().to_dict()
    causes = gaps[[CAUSE, C.DUR_NS]]
    called_ns = pd.Series(idle.host.start).groupby(idle.host.rank).min().to_dict()
    rows = []
    for (rank, device), of_device, of_gaps, steps in _by_device(idle, gaps, windows):
        first, last = _extent(of_device)
        mine = causes.iloc[of_gaps]
        lengths, by_cause = np.sort(ints(mine, C.DUR_NS)), _sum_causes(mine)
        row: dict[str, Any] = {C.RANK: rank, C.DEVICE: device, "window_ns": last - first}
        row["gaps"] = len(lengths)
        row |= {IDLE_NS: int(lengths.sum()), "listed": int((lengths >= MIN_LISTED_NS).sum())}
        row["host_late_ns"] = sum(by_cause[cause] for cause in HOST_LATE)
        row["had_work_ns"] = sum(by_cause[cause] for cause in QUEUED)
        row["unknown_ns"] = by_cause[Cause.UNKNOWN]
        row["median_ns"] = lengths[(len(lengths) - 1) // 2] if len(lengths) else pd.NA
        row["longest_ns"] = lengths[-1] if len(lengths) else pd.NA
        row["lead_ns"] = max(0, first - called_ns[rank]) if rank in called_ns else pd.NA
        row["behind_ns"] = queued_before(idle.host, of_device)
        row["lead_work"], row["lead_work_ns"] = largest_before(idle.host, of_device)
        row["waits_ns"] = _waits(idle, steps, of_device, first, last)
        row["tail_ns"], row["tail_work"], row["tail_work_ns"] = time_after(idle.host, of_device, steps)
        opened_ns = opening_ns.get((rank, device), 0) + row["tail_ns"]
        row["edges_ns"] = _edges(steps, first, last, opened_ns)
        rows.append(row)
    table = pd.DataFrame(rows)
    table["idle_share"] = share(table[IDLE_NS], ints(table, "window_ns"))
    nullable = ["median_ns", "longest_ns", "lead_ns", "lead_work_ns", "tail_work_ns", "edges_ns"]
    return table.astype(dict.fromkeys(nullable, "Int64"))[[column.name for column in SUMMARY]]


def _by_device(
    idle: Idle, gaps: pd.DataFrame, windows: pd.DataFrame
) -> Iterator[tuple[tuple[int, int], pd.DataFrame, Ints, pd.DataFrame]]:
    """Yield each device with its intervals, the positions of its gaps, and the steps of its rank."""
    of_gaps, none = rows_by_device(gaps), np.empty(0, np.int64)
    for place, rows in rows_by_device(idle.device).items():
        steps = windows[windows[C.RANK] == place[0]]
        yield place, idle.device.take(rows), of_gaps.get(place, none), steps


def _extent(rows: pd.DataFrame) -> tuple[int, int]:
    """First start and last end."""
    start, end = spans(rows)
    return int(start.min()), int(end.max())


def _sum_causes(gaps: pd.DataFrame) -> dict[Cause, int]:
    """Idle time of each cause."""
    codes = np.asarray(gaps[CAUSE].cat.codes, np.int64)
    sums = sum_by_code(codes, len(CAUSES), ints(gaps, C.DUR_NS)).tolist()
    return dict(zip(Cause, sums, strict=True))


def _waits(idle: Idle, windows: pd.DataFrame, of_device: pd.DataFrame, first: int, last: int) -> int:
    """Time of the profiled steps, else of the device's window, in which a thread waits before a launch."""
    host, rank = idle.host, ints(of_device, C.RANK)[0]
    calls = host.positions(of_device[C.LAUNCH_ROW])
    last_launch = host.start[calls[calls >= 0]].max(initial=0)
    rows = idle.waits[(host.rank[idle.waits] == rank) & (host.start[idle.waits] < last_launch)]
    waits = intervals.union(*host.spans(rows))
    if windows.empty:
        return intervals.length(intervals.clip(waits, first, last))
    steps = intervals.union(ints(windows, C.START_NS), ints(windows, END_NS))
    return intervals.length(intervals.intersect(waits, steps))


def _edges(windows: pd.DataFrame, first: int, last: int, opening_ns: int) -> int | None:
    """Time of the profiled steps outside the device's window, without its opening; None without steps."""
    if windows.empty:
        return None
    steps = intervals.union(ints(windows, C.START_NS), ints(windows, END_NS))
    inside = intervals.clip(steps, first, last)
    return intervals.length(steps) - intervals.length(inside) - opening_ns


def measure_aside(run: Run) -> int:
    """Time of the steps of all ranks, else of the captures, at edges and in marked warm-up."""
    idle, windows = idle_rows.read_idle(run), step_windows(run)
    count, aside = len(idle.gaps) - idle.openings, idle.explained.aside
    lengths = inside_steps(idle.gaps, windows) if len(windows) else ints(idle.gaps, C.DUR_NS)
    length = ints(idle.gaps, C.DUR_NS)
    before = idle.gaps[C.RANK].map(measured_from(run)) > idle.gaps[C.START_NS]  # in no step and no capture
    lengths = np.where(before, 0, lengths)
    is_gap = np.arange(len(length)) < count
    by_rank: dict[int, list[int]] = {}
    for (rank, _), of_device, mine, steps in _by_device(idle, idle.gaps, windows):
        opening, inner = mine[~is_gap[mine] & ~aside[mine]], mine[is_gap[mine] & aside[mine]]
        opening_ns = int(length[opening].sum()) + time_after(idle.host, of_device, steps)[0]
        edges = _edges(steps, *_extent(of_device), opening_ns)
        by_rank.setdefault(rank, []).append(int(lengths[inner].sum()) + (edges or 0))
    return sum(sum(of_devices) // len(of_devices) for of_devices in by_rank.values())


def _notes(idle: Idle, gaps: pd.DataFrame) -> Iterator[str]:
    """Notes on unknown causes, missing ops and kernels, and idle time caused by the profiler."""
    causes, total_ns = _sum_causes(gaps), max(1, idle_rows.total_ns(gaps))
    missing_ns = int(ints(gaps, C.DUR_NS)[idle.explained.unrecorded[: len(gaps)]].sum())
    unknown, has_host = (causes[Cause.UNKNOWN] - missing_ns) / total_ns, len(idle.host.start) > 0
    if unknown >= MIN_UNKNOWN_SHARE and not has_host:
        yield "no host activity was recorded, so causes are unknown: record CPU activity too"
    elif unknown >= MIN_UNKNOWN_SHARE:
        yield (
            f"{unknown:.0%} of the idle time has no known cause, because the launch of the next interval was "
            "not recorded: record the runtime calls of the whole capture (`--collector torch`)"
        )
    if missing_ns:
        yield (
            f"{missing_ns / total_ns:.0%} of the idle time is as long in each replay of a graph: other "
            "kernels of it were not recorded, so when the device was idle is unknown"
        )
    if has_host and not idle.host.of_kind(HostKind.OP).any():
        yield "no ops were recorded, so no op is named: record CPU activity too"
    if (profiler := causes[Cause.PROFILER] / total_ns) >= MIN_PROFILER_SHARE:
        yield f"{profiler:.0%} of the idle time is profiler overhead, absent without the profiler"


MIN_LISTED_NS = 1_000
"""Minimum length of a listed gap: shorter ones are below the resolution of traces in whole µs."""
IDLE_NS, RECURRING_NS, START_UP_NS, WARM_UP_NS = "idle_ns", "recurring_ns", "start_up_ns", "warm_up_ns"
HOST_LATE = (*HOST_LAUNCHES, Cause.SYNC, Cause.DATALOAD, Cause.PROFILER)
_CAUSE = Column(CAUSE, "", f"one of {', '.join(CAUSES)}")
_OP = Column(OP, "", "op, annotation or frame that delayed the device; for queued work the launching op")
_SOURCE = Column(SOURCE, "", "user's source line of that op; empty if no stack was recorded")
_COUNT = Column("gaps", "count", "number of gaps")
_SUM = Column(IDLE_NS, "ns", "Σ of gap lengths")
_LONGEST = Column("longest_ns", "ns", "longest gap")
_SHARE = Column("share", "share", "share of the device's idle time")
_CALLED = Column(CALL_NS, "ns", "time in it of that call and others of its name, if calls are the cause")
_OVERHEAD = Column(
    OVERHEAD_NS, "ns", "its part (likewise) in which overhead of the profiler runs, if that is the cause"
)
_LATENCY = Column(
    LATENCY_NS,
    "ns",
    "its part (likewise, without that aside and start-up) after the launch call began, if the host was late "
    "with it",
)
BY_CAUSE = (
    *PLACE_COLUMNS,
    _CAUSE,
    _SUM,
    _SHARE,
    _COUNT,
    Column("per_step_ns", "ns", "idle time inside the profiled steps, per step of the rank with device work"),
    _LONGEST,
    Column("steps_ns", "ns", "idle time inside the profiled steps; missing if none are marked"),
    Column(
        "aside_ns",
        "ns",
        "its part (without steps, that of the capture) at an edge of the capture or in marked warm-up",
    ),
    Column(WARM_UP_NS, "ns", "the part of that in marked warm-up"),
    Column(
        START_UP_NS,
        "ns",
        "its part (likewise) in which the host loaded or compiled code or chose an algorithm, "
        "which does not recur",
    ),
    _OVERHEAD,
    _LATENCY,
)
BY_OP = (
    *(_CAUSE, _OP, _SUM, _SHARE, _COUNT, _LONGEST, _SOURCE, RANK, DEVICE),
    Column("longest_row", "", "row of the longest gap in device_intervals"),
    Column(
        RECURRING_NS,
        "ns",
        "its part inside the profiled steps (without any, in the capture) that is neither at an edge, nor in "
        "marked warm-up, nor start-up",
    ),
    Column(COVERED_NS, "ns", "the part of that in which the op runs, if the host was late"),
)
BEFORE_WORK = (
    *PLACE_COLUMNS,
    Column(C.DUR_NS, "ns", "from the start of the step, or later the end of earlier work, to the first work"),
    *(_CAUSE, _OP),
    Column(CALL, "", "runtime call that covers most of the host's part, or that waited"),
    _SOURCE,
    Column(AFTER, "", "first interval on the device"),
    Column(C.STEP, "", "profiled step that launched it"),
    Column(COVERED_NS, "ns", "its part in which the op runs, if the host was late"),
    _CALLED,
    Column(START_UP_NS, "ns", "its part in which the host loaded or compiled code or chose an algorithm"),
    _OVERHEAD,
    _LATENCY,
    Column(C.START_NS, "ns", "start of that time"),
    Column(C.ROW_ID, "", "row of the first interval in device_intervals"),
    Column(ANCHOR_ROW, "", "row of the op, or of the next op or launch, in host_intervals"),
    Column(C.LAUNCH_ROW, "", "row of the launch in host_intervals"),
)
GAPS = (
    *PLACE_COLUMNS,
    Column(C.START_NS, "ns", "start of the gap"),
    Column(C.DUR_NS, "ns", "length of the gap"),
    *(_CAUSE, _OP),
    Column(
        CALL, "", "runtime call that covers most of the host's part, that waited, or that queued the work"
    ),
    _SOURCE,
    Column(NEXT_OP, "", "innermost op that launched the interval after the gap"),
    Column(COMMON_OP, "", "innermost op around the ops that launched before and after; empty without one"),
    Column(BEFORE, "", "interval that ends at the start of the gap"),
    Column(AFTER, "", "interval that starts at the end of the gap"),
    Column(HOST_NS, "ns", "the host's part: from the gap's start to the launch; missing without a launch"),
    Column(QUEUED_NS, "ns", "the part of the gap during which the next work was queued"),
    Column(
        COUNTED_NS,
        "ns",
        "the part of the gap inside the profiled steps (without any, all of it); 0 at an edge of the capture "
        "and in marked warm-up",
    ),
    Column(RECURRING_NS, "ns", "likewise; also 0 in start-up"),
    _CALLED,
    Column(
        WAIT_NS, "ns", "length of the wait that began before the gap and ended in it; missing without one"
    ),
    Column(C.STEP, "", "profiled step of the work after the gap, else that in which the gap begins"),
    Column(C.ROW_ID, "", "row of the gap in device_intervals"),
    Column(ANCHOR_ROW, "", "row of the op, or of the next op or launch, in host_intervals"),
    Column(C.LAUNCH_ROW, "", "row of the next launch in host_intervals"),
    Column(WAIT_ROW, "", "row of the wait in host_intervals"),
)
SUMMARY = (
    *PLACE_COLUMNS,
    Column(IDLE_NS, "ns", "idle time of the device: the sum of all its gaps"),
    Column("idle_share", "share", "idle time over the window"),
    Column("host_late_ns", "ns", f"gaps with a late host: {', '.join(map(str, HOST_LATE))}"),
    Column("had_work_ns", "ns", f"gaps with queued work: {', '.join(map(str, QUEUED))}"),
    Column("unknown_ns", "ns", "gaps without a known cause"),
    _COUNT,
    Column("listed", "count", f"gaps of {duration(MIN_LISTED_NS)} and more, shown in the table gaps"),
    Column("median_ns", "ns", "lower median of the gap lengths"),
    _LONGEST,
    Column("window_ns", "ns", "first start to last end on the device"),
    Column("lead_ns", "ns", "from the first recorded activity of the CPU to the first work of the device"),
    Column("lead_work", "", "op, call or range that takes most of it on the thread with the first launch"),
    Column("lead_work_ns", "ns", "Σ of its times, without ops, calls and ranges inside it"),
    Column("behind_ns", "ns", "from the end of the launch of the first interval to its start; 0 if unlinked"),
    Column("tail_ns", "ns", "from the last work of the device to the end of the step that launched it"),
    Column("tail_work", "", "op, range or frame that covers most of that time; it is 0 without one"),
    Column("tail_work_ns", "ns", "the part of it that this covers"),
    Column(
        "waits_ns",
        "ns",
        "time of the profiled steps (without any, of that window) in which a thread of the rank waits for a "
        "device, before the last launch",
    ),
    Column("edges_ns", "ns", "time of the steps outside that window, without before_work and tail_ns"),
)

ANALYSIS = Analysis(
    name="idle_gaps",
    title="Idle gaps",
    question="Why was each device idle, and which host op or call is responsible?",
    definition=(
        "gap = idle interval of a device; each has one cause. unknown: the launch of the next interval is "
        "not recorded (before a move of managed memory to the host, which the CPU touches then: host_work). "
        "Work queued (its launch had ended before the gap, or was part of the same CUDA graph, "
        "or it was queued for most of the gap): stream_dependency from "
        f"{duration(MIN_DEPENDENCY_NS)} or if a stream waited for an event of another (submission if the "
        "rank has one stream), else kernel_to_kernel. Otherwise the host was late; the cause covers most of "
        "the gap before the launch: profiler overhead, dataload, sync (also a wait that ended in the gap and "
        "was at least half as long as the gap before the launch); else, where that part is "
        f"{duration(MIN_LONG_NS)} or more: stall (a later call of an op took {MIN_FIRST_RATIO} times its "
        f"median, as did one of {MIN_STALLED_OPS} ops), slow_call (mostly runtime calls), first_call (a "
        f"call that took {MIN_FIRST_RATIO} times its median, at most {MAX_FIRST_CALLS} times or only in the "
        "first half of the calls), host_work "
        f"({duration(MAX_DISPATCH_NS)} or more, or outside ops, modules and ranges); else launch_bound."
    ),
    tables=(
        TableSpec("by_cause", "Idle time by cause, per device", BY_CAUSE),
        TableSpec("by_op", "Idle time by cause and op", BY_OP),
        TableSpec("before_work", "Time of the steps before the first work of a device", BEFORE_WORK),
        TableSpec("summary", "Idle time per device", SUMMARY),
        TableSpec("gaps", f"Gaps of {duration(MIN_LISTED_NS)} and more, longest first", GAPS),
    ),
    sources=("TorchBench, 4.1.1, and TorchExpert", "HTA idle time breakdown"),
    order=40,
    shares=(read_host_columns, idle_rows.read_idle, read_parents, find_searches),
    reads=("device_intervals",),
    compute=compute,
    rules=idle_findings.RULES,
    measure_aside=measure_aside,
)
