"""Breakdown of the time of the thread that drives each rank: ops, loading, waiting, and time outside ops.

A moment belongs to the first of these that applies:

* garbage_collection: inside a pause in which Python collects garbage, if the agent recorded them; or, after
  ops, while it collects on another thread, which holds the interpreter lock.
* loading: inside a data loader's `__next__`: its own work, or waiting for its workers.
* compilation: inside a range that compiles or tries variants of kernels, or loading code of a device.
* start_up: inside the first call of an op that took far longer than the others: it initializes something.
* profiler: the profiler's own work.
* communication: inside an op that communicates; or, after ops, while only such ops of other threads run, as
  with gloo, whose waits are not recorded.
* waits: in a runtime call that waits for the device.
* runtime: in another runtime call.
* ops: inside an op, outside the above.
* other_threads: ops of other threads of the rank run, and nothing of the above: backward of a GPU program.
* unrecorded_backward: inside a range or function of backward, on a rank whose ops are of one thread, and none
  of a node of backward: it waits for autograd's thread, which is not recorded.
* outside: nothing of these: Python, libraries that record nothing, and waiting for anything else.

The parts sum to the window to the nanosecond: to the union of the profiled steps on the host or, if none are
marked, to the time from the first to the last row of the thread. The driving thread is the one with most
marks of steps, else most ops outside of backward, else most runtime calls.

Where the agent recorded it, `thread_states` divides each step by what the scheduler did with the thread: on a
core, ready and waiting for one (run delay), or blocked: asleep, or waiting for a file, a socket, a lock or
other threads. That is another division of the same time, not of the parts.

Source: the events of torch.profiler and Nsight Systems, and the stacks that the agent samples.

Example:
    >>> tracekit.analyze(run, "host_breakdown").tables["whole"]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Column, Result, TableSpec
from tracekit.analysis.host_verdict import (
    BLOCKED_SHARE,
    NOT_RECORDED,
    RAN_SHARE,
    HostPart,
    find_main_function,
)
from tracekit.ingest.link import nesting
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, Union, overlap_lengths
from tracekit.runs.range_names import COLLECTION
from tracekit.runs.run import Run
from tracekit.runs.step_windows import HOST_NS, HOST_START_NS, step_windows
from tracekit.schema import C, HostKind

from ..compile.regions import COMPILING
from ..ops.reads import MIN_READS, ReadLoops, find_read_loops
from ..shared.common import NO_STEPS, RANK, STEP, Bools, Small, duration, ints, medians, share, sort_by
from ..shared.groups import group_rows
from ..shared.host_columns import HostColumns, find_unrecorded_backward, read_host_columns
from ..shared.host_rows import NO_SOURCE, largest_line, source_lines
from ..shared.op_families import COMMUNICATES
from .findings import PART, RULES, SAMPLED_STEPS, SAMPLES, SOURCE, TIME_NS, TOTAL_NS, findings
from .samples import (
    MIN_SAMPLES,
    bound_outside,
    compare_functions,
    divide_unrecorded,
    find_loops,
    name_loading,
    read_samples,
    sum_other_threads,
)
from .states import BLOCKED_NS, ON_CORE_NS, RUN_DELAY_NS, STEP_NS, find_delays, read_states

NO_HOST = "no host activity in this capture: record CPU activity (`--collector torch`)"
Parts: TypeAlias = dict[HostPart, Union]
_PARTS = list(HostPart)
_UNMARKED, _MARK = -1, len(HostPart)
"""Codes of a row of no part, and of the mark of a step, which says nothing."""
_COMPILES = rf"{COMPILING}|(?i:nvrtc)|::[cC]ompile[A-Z]|CachingAutotuner"
"""Ranges of Dynamo, Inductor, NVRTC and nvFuser; users name ranges of their own after compilation too."""
_COLLECTS = f"^{COLLECTION}"
MIN_CALLS, MIN_FIRST_RATIO, MIN_FIRST_NS = 4, 100, 10_000_000
"""Minimum number of calls of an op whose first initializes something, of times the median, and of ns."""
_VIEWS = (
    r"^aten::(?:t|_?(?:unsafe_)?view|transpose|permute|expand|as_strided|select|slice|(?:un)?squeeze"
    r"|detach)_?$"
)
"""Ops that initialize nothing: where one takes long, the thread had no core."""
_WAITS, _LOADS_CODE = r"Command Buffer Full", r"Module Loading|Lazy Function Loading|^dlopen"
"""Overhead rows of CUPTI that are none of the profiler's: a full launch queue, and loading of code."""
_KINDS = {
    HostKind.OVERHEAD: HostPart.PROFILER,
    HostKind.SYNC: HostPart.WAITS,
    HostKind.RUNTIME: HostPart.RUNTIME,
    HostKind.OP: HostPart.OPS,
}


def compute(run: Run) -> Result:
    """Break down the time of the driving thread of each rank."""
    host = read_host_columns(run)
    if not len(host.start):
        return Result(notes=(NO_HOST,))
    windows = step_windows(run)
    marks, loops = _find_marks(run, host), find_read_loops(run, host)
    drivers = _find_drivers(host, marks)
    states_of = {rank: read_states(run, rank, windows[windows[C.RANK] == rank]) for rank in drivers}
    part_of_row = _mark_parts(host, find_delays(host, windows, drivers, states_of))
    found: dict[str, list[pd.DataFrame]] = {spec.name: [] for spec in TABLES}
    for rank, thread in drivers.items():
        steps = windows[windows[C.RANK] == rank]
        window = _host_window(steps, host, thread)
        parts = _occupied(host, part_of_row, rank, thread, window)
        tables = {
            "whole": _sum_parts(parts, window, len(steps)),
            "per_step": _split_by_step(parts, steps),
            "thread_states": states_of[rank],
            "other_threads": sum_other_threads(run, rank),
        }
        codes = np.where(marks, _MARK, part_of_row)
        names = _with_rest(_sum_names(run, host, codes, thread, window, parts), parts[HostPart.OUTSIDE])
        names = sort_by(names, f"-{TIME_NS}", C.NAME)
        samples, unprofiled = read_samples(run, rank, window)
        if len(samples) or len(unprofiled):
            ranges = np.flatnonzero((host.thread == thread) & (codes == _UNMARKED))
            outside = parts[HostPart.OUTSIDE]
            unrecorded = intervals.subtract(outside, intervals.union(*host.spans(ranges)))
            functions = compare_functions(samples, unprofiled, unrecorded, ints(steps, HOST_START_NS))
            around = find_loops(functions, len(samples) + len(unprofiled))
            divided = divide_unrecorded(names, samples, unrecorded, around)
            lengths = intervals.length(outside), intervals.length(window)
            bounded = bound_outside(names, unprofiled, *lengths, around)
            names = bounded if not _has_main(divided) and _has_main(bounded) else divided
            names = name_loading(names, samples, unprofiled, parts[HostPart.LOADING])
            tables["by_function"] = functions
        names = sort_by(names, f"-{TIME_NS}")
        tables["by_name"] = names.assign(share=share(ints(names, TIME_NS), intervals.length(window)))
        if (on_thread := loops.threads == thread).any():
            tables["read_loops"] = _sum_loops(run, loops, on_thread, intervals.length(window))
        for name, table in tables.items():
            if len(table):
                found[name].append(table.assign(**{C.RANK: rank}))
    of_all = {
        spec.name: pd.concat(found[spec.name], ignore_index=True)[[column.name for column in spec.columns]]
        for spec in TABLES
        if found[spec.name]
    }
    notes = () if "per_step" in of_all else (NO_STEPS,)
    return Result(of_all, tuple(findings(run, of_all, host)), notes=notes)


def _mark_parts(host: HostColumns, delays: Ints) -> Small:
    """Part of each host row, as an index into the parts; rows without one inherit that of the row around.

    `delays` says for how long the thread waited for a core in the step of each row, ns, as far as it is
    known.
    """
    part: Small = np.full(len(host.start), _UNMARKED, np.int8)
    for kind, part_of_kind in _KINDS.items():
        part[host.of_kind(kind)] = _PARTS.index(part_of_kind)
    is_overhead = host.of_kind(HostKind.OVERHEAD)
    part[is_overhead & host.name_matches(_WAITS)] = _PARTS.index(HostPart.WAITS)
    part[is_overhead & host.name_matches(_LOADS_CODE)] = _PARTS.index(HostPart.COMPILATION)
    part = nesting.inherit(host.parent, part)
    is_op, is_range = host.of_kind(HostKind.OP), host.of_kind(HostKind.OP, HostKind.ANNOTATION)
    part[host.are_inside(is_op & host.name_matches(COMMUNICATES))] = _PARTS.index(HostPart.COMMUNICATION)
    part[host.are_inside(is_range & host.name_matches(_COMPILES))] = _PARTS.index(HostPart.COMPILATION)
    works = is_op & ~host.name_matches(_VIEWS)
    initializes = _find_first_calls(host, works & (part == _PARTS.index(HostPart.OPS)), delays)
    inside = host.are_inside(initializes)
    part[inside & (part != _PARTS.index(HostPart.COMPILATION))] = _PARTS.index(HostPart.START_UP)
    part[host.data_loading] = _PARTS.index(HostPart.LOADING)
    inside = host.are_inside(find_unrecorded_backward(host))
    part[inside & (part == _UNMARKED)] = _PARTS.index(HostPart.UNRECORDED_BACKWARD)
    part[host.are_inside(host.name_matches(_COLLECTS))] = _PARTS.index(HostPart.GARBAGE_COLLECTION)
    return part


def _find_first_calls(host: HostColumns, chosen: Bools, delays: Ints) -> Bools:
    """Whether each host row is the first call of its op on its rank, and far longer than the others.

    It is also longer without all that its thread waited for a core meanwhile, which initializes nothing. Of
    nested ones only the innermost is: an op that calls it is not slow itself.
    """
    found, rows = np.zeros(len(chosen), np.bool_), np.flatnonzero(chosen)
    if not len(rows):
        return found
    calls = pd.DataFrame({C.RANK: host.rank[rows], C.NAME: host.name_codes(rows)})
    groups, length = group_rows(calls, [C.RANK, C.NAME]), (host.end - host.start)[rows]
    count, first = groups.sizes(), groups.place_of_largest(-host.start[rows])
    usual = np.maximum(medians(groups.codes, len(first), length), 1)
    least = np.maximum(MIN_FIRST_RATIO * usual, MIN_FIRST_NS)
    slow = (count >= MIN_CALLS) & (length[first] - delays[rows[first]] >= least)
    found[rows[first[slow]]] = True
    inner = np.flatnonzero(found)
    around = host.nearest_ancestor(host.parent[inner].astype(np.int64), found)
    found[around[around >= 0]] = False
    return found


def _find_marks(run: Run, host: HostColumns) -> Bools:
    """Whether each row is the mark of a step."""
    names = run.table("steps", columns=[C.NAME])[C.NAME].unique()
    return host.name.is_any_of(*names) & host.of_kind(HostKind.ANNOTATION)


def _find_drivers(host: HostColumns, marks: Bools) -> dict[int, int]:
    """The thread that drives each rank, by rank.

    It has most marks of steps; else most ops outside of backward, which runs on a thread of its own beside a
    device; else most runtime calls; else the longest extent.
    """
    is_op, calls = host.of_kind(HostKind.OP), host.of_kind(HostKind.RUNTIME, HostKind.SYNC)
    if not len(is_op):
        return {}
    first = np.flatnonzero(np.diff(host.thread, prepend=-1))  # of each thread
    counts = (
        np.add.reduceat(chosen, first, dtype=np.int64) for chosen in (marks, is_op & ~host.in_backward, calls)
    )
    extent = np.maximum.reduceat(host.end, first) - np.minimum.reduceat(host.start, first)
    rank, thread = host.rank[first], host.thread[first]
    order = np.lexsort((thread, extent, *[*counts][::-1], rank))
    drives = np.append(np.diff(rank[order]) != 0, True)  # the last of each rank has most
    return dict(zip(rank[order][drives].tolist(), thread[order][drives].tolist(), strict=True))


def _host_window(steps: pd.DataFrame, host: HostColumns, thread: int) -> Union:
    """The union of the steps on the host; without steps, the extent of the thread."""
    if len(steps):
        start = ints(steps, HOST_START_NS)
        return intervals.union(start, start + ints(steps, HOST_NS))
    rows = host.rows_of_thread[thread]
    return host.start[rows][:1], host.end[rows].max(keepdims=True)


def _occupied(host: HostColumns, part_of_row: Small, rank: int, thread: int, window: Union) -> Parts:
    """The moments of each part inside the window, which they partition."""
    on_thread = host.thread == thread
    elsewhere = ~on_thread & (host.rank == rank)
    chosen = [(part, on_thread & (part_of_row == _PARTS.index(part))) for part in _PARTS]
    chosen[_PARTS.index(HostPart.OTHER_THREADS)] = (
        HostPart.OTHER_THREADS,
        elsewhere & host.of_kind(HostKind.OP),
    )
    ranges = elsewhere & host.of_kind(HostKind.OP, HostKind.ANNOTATION)
    for part, pattern in ((HostPart.COMMUNICATION, COMMUNICATES), (HostPart.GARBAGE_COLLECTION, _COLLECTS)):
        chosen.insert(_PARTS.index(HostPart.OTHER_THREADS), (part, ranges & host.name_matches(pattern)))
    moments: Parts = dict.fromkeys(_PARTS, intervals.union(*host.spans(np.zeros(0, np.int64))))
    free = window
    for part, rows in chosen:
        occupied = intervals.union(*host.spans(np.flatnonzero(rows)))
        inside = intervals.intersect(occupied, free)
        moments[part] = intervals.union(
            *(np.concatenate(pair) for pair in zip(moments[part], inside, strict=True))
        )
        free = intervals.subtract(free, occupied)
    return {**moments, HostPart.OUTSIDE: free}


def _sum_parts(parts: Parts, window: Union, steps: int) -> pd.DataFrame:
    times = np.array([intervals.length(moments) for moments in parts.values()], np.int64)
    unknown = np.full(len(times), not steps)
    table = pd.DataFrame({PART: [str(part) for part in parts], TIME_NS: times})
    table["share"] = share(times, intervals.length(window))
    table["per_step_ns"] = pd.arrays.IntegerArray(times // max(steps, 1), unknown)
    return sort_by(table[times > 0], f"-{TIME_NS}")


def _split_by_step(parts: Parts, steps: pd.DataFrame) -> pd.DataFrame:
    start = ints(steps, HOST_START_NS)
    end = start + ints(steps, HOST_NS)
    times = {f"{part}_ns": overlap_lengths(moments, start, end) for part, moments in parts.items()}
    return pd.DataFrame({C.STEP: steps[C.STEP].to_numpy(), "step_ns": end - start, **times})


def _sum_names(
    run: Run, host: HostColumns, part_of_row: Small, thread: int, window: Union, parts: Parts
) -> pd.DataFrame:
    """Time inside the window by part and name on a thread, with the source line of the longest call.

    Of rows outside of ops only the moments that are outside count: ops of other threads may run beside them.
    """
    rows = host.rows_of_thread[thread]
    part, (start, end) = part_of_row[rows], (host.start[rows], host.end[rows])
    is_outside = (part == _UNMARKED) | (part == _MARK)
    parent = np.maximum(host.parent[rows] - np.int32(rows.start), -1)
    of_outside = is_outside[parent]
    total_ns = np.empty(len(part), np.int64)
    for of, moments in ((~is_outside, window), (is_outside, parts[HostPart.OUTSIDE])):
        chosen = np.flatnonzero(of)
        total_ns[chosen] = overlap_lengths(moments, start[chosen], end[chosen])
    self_ns, in_parent = total_ns.copy(), total_ns.copy()
    for of, moments in ((~of_outside, window), (of_outside, parts[HostPart.OUTSIDE])):
        chosen = np.flatnonzero(of & (is_outside != of_outside))
        in_parent[chosen] = overlap_lengths(moments, start[chosen], end[chosen])
    is_below = parent >= 0
    np.subtract.at(self_ns, parent[is_below], in_parent[is_below])
    for code in np.flatnonzero(np.bincount(part[~is_outside])):
        chosen = np.flatnonzero(part == code)
        total_ns[chosen] = overlap_lengths(parts[_PARTS[code]], start[chosen], end[chosen])
    part = np.where(part == _UNMARKED, _PARTS.index(HostPart.OUTSIDE), part)
    chosen = np.flatnonzero((self_ns > 0) & (part != _MARK))
    self_ns, part = self_ns[chosen], part[chosen]
    names = host.categories(rows.start + chosen, "")
    groups = group_rows(pd.DataFrame({PART: part, C.NAME: names}), [PART, C.NAME])
    longest = groups.place_of_largest(self_ns)
    return pd.DataFrame(
        {
            PART: [str(_PARTS[code]) for code in part[longest]],
            C.NAME: names.take(longest).astype(object),
            TIME_NS: groups.sums(self_ns),
            TOTAL_NS: groups.sums(total_ns[chosen]),
            "calls": groups.sizes(),
            SOURCE: source_lines(run, host.ids(rows.start + chosen[longest])).to_numpy(object),
        }
    )


def _has_main(names: pd.DataFrame) -> bool:
    """Whether a function has most of the time outside of ops."""
    outside = names[names[PART] == HostPart.OUTSIDE]
    function, _ = find_main_function(outside, int(ints(outside, TIME_NS).sum()))
    return function not in ("", NOT_RECORDED)


def _sum_loops(run: Run, loops: ReadLoops, chosen: Bools, window_ns: int) -> pd.DataFrame:
    """Sum loops that read values, with the line that most of their time is in."""
    row_id, ranks, start, end = (
        values[chosen] for values in (loops.row_id, loops.ranks, loops.start, loops.end)
    )
    line = largest_line(run, row_id, ranks, start, end)
    time_ns = int((end - start).sum())
    row = {"values": int(loops.values[chosen].sum()), TIME_NS: time_ns, "share": time_ns / window_ns}
    return pd.DataFrame([{**row, SOURCE: "" if line == NO_SOURCE else line}])


def _with_rest(names: pd.DataFrame, outside: Union) -> pd.DataFrame:
    """Add the time outside of all rows to the table by name."""
    named_ns = int(ints(names, TIME_NS)[names[PART] == HostPart.OUTSIDE].sum())
    rest_ns = intervals.length(outside) - named_ns
    if rest_ns > 0:
        rest = {PART: str(HostPart.OUTSIDE), C.NAME: NOT_RECORDED, "calls": 0, SOURCE: ""}
        rest |= dict.fromkeys((TIME_NS, TOTAL_NS), rest_ns)
        names = pd.concat([names, pd.DataFrame([rest])], ignore_index=True)
    return names.assign(**{SAMPLES: pd.array([None] * len(names), "Int64")})


_PART = Column(PART, "", f"one of {', '.join(_PARTS)}")
TABLES = (
    TableSpec(
        "whole",
        "Time of the driving thread by part, per rank",
        (
            RANK,
            _PART,
            Column(TIME_NS, "ns", "time in the window, above 0; the parts of a rank sum to the window"),
            Column("share", "share", "time over the window"),
            Column("per_step_ns", "ns", "time per profiled step; missing if none are marked"),
        ),
    ),
    TableSpec(
        "by_name",
        "Self time of the driving thread by op, range or function",
        (
            RANK,
            _PART,
            Column(C.NAME, "", f"op, call, range or Python function; {NOT_RECORDED} for the rest outside"),
            Column(TIME_NS, "ns", "Σ of the self times in the window: without rows inside"),
            Column("share", "share", "self time over the window"),
            Column(
                TOTAL_NS,
                "ns",
                "Σ of the times of the part in these calls, with what they call; of a function that is in "
                "nearly all samples and not in one line, as the loop over steps, the self time",
            ),
            Column("calls", "count", "calls with a part in the window"),
            Column(SOURCE, "", "user's line of the longest call, or of most samples; empty if not recorded"),
            Column(SAMPLES, "count", "samples with it on the stack; missing where times were measured"),
        ),
    ),
    TableSpec(
        "per_step",
        "Time of the driving thread by profiled step",
        (
            RANK,
            STEP,
            Column("step_ns", "ns", "length of the step on the host: the sum of the parts"),
            *(Column(f"{part}_ns", "ns", f"time of the part {part}") for part in _PARTS),
        ),
    ),
    TableSpec(
        "by_function",
        "Python functions in samples of the driving thread, with what they call",
        (
            RANK,
            Column(C.NAME, "", "function, with its file and first line"),
            Column(SAMPLES, "count", "samples in the window with the function on the stack"),
            Column("share", "share", "these over all samples in the window"),
            Column("self_samples", "count", "those in which it is the innermost function"),
            Column("unrecorded_samples", "count", "those at moments that no row of the thread covers"),
            Column(SAMPLED_STEPS, "count", "profiled steps in which it is in a sample"),
            Column("unprofiled_samples", "count", "samples with it in steps that were not profiled"),
            Column("unprofiled_share", "share", "these over all samples in such steps"),
            Column("unprofiled_self_samples", "count", "those in which it is the innermost function"),
            Column(SOURCE, "", "line of it that runs in more than half of its samples; else empty"),
        ),
    ),
    TableSpec(
        "thread_states",
        "State of the driving thread by profiled step",
        (
            RANK,
            STEP,
            Column(STEP_NS, "ns", "length of the step on the host: the sum of the states"),
            Column(ON_CORE_NS, "ns", "time on a core"),
            Column(RUN_DELAY_NS, "ns", "time ready to run, waiting for a core"),
            Column(BLOCKED_NS, "ns", "the rest: asleep, or waiting for a file, a socket, a lock or threads"),
        ),
    ),
    TableSpec(
        "read_loops",
        "Loops of the driving thread that read values of tensors one at a time",
        (
            RANK,
            Column("values", "count", f"values read in the window, at least {MIN_READS} in a row"),
            Column(TIME_NS, "ns", "Σ of the times from the first op of a loop to the last"),
            Column("share", "share", "time over the window"),
            Column(SOURCE, "", "user's line with most of the time, by stacks or samples; empty if unknown"),
        ),
    ),
    TableSpec(
        "other_threads",
        "Python functions in samples of other threads, with what they call",
        (
            RANK,
            Column(C.NAME, "", "function, with its file and first line"),
            Column(SOURCE, "", "line of it that runs in more than half of its samples; else empty"),
            Column(SAMPLES, "count", "samples of other threads with the function on the stack"),
            Column(C.RAN_NS, "ns", "CPU time of these threads up to such samples, since their last ones"),
            Column(RAN_SHARE, "share", "this over the time between samples of the driving thread"),
            Column(BLOCKED_SHARE, "share", "part of that time for which the driving thread was blocked"),
            Column(C.LOCK_WAIT_NS, "ns", "mean wait of the sampler for the interpreter lock meanwhile"),
        ),
    ),
)
ANALYSIS = Analysis(
    name="host_breakdown",
    title="Host breakdown",
    question="What does the thread that drives the program spend its time on?",
    definition=(
        "driving thread = the one with most marks of steps, else most ops outside of backward, else most "
        "runtime calls; window = union of the profiled steps on the host, else the thread's extent. A moment "
        "belongs to the first that applies of: garbage_collection (Python collects garbage), loading (in a "
        "data loader's __next__), compilation (in a range that compiles or tries variants, or loading "
        f"code), start_up (in the first of at least {MIN_CALLS} calls of an op other than a view, which "
        f"takes {duration(MIN_FIRST_NS)} and {MIN_FIRST_RATIO} times the median of the calls, "
        "without what the thread waited for a core in that step), "
        "profiler, communication (in an op that communicates), waits (in a call that waits for the device), "
        "runtime (in another runtime call), ops (in an op), garbage_collection or communication (on other "
        "threads only), other_threads (ops of other threads of the rank run), unrecorded_backward (in "
        "backward, of which no op is recorded), outside (none of these). Time "
        "that no row covers is divided by the functions in the agent's samples, and functions that a data "
        f"loader calls have a total time by them, from {MIN_SAMPLES} samples on. Where these name no "
        "function of most of the time, samples of steps that were not profiled do: outside, a function takes "
        "at least its share of them (one in nearly all, that of its line) without all other time, which they "
        "may be in as well. "
        "Samples are statistical: of n, a function with the share p is in p·n ± "
        "√(p·(1 − p)·n), and what takes less than their distance of 10 ms or more may be in none. Code "
        "between ops is sampled late by up to the interval in which Python hands over its lock (1 ms; 5 ms "
        "if the program has other threads), so shorter code is seen less often."
    ),
    tables=TABLES,
    sources=("events of torch.profiler and Nsight Systems",),
    order=11,
    shares=(read_host_columns,),
    compute=compute,
    rules=RULES,
)
