"""Launch calls, their delays until the device starts, and the depth of the launch queue.

A launch is a runtime or driver call that caused intervals on a device; the first interval counts, so a CUDA
graph replay is one launch.

* A long delay is not a fault: the host runs ahead of a busy device. reach is negative if the clocks of host
  and device disagree.
* `slowest`: `reasons` lists the reasons that a trace can show.
* `histogram`: calls and delays by length, in powers of two of `MIN_BIN_NS`.

Medians are lower medians; p95 is the smallest value that 95% do not exceed.

Source: HTA's CUDA kernel launch statistics and queue length. HTA averages the queue length over the instants
at which it changes, per stream, so a long full queue counts like a short one.

Example:
    >>> tracekit.analyze(run, "launch_latency").tables["queue"]  # doctest: +SKIP
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.analysis import (
    EVIDENCE_ROWS,
    Analysis,
    Bottleneck,
    Column,
    Finding,
    Result,
    Rule,
    TableSpec,
    savings,
)
from tracekit.analysis.savings import MIN_SHARE, WARN_SHARE, Budget
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, overlap_lengths
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind, HostKind

from .shared.common import (
    DEVICE,
    GRAPH_CALL,
    PLACE,
    PLACE_COLUMNS,
    RANK,
    Bools,
    Objects,
    absent_device_note,
    duration,
    in_steps,
    ints,
    max_per_rank,
    overlap_by,
    percentile,
    select,
    share,
    sort_by,
    spans,
)
from .shared.host_columns import HostColumns, read_host_columns
from .shared.host_rows import LOADS_CODE, NO_OP, source_lines
from .shared.idle_neighbors import find_waits, read_occupying
from .shared.programs import compiled_share, program_of

CALL, KIND, API_NS, DELAY_NS, REACH_NS = "call", "kind", "api_ns", "delay_ns", "reach_ns"
CALLED_NS, STARTED_NS, AT = "called_ns", "begun_ns", "at"
DEPTH, IDLE_IN_CALL = "queued", "idle_in_call_ns"


def launches(device: pd.DataFrame, host: HostColumns) -> pd.DataFrame:
    """One row per launch call and device: its first interval, times, delay and the queue at its start."""
    position = host.positions(device[C.LAUNCH_ROW])
    linked = device.assign(**{AT: position})[position >= 0].sort_values([C.START_NS, C.ROW_ID])
    first = linked.drop_duplicates([*PLACE, AT]).reset_index(drop=True)
    rows, started_at = first[AT].to_numpy(), ints(first, C.START_NS)
    called, returned = host.start[rows], host.end[rows]
    is_replay = host.name_matches(GRAPH_CALL)[rows]
    first[KIND] = first[C.KIND].astype(str).mask(is_replay, str(DeviceKind.GRAPH))
    first[CALL] = host.labels(rows, "")
    first[CALLED_NS], first[STARTED_NS], first[API_NS] = called, started_at, returned - called
    first[DELAY_NS] = np.maximum(started_at - returned, 0)
    first[REACH_NS] = started_at - called
    return _with_lane_measures(first.sort_values([*PLACE, CALLED_NS, C.ROW_ID], ignore_index=True), device)


def _with_lane_measures(table: pd.DataFrame, device: pd.DataFrame) -> pd.DataFrame:
    """Add the queue length at each call, and device idle time during it."""
    queued, idle = np.zeros(len(table), np.int64), np.zeros(len(table), np.int64)
    rows_of = device.groupby(PLACE, sort=True).indices
    for key, rows_of_place in table.groupby(PLACE, sort=True).indices.items():
        mine = table.iloc[rows_of_place]
        called, returned = ints(mine, CALLED_NS), ints(mine, CALLED_NS) + ints(mine, API_NS)
        started = np.sort(np.maximum(ints(mine, STARTED_NS), called))
        queued[rows_of_place] = np.searchsorted(np.sort(called), called) - np.searchsorted(
            started, called, side="right"
        )
        start, end = spans(device.iloc[rows_of[key]])
        gaps = intervals.gaps(start, end)
        idle[rows_of_place] = overlap_lengths(gaps, called, returned)
    return table.assign(**{DEPTH: np.maximum(queued, 0), IDLE_IN_CALL: idle})


def queue(table: pd.DataFrame, device: pd.DataFrame) -> pd.DataFrame:
    """The queue of each device over its window: +1 at each call's start, −1 at its first interval's."""
    rows = []
    rows_of = device.groupby(PLACE, sort=True).indices
    for (rank, index), mine in table.groupby(PLACE, sort=True):
        start, end = spans(device.iloc[rows_of[(rank, index)]])
        rows.append({C.RANK: rank, C.DEVICE: index, **_queue_of(mine, start, end)})
    return pd.DataFrame(rows)


def _queue_of(mine: pd.DataFrame, start: Ints, end: Ints) -> dict[str, object]:
    first, last = int(start.min()), int(end.max())
    called = ints(mine, CALLED_NS)
    started_at = np.maximum(ints(mine, STARTED_NS), called)
    waiting = intervals.union(called, started_at)
    empty = intervals.complement(waiting, first, last)
    idle = intervals.complement(intervals.union(start, end), first, last)
    empty_idle = intervals.length(intervals.intersect(empty, idle))
    inside = np.maximum(np.minimum(started_at, last) - np.maximum(called, first), 0)
    window = last - first
    return {
        "launches": len(mine),
        "mean_depth": float(int(inside.sum()) / window) if window else float("nan"),
        "max_depth": _max_depth(called, started_at),
        "empty_ns": intervals.length(empty),
        "empty_idle_ns": empty_idle,
        "launch_bound_share": float(share(np.array([empty_idle]), window)[0]),
        "idle_ns": intervals.length(idle),
        "window_ns": window,
    }


def _max_depth(called: Ints, started_at: Ints) -> int:
    """Maximum of launches called but not started on the device; at equal times starts count first."""
    times = np.concatenate((called, started_at))
    change = np.repeat(np.array([1, -1]), [len(called), len(started_at)])
    queued = np.concatenate((started_at > called, started_at > called))
    order = np.lexsort((change[queued], times[queued]))
    return int(np.cumsum(change[queued][order]).max(initial=0))


MIN_FULL_QUEUE = 1_000
"""The driver queues about 1,024 launches of a stream and then blocks the caller."""
ALLOCATES = r"(?i)(?:malloc|free|hostalloc|hostregister|moduleload)"

QUEUE_FULL = "the launch queue was full: the driver blocked the caller"
LOADS = "code was loaded at first use during the call"
PROFILER = "the profiler's own overhead covers most of the call"
ALLOCATION = "another thread allocated memory, freed memory or loaded code during most of the call"
FIRST = "first launch of this kernel in the capture: its code may have been loaded"
NONE = ""


def reasons(slow: pd.DataFrame, table: pd.DataFrame, device: pd.DataFrame, host: HostColumns) -> Objects:
    """One reason for each slow launch, empty if the trace shows none."""
    rows = slow[AT].to_numpy()
    overhead, program = host.of_kind(HostKind.OVERHEAD), host.name_matches(LOADS_CODE)
    allocates = host.of_kind(HostKind.RUNTIME) & host.name_matches(ALLOCATES)
    kernels = table[table[KIND] == DeviceKind.KERNEL]
    first = kernels.drop_duplicates([*PLACE, C.NAME])[AT]
    conditions = (
        (QUEUE_FULL, (slow[DEPTH] >= MIN_FULL_QUEUE).to_numpy(bool)),
        (LOADS, _during(host, rows, overhead & program, least=0.0)),
        (PROFILER, _during(host, rows, overhead & ~program, least=0.5)),
        ("a copy that blocks until it completes", np.isin(rows, find_waits(host, device))),
        (ALLOCATION, _during(host, rows, allocates, least=0.5)),
        (FIRST, np.isin(rows, first.to_numpy())),
    )
    reason: Objects = np.select(
        [condition for _, condition in conditions], [np.array(text, object) for text, _ in conditions], NONE
    )
    return reason


def _during(host: HostColumns, rows: Ints, marked: Bools, *, least: float) -> Bools:
    """Whether marked rows of the rank cover more than the given share of each of these rows."""
    chosen = np.flatnonzero(marked)
    inside = overlap_by(host.rank[chosen], host.spans(chosen), host.rank[rows], host.spans(rows))
    return inside > least * (host.end[rows] - host.start[rows])


MAX_LISTED = 50
MIN_BIN_NS = 1_000
"""Length of the first bin of the histogram; each further one is twice as long."""
WHY, HOST_ROW, SOURCE = "why", "host_row", "source_line"

NO_LINKS = (
    "no device interval could be linked to its launch call, so launches are unknown: record CUDA runtime "
    "calls too (`--collector torch`)"
)
SLOW_CALLS = Rule(
    "slow_launch_calls",
    states="the median kernel launch call takes more than {min_median_ns} (at least {min_calls} calls), and "
    "the device's idle time during such calls beyond {usual_call_ns} per call is at least "
    "{min_saving_share} of the steps; not for `synchronous_launches`",
    why="a launch call usually takes about {usual_call_ns}; a median above {min_median_ns} is caused by the "
    "machine, not by the program",
    bound=Bottleneck.LAUNCH,
    thresholds={
        "min_median_ns": 20_000,
        "min_calls": 20,
        "usual_call_ns": 5_000,
        "min_saving_share": MIN_SHARE,
    },
)

SYNCHRONOUS = Rule(
    "synchronous_launches",
    states="kernels run in at least {min_kernel_share} of the time of the calls that launch them (at least "
    "{min_calls} calls), and the device is idle before the next call, for at most the time of the kernel, in "
    "{min_saving_share} of the steps; without a saving on devices other than those of CUDA and HIP",
    why="a launch call returns before its kernel starts, unless a setting for debugging lets it wait",
    bound=Bottleneck.LAUNCH,
    thresholds={"min_kernel_share": 0.5, "min_calls": 20, "min_saving_share": WARN_SHARE},
)


def compute(run: Run) -> Result:
    """Measure each launch of a run."""
    device = read_occupying(run)
    if device.empty:
        return Result(notes=(absent_device_note(run),))
    host = read_host_columns(run)
    table = launches(device, host)
    if table.empty:
        return Result(notes=(NO_LINKS,))
    tables = {
        "summary": _summary(table),
        "queue": select(queue(table, device), _QUEUE),
        "slowest": _slowest(run, table, device, host),
        "histogram": _histogram(table),
    }
    return Result(tables, _findings(run, table), _notes(device, table))


def _notes(device: pd.DataFrame, table: pd.DataFrame) -> tuple[str, ...]:
    unlinked, early = int(device[C.LAUNCH_ROW].isna().sum()), int((table[REACH_NS] < 0).sum())
    notes = []
    if unlinked:
        verb = "has" if unlinked == 1 else "have"
        notes.append(
            f"{unlinked:,} of {len(device):,} device intervals {verb} no recorded launch and are ignored: "
            "the queue was at least as deep as shown"
        )
    if early:
        starts = "launch starts" if early == 1 else "launches start"
        notes.append(
            f"{early:,} {starts} on the device before the call begins: the clocks of host and device "
            "disagree, so short delays are unreliable"
        )
    return tuple(notes)


def _summary(table: pd.DataFrame) -> pd.DataFrame:
    """One row per device and kind of launch."""
    rows = []
    for key, of_kind in table.groupby([*PLACE, KIND], sort=True):
        reach = ints(of_kind, REACH_NS)
        row = {**dict(zip([*PLACE, KIND], key, strict=True)), "launches": len(of_kind)}
        for name, values in (("api", ints(of_kind, API_NS)), ("delay", ints(of_kind, DELAY_NS))):
            row |= {f"{name}_median_ns": percentile(values, 50), f"{name}_p95_ns": percentile(values, 95)}
            row[f"{name}_max_ns"] = int(values.max())
        row |= {"reach_median_ns": percentile(reach, 50), "early": int((reach < 0).sum())}
        rows.append({**row, "api_sum_ns": int(of_kind[API_NS].sum())})
    return select(pd.DataFrame(rows), _SUMMARY)


def _histogram(table: pd.DataFrame) -> pd.DataFrame:
    longest = max(int(ints(table, API_NS).max()), int(ints(table, DELAY_NS).max()), MIN_BIN_NS)
    bins = int(longest // MIN_BIN_NS).bit_length()
    edges = np.array([0, *(MIN_BIN_NS << place for place in range(bins + 1))], np.int64)
    frames = []
    for key, of_device in table.groupby(PLACE, sort=True):
        counts = {
            name: np.bincount(
                np.searchsorted(edges, ints(of_device, column), side="right") - 1, minlength=bins + 1
            )
            for name, column in (("calls", API_NS), ("delays", DELAY_NS))
        }
        place = dict(zip(PLACE, key, strict=True))
        frames.append(pd.DataFrame({**place, "from_ns": edges[:-1], "to_ns": edges[1:], **counts}))
    table_of_bins = pd.concat(frames, ignore_index=True)
    return table_of_bins[(table_of_bins["calls"] > 0) | (table_of_bins["delays"] > 0)].reset_index(drop=True)


def _slowest(run: Run, table: pd.DataFrame, device: pd.DataFrame, host: HostColumns) -> pd.DataFrame:
    """The longest calls, with the reason if the trace shows one."""
    first = sort_by(table, f"-{API_NS}", CALLED_NS, C.ROW_ID)[:MAX_LISTED]
    rows = first[AT].to_numpy()
    op = host.positions(first[C.OP_ROW])
    first[WHY] = reasons(first, table, device, host)
    first["op"] = host.labels(op, NO_OP)
    first[HOST_ROW] = host.ids(rows).astype(np.int64)
    first[SOURCE] = source_lines(run, host.ids(np.where(op >= 0, op, rows)))
    first[C.NAME] = first[C.NAME].astype(object)
    return select(first, _SLOWEST)


def _findings(run: Run, table: pd.DataFrame) -> tuple[Finding, ...]:
    """Finding on slow kernel launches during which the device idles."""
    budget = savings.budget(run)
    kernels = in_steps(table[table[KIND] == DeviceKind.KERNEL], marked=budget.marked)
    if _waits_for_kernels(kernels):
        return _report_synchronous(run, kernels, budget)
    if len(kernels) < SLOW_CALLS["min_calls"]:
        return ()
    median = percentile(ints(kernels, API_NS), 50)
    excess = np.maximum(ints(kernels, IDLE_IN_CALL) - int(SLOW_CALLS["usual_call_ns"]), 0)
    saving = max_per_rank(kernels, excess)
    slow = median > SLOW_CALLS["min_median_ns"]
    if not slow or not budget.matters(saving, least=SLOW_CALLS["min_saving_share"]):
        return ()
    finding = budget.finding(
        SLOW_CALLS,
        saving,
        f"Kernel launch calls take {duration(median)} (median of {len(kernels):,} calls)",
        "The machine is the likely cause: a slow or throttled CPU, fewer cores than threads, another "
        "tracing tool, or a virtual machine. Compare with another machine, or launch less often "
        f"{program_of(run).launch_less(compiled=compiled_share(run))}",
        "Σ of the device's idle time during each such call beyond "
        f"{duration(int(SLOW_CALLS['usual_call_ns']))}, {budget.per}; part of the launch_bound and "
        "slow_call idle time of `idle_gaps`, not in addition to it",
        confidence=0.6,
        evidence=_evidence(kernels, excess),
    )
    return (finding,)


def _evidence(kernels: pd.DataFrame, times: Ints) -> dict[str, list[int]]:
    """Rows of the kernels with the longest times, and of their launches."""
    longest = sort_by(kernels.assign(time=times), "-time", C.ROW_ID)[:EVIDENCE_ROWS]
    rows = {"device_intervals": C.ROW_ID, "host_intervals": C.LAUNCH_ROW}
    return {name: [int(row) for row in longest[column]] for name, column in rows.items()}


def _waits_for_kernels(kernels: pd.DataFrame) -> bool:
    """Whether enough time of calls lies in the kernels they launch, since each waits for its own."""
    called, started_at = ints(kernels, CALLED_NS), ints(kernels, STARTED_NS)
    ended = np.minimum(started_at + ints(kernels, C.DUR_NS), called + ints(kernels, API_NS))
    inside = np.maximum(ended - np.maximum(started_at, called), 0)
    in_calls = int(ints(kernels, API_NS).sum())
    return bool(inside.sum() > SYNCHRONOUS["min_kernel_share"] * in_calls) and (
        len(kernels) >= SYNCHRONOUS["min_calls"]
    )


def _report_synchronous(run: Run, kernels: pd.DataFrame, budget: Budget) -> tuple[Finding, ...]:
    """The finding on launch calls that wait for their kernels."""
    ordered = kernels.sort_values([*PLACE, STARTED_NS])
    ended = ints(ordered, STARTED_NS) + ints(ordered, C.DUR_NS)
    follows = (ordered[PLACE].to_numpy()[1:] == ordered[PLACE].to_numpy()[:-1]).all(axis=1)
    idle = np.where(follows, np.maximum(ints(ordered, STARTED_NS)[1:] - ended[:-1], 0), 0)
    hidable = np.minimum(np.append(idle, 0), ints(ordered, C.DUR_NS))
    saving = max_per_rank(ordered, hidable)
    if not budget.matters(saving, least=SYNCHRONOUS["min_saving_share"]):
        return ()
    program = program_of(run)
    finding = budget.finding(
        SYNCHRONOUS,
        saving,
        f"Launch calls wait for their kernels, then the GPU is idle: {budget.describe(saving)}",
        f"The CPU prepares nothing while a kernel runs. {_LAUNCH_AHEAD if program.graphs else _LAUNCH_LESS}",
        "for each kernel, the idle time after it, at most its duration, in which the next call could have "
        f"been prepared, {budget.per}",
        confidence=0.7,
        evidence=_evidence(ordered, hidable),
    )
    reason = "saving not estimated: it is unknown whether this device launches asynchronously"
    return (finding if program.graphs else finding.without_saving(reason),)


_LAUNCH_AHEAD = (
    "Unset `CUDA_LAUNCH_BLOCKING` (ROCm: `HIP_LAUNCH_BLOCKING`, `AMD_SERIALIZE_KERNEL`), and measure without "
    "debuggers and sanitizers"
)
_LAUNCH_LESS = "Do more work per launch: larger batches, fused ops, fewer copies of scalars"

_KIND = Column(KIND, "", "launched work: kernel, memcpy, memset, or graph (a replay, counted once)")
_LAUNCHES = Column("launches", "count", "launch calls")

_SUMMARY = (
    *(RANK, DEVICE, _KIND, _LAUNCHES),
    Column("api_median_ns", "ns", "median duration of the call"),
    Column(
        "delay_median_ns", "ns", "median delay from the call's end to the start on the device, 0 if before"
    ),
    Column("api_p95_ns", "ns", "95th percentile of the call durations"),
    Column("delay_p95_ns", "ns", "95th percentile of the delays"),
    Column("reach_median_ns", "ns", "median from the call's start to the start on the device, signed"),
    Column("api_max_ns", "ns", "longest call"),
    Column("delay_max_ns", "ns", "longest delay"),
    Column("api_sum_ns", "ns", "Σ of the call durations"),
    Column("early", "count", "launches that start on the device before their call, by the device's clock"),
)
_QUEUE = (
    *PLACE_COLUMNS,
    Column("launch_bound_share", "share", "time with an empty queue and the device idle, over the window"),
    Column("mean_depth", "", "mean number of pending launches (called and not started), over time"),
    Column("max_depth", "count", "maximum number of pending launches"),
    _LAUNCHES,
    Column("empty_idle_ns", "ns", "time with an empty queue and the device idle"),
    Column("empty_ns", "ns", "time with an empty queue"),
    Column("idle_ns", "ns", "time the device is idle"),
    Column("window_ns", "ns", "first start to last end on the device"),
)
_SLOWEST = (
    Column(CALL, "", "the launch call"),
    Column(API_NS, "ns", "its duration"),
    Column(WHY, "prose", "reason shown by the trace; empty if there is none"),
    Column("op", "", "innermost op around it"),
    Column(SOURCE, "", "user's source line; empty if no stack was recorded"),
    Column(C.NAME, "", "first interval that it launched"),
    Column(DELAY_NS, "ns", "from its end to the start on the device, 0 if before"),
    Column(IDLE_IN_CALL, "ns", "the part of the call with the device idle, inside the device's window"),
    Column(DEPTH, "count", "pending launches of the device when the call began"),
    Column(CALLED_NS, "ns", "start of the call"),
    Column(STARTED_NS, "ns", "start on the device"),
    *(RANK, DEVICE, _KIND),
    Column(HOST_ROW, "", "row of the call in host_intervals"),
    Column(C.ROW_ID, "", "row of its first interval in device_intervals"),
)
_HISTOGRAM = (
    *PLACE_COLUMNS,
    Column("from_ns", "ns", "lower edge of the bin"),
    Column("to_ns", "ns", "upper edge of the bin, exclusive"),
    Column("calls", "count", "launch calls of that duration"),
    Column("delays", "count", "delays of that duration"),
)

ANALYSIS = Analysis(
    name="launch_latency",
    title="Launch latency",
    question="How long do launches take until the device starts, and does the launch queue run empty?",
    definition=(
        "api = duration of the launch call; delay = max(0, start on the device − end of the call); reach = "
        "start on the device − start of the call; for a CUDA graph replay the first interval counts. Queue: "
        "+1 at each call's start, −1 at its first interval's start (not before the call's); launch-bound "
        "share = time with an empty queue and the device idle, over the device's window."
    ),
    tables=(
        TableSpec("summary", "Launches by kind, per device", _SUMMARY),
        TableSpec("queue", "Launch queue (launches called and not started), per device", _QUEUE),
        TableSpec("slowest", f"The {MAX_LISTED} longest launch calls", _SLOWEST),
        TableSpec("histogram", "Launch calls and delays by duration", _HISTOGRAM),
    ),
    sources=("HTA CUDA kernel launch statistics", "HTA queue length"),
    order=42,
    shares=(read_host_columns,),
    reads=("device_intervals",),
    compute=compute,
    rules=(SLOW_CALLS, SYNCHRONOUS),
)
