"""Waits of the host for a device, and the idle time of the device after them.

Synchronize calls are cudaStreamSynchronize, cudaDeviceSynchronize, cudaEventSynchronize and their HIP
counterparts (rows of kind `sync`). `.item()` is the op `aten::_local_scalar_dense` around such calls.

The cost of a wait follows it: the queue is empty, so the device idles until the host has launched again.

* idle after: the idle intervals that begin in the wait, or up to `MAX_CLOCK_SKEW_NS` after it because the
  clocks of host and device differ. The launch that ends the interval must come from the thread that waited.
  A wait that no launch follows has no idle time.
* idle caused: without the wait the launch could have been earlier by at most the wait's length. The rest of
  the idle time is other work of the host.
* saved: the part of the idle time caused that a step would save: inside the profiled steps only, and not
  where the host then waited for something other than the device, such as the next request, nor in marked
  warm-up.

Devices of a rank idle concurrently: idle times sum over them. Nsight Systems ranks synchronization calls by
host time only.

Sources: nsys rule "synchronization calls", plus idle time; TorchBench (Hao et al., 2023), 4.1.2.

Example:
    >>> tracekit.analyze(run, "sync_points").tables["waits"].head()  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import (
    EVIDENCE_ROWS,
    Analysis,
    Basis,
    Bottleneck,
    Column,
    Finding,
    Remark,
    Result,
    Rule,
    TableSpec,
    savings,
)
from tracekit.analysis.kernel_names import LINE, TITLE_WIDTH, brief
from tracekit.analysis.savings import MIN_SHARE, Budget
from tracekit.runs.intervals import Ints
from tracekit.runs.range_names import MARKER
from tracekit.runs.run import Run
from tracekit.runs.step_windows import step_windows
from tracekit.schema import C, HostKind

from .idle_gaps import causes
from .idle_gaps.causes import CALL, OP, OUTSIDE, SOURCE, Idle
from .idle_gaps.context import MAX_CLOCK_SKEW_NS, in_search
from .shared.common import (
    NO_PARENT,
    NO_STEPS,
    PLACE,
    RANK,
    absent_device_note,
    duration,
    in_steps,
    ints,
    overlap_by,
    select,
    share,
    spans,
)
from .shared.groups import count_by_rank, group_rows, sum_by_code
from .shared.host_rows import advise_on_wait, host_rows, source_lines
from .shared.idle_neighbors import find_waits_on_device, inside_steps
from .shared.intervals_by_class import find_searches

MAX_LISTED = 50
"""Maximum rows of the table of single waits."""
MAX_FINDINGS = 10
BUSY_NS, CAUSED_NS, AFTER_NS = "device_busy_ns", "idle_caused_ns", "idle_after_ns"
SAVED_NS, FOLLOWING_NS = "saved_ns", "following_ns"
"""Per wait: the idle time it causes, and that after it, inside the profiled steps if they are marked."""
IDLE_ROW, THREAD_ROW, GAPS = "idle_row", "host_row", "gaps"
"""Per wait: the row id of its longest idle interval, that of the wait, and the number of its intervals."""

NO_WAITS = Remark("no call in this capture waits for the device")
ON_DEVICE = Remark("the calls that wait for the device were not recorded, only rows of devices for them")
NO_CALLS = (
    "no runtime calls were recorded, so waits for the device are unknown: record CUDA and CPU activity "
    "(`--collector torch`)"
)


def compute(run: Run) -> Result:
    """List the waits, and attribute idle time to them."""
    idle = causes.read_idle(run).without_openings()
    if idle.device.empty:
        return Result(notes=(absent_device_note(run),))
    on_device = _group_waits_on_device(find_waits_on_device(run, idle.host))
    if not len(idle.waits):
        # Without any runtime call the capture lacks them; with some, the program did not wait.
        recorded = idle.host.of_kind(HostKind.RUNTIME, HostKind.SYNC).any()
        why = ON_DEVICE if len(on_device) else NO_WAITS if recorded else NO_CALLS
        return Result({"on_device": on_device} if len(on_device) else {}, notes=(why,))
    windows = step_windows(run)
    waits = _with_idle(_describe_waits(run, idle), idle, windows, find_searches(run))
    calls = select(waits, _CALLS, f"-{CAUSED_NS}", f"-{C.DUR_NS}", C.START_NS, THREAD_ROW)
    tables = {"waits": _group_waits(waits, idle, windows), "calls": calls[:MAX_LISTED]}
    tables |= {"on_device": on_device} if len(on_device) else {}
    notes = () if len(windows) else (NO_STEPS,)
    return Result(tables, _findings(run, waits, idle.gaps), notes)


def _group_waits_on_device(waits: pd.DataFrame) -> pd.DataFrame:
    """Group waits that only rows of devices record by rank and name, longest first."""
    groups = group_rows(waits, [C.RANK, C.NAME])
    table = waits[[C.RANK, C.NAME]].take(groups.first).reset_index(drop=True)
    length = ints(waits, C.DUR_NS)
    table = table.assign(count=groups.sizes(), host_ns=groups.sums(length), longest_ns=groups.largest(length))
    return select(table, _ON_DEVICE, "-host_ns", C.RANK, C.NAME)


def _describe_waits(run: Run, idle: Idle) -> pd.DataFrame:
    """One row per wait, in the order of `idle.waits`: call, op around it, source line, step, times in ns."""
    host, rows = idle.host, idle.waits
    op = host.nearest_ancestor(rows, host.of_kind(HostKind.OP))
    annotations = host.of_kind(HostKind.ANNOTATION) & ~host.name_matches(MARKER)  # markers of steps name none
    op_or_annotation = np.where(op >= 0, op, host.nearest_ancestor(rows, annotations))
    ids = host.ids(rows)
    rank = host.rank[rows].astype(np.int64)
    table = pd.DataFrame({C.RANK: rank, CALL: host.labels(rows, ""), C.START_NS: host.start[rows]})
    table[C.DUR_NS] = host.end[rows] - host.start[rows]
    table[OP] = host.labels(op_or_annotation, OUTSIDE)
    table[SOURCE] = source_lines(run, host.ids(np.where(op >= 0, op, rows)))
    table[C.STEP] = host_rows(run, ids, [C.STEP])[C.STEP].astype("Int64")
    table[THREAD_ROW] = ids.astype(np.int64)
    device_rank = ints(idle.device, C.RANK)
    table[BUSY_NS] = overlap_by(device_rank, spans(idle.device), rank, spans(table))
    return table


def _with_idle(waits: pd.DataFrame, idle: Idle, windows: pd.DataFrame, searches: Ints) -> pd.DataFrame:
    """Add the idle intervals that each wait caused; an interval belongs to at most one wait."""
    wait_row = idle.explained.wait  # host position, as in `idle.waits`, which is sorted
    has_wait = wait_row >= 0
    wait_number = np.searchsorted(idle.waits, wait_row[has_wait])
    wait_ns, count = ints(waits, C.DUR_NS)[wait_number], len(waits)
    gaps, no_loss = idle.gaps[has_wait], idle.explained.waiting_elsewhere | idle.explained.warm_up
    no_loss = no_loss | in_search(idle.gaps, idle.device, searches)
    length, row_id = ints(gaps, C.DUR_NS), ints(gaps, C.ROW_ID)
    inside = np.where(no_loss[has_wait], 0, inside_steps(gaps, windows) if len(windows) else length)
    # The longest interval of a wait first: its row is shown as evidence.
    order = np.lexsort((row_id, -length, wait_number))
    numbers, first = np.unique(wait_number[order], return_index=True)
    longest = np.full(count, NO_PARENT, np.int64)
    longest[numbers] = row_id[order[first]]
    columns: dict[str, Any] = {
        GAPS: np.bincount(wait_number, minlength=count),
        CAUSED_NS: sum_by_code(wait_number, count, np.minimum(length, wait_ns)),
        AFTER_NS: sum_by_code(wait_number, count, length),
        SAVED_NS: sum_by_code(wait_number, count, np.minimum(inside, wait_ns)),
        FOLLOWING_NS: sum_by_code(wait_number, count, inside),
        IDLE_ROW: pd.arrays.IntegerArray(longest, longest == NO_PARENT),
    }
    return waits.assign(**columns)


def _group_waits(waits: pd.DataFrame, idle: Idle, windows: pd.DataFrame) -> pd.DataFrame:
    """Group waits by call, op and line, most expensive first."""
    keys = [C.RANK, CALL, OP, SOURCE]
    groups = group_rows(waits, keys)
    table = waits[keys].take(groups.first).reset_index(drop=True)
    ranks, caused = ints(table, C.RANK), groups.sums(ints(waits, CAUSED_NS))
    in_steps = groups.sums(waits[C.STEP].notna().to_numpy().astype(np.int64))
    table = table.assign(
        count=groups.sizes(),
        host_ns=groups.sums(ints(waits, C.DUR_NS)),
        device_busy_ns=groups.sums(ints(waits, BUSY_NS)),
        idle_caused_ns=caused,
        idle_after_ns=groups.sums(ints(waits, AFTER_NS)),
        longest_ns=groups.largest(ints(waits, C.DUR_NS)),
        idle_share=share(caused, _idle_of_ranks(idle.gaps, ranks)),
        per_step=share(in_steps, count_by_rank(windows, ranks)),
    )
    return select(table, _WAITS, f"-{CAUSED_NS}", "-host_ns", *keys)


def _idle_of_ranks(gaps: pd.DataFrame, ranks: Ints) -> Ints:
    """Idle time of the devices of each of these ranks, ns."""
    groups = group_rows(gaps, [C.RANK])
    sums = groups.sums(ints(gaps, C.DUR_NS)).tolist()
    idle_ns = dict(zip(ints(gaps, C.RANK)[groups.first].tolist(), sums, strict=True))
    return np.array([idle_ns.get(rank, 0) for rank in ranks.tolist()], np.int64)


_CALL = Column(CALL, "", "runtime call in which the host waited")
_OP = Column(OP, "", f"innermost op around it, else annotation, else {OUTSIDE}")
_SOURCE = Column(SOURCE, "", "user's source line; empty if no stack was recorded")
_CAUSED = Column(CAUSED_NS, "ns", "device idle time caused by the waits, an upper bound")
_AFTER = Column(AFTER_NS, "ns", "device idle time from the end of the awaited work to the next launched work")
_BUSY = Column(BUSY_NS, "ns", "the part of the wait with a device of the rank busy")

_WAITS = (
    *(_CALL, _OP),
    Column("count", "count", "number of waits"),
    _CAUSED,
    Column("host_ns", "ns", "Σ of the time the host waited"),
    _SOURCE,
    _AFTER,
    _BUSY,
    Column("idle_share", "share", "idle time caused over the idle time of the rank's devices"),
    Column("per_step", "", "waits inside profiled steps, per step; missing without steps"),
    Column("longest_ns", "ns", "longest wait"),
    RANK,
)
_CALLS = (
    *(_CALL, _OP),
    _CAUSED,
    Column(C.DUR_NS, "ns", "length of the wait"),
    _SOURCE,
    _AFTER,
    _BUSY,
    Column(C.START_NS, "ns", "start of the wait"),
    Column(C.STEP, "", "profiled step of the wait"),
    RANK,
    Column(THREAD_ROW, "", "row of the wait in host_intervals"),
    Column(IDLE_ROW, "", "row of the longest idle interval it caused in device_intervals"),
)

_ON_DEVICE = (
    Column(C.NAME, "", "what the host waited for"),
    Column("count", "count", "number of waits"),
    Column("host_ns", "ns", "Σ of the time the host waited"),
    Column("longest_ns", "ns", "longest wait"),
    RANK,
)

STARVES = Rule(
    "sync_starves_device",
    states="the waits of one call, op and source line inside the profiled steps cause device idle time of at "
    "least {min_saving_share} of the steps (per idle interval the minimum of its length and the wait's)",
    why="a wait costs the device idle time after it, at most the wait's length, and nothing while it works",
    bound=Bottleneck.SYNC,
    thresholds={"min_saving_share": MIN_SHARE},
)
_HOW = (
    "Σ over the idle intervals that begin in these waits of the minimum of the interval's length (inside the "
    "profiled steps if marked; ignored if the host then waits for something else) and the wait's, {per}, "
    "mean over the devices of a rank; a later wait may replace it"
)


def _findings(run: Run, waits: pd.DataFrame, gaps: pd.DataFrame) -> tuple[Finding, ...]:
    """One finding for each call, op and source line that causes idle time, most expensive first."""
    budget = savings.budget(run)
    waits = in_steps(waits, marked=budget.marked)
    # Idle times sum over the devices of a rank, which idle concurrently: their mean is what a step saves.
    ranks = ints(gaps, C.RANK)[group_rows(gaps, PLACE).first]
    devices_per_rank = int(np.unique(ranks, return_counts=True)[1].max()) if len(ranks) else 1
    groups = group_rows(waits, [CALL, OP, SOURCE])
    ranked = []
    for number, saved in enumerate(groups.sums(ints(waits, SAVED_NS)).tolist()):
        saving = saved // devices_per_rank
        if budget.matters(saving, least=STARVES["min_saving_share"]):
            rows = waits[groups.codes == number]
            call, op, line = (str(rows[key].iloc[0]) for key in (CALL, OP, SOURCE))
            after = int(ints(rows, FOLLOWING_NS).sum()) // devices_per_rank
            ranked.append((saving, _finding(call, op, line, rows, (saving, after), budget)))
    ranked.sort(key=lambda pair: -pair[0])
    return tuple(finding for _, finding in ranked[:MAX_FINDINGS])


CALL_WIDTH = 22
"""Maximum width of the name of a call in a title, beside an op: `cudaStreamSynchronize` fits."""


def _finding(
    call: str, op: str, line: str, rows: pd.DataFrame, times: tuple[int, int], budget: Budget
) -> Finding:
    """The finding on the waits of one call, op and line; the times are of idle time due to and after them."""
    saving, after = times
    where = "outside ops" if op == OUTSIDE else f"in {brief(op, TITLE_WIDTH)}"
    place = f"It waits at {brief(line, LINE)}. " if line else ""
    due = ""
    if budget.matters(after - saving):
        due = (
            f"{duration(budget.per_step(saving))} of it is due to the waits: at most as long as each lasted. "
        )
    evidence = rows.sort_values([SAVED_NS, THREAD_ROW], ascending=[False, True])[:EVIDENCE_ROWS]
    return budget.finding(
        STARVES,
        saving,
        f"{brief(call, CALL_WIDTH)} {where}: GPU idle {duration(budget.per_step(after))} {budget.per} after "
        f"{budget.count(len(rows), 'wait')}",
        f"{place}{due}{advise_on_wait(call, op)}",
        _HOW.format(per=budget.per),
        basis=Basis.MEASURED,
        evidence={
            "device_intervals": [int(row) for row in evidence[IDLE_ROW].dropna()],
            "host_intervals": [int(row) for row in evidence[THREAD_ROW]],
        },
    )


ANALYSIS = Analysis(
    name="sync_points",
    title="Synchronization points",
    question="Where does the host wait for a device, and how long is the device idle afterwards?",
    definition=(
        "wait = synchronize call, or copy call that returned no earlier than its copy was done (synchronous "
        "by name, or pageable memory); host = its length; busy = the part with a device of the rank busy; "
        "idle after = idle intervals that begin in the wait (or up to "
        f"{duration(MAX_CLOCK_SKEW_NS)} later) and end with work launched "
        "after it, each attributed to one wait; idle caused = per such interval the minimum of its length "
        "and the wait's."
    ),
    tables=(
        TableSpec("waits", "Waits by call, op and source line", _WAITS),
        TableSpec("calls", f"The {MAX_LISTED} most expensive waits", _CALLS),
        TableSpec("on_device", "Waits of the host that only rows of devices record", _ON_DEVICE),
    ),
    sources=("nsys rule on synchronization calls", "TorchBench, 4.1.2"),
    answer=(
        "Costliest wait: {call} in {op}, {count} times; the host waits {host_ns}, and the device is idle for "
        "{idle_caused_ns}."
    ),
    order=41,
    shares=(causes.read_idle,),
    reads=("device_intervals",),
    compute=compute,
    rules=(STARVES,),
)
