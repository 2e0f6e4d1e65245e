"""Break down the time of the compared steps (the wall ledger), and name what changed most in each part.

Let K be the compute kernels and opaque graphs of a device, N its communication kernels and M its copies and
memsets, as unions of intervals clipped to a step. Then compute only = |K∖(N∪M)|, overlapped = |K∩(N∪M)|,
exposed communication = |N∖K|, exposed copies = |M∖(K∪N)|, and the rest is idle: launch-bound, sync and data
loading if the analysis `idle_gaps` gives that cause, else other. The device with the most work represents a
rank. Without device work, the parts are those of `host_breakdown`, of the thread that drives the steps; where
these are unknown, time in ops, on any thread, and other time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.compute as pc

from tracekit import registry
from tracekit.analysis import analyze
from tracekit.analysis.host_verdict import NOT_RECORDED, HostPart, find_main_function
from tracekit.analysis.idle_causes import HOST_LAUNCHES, IdleCause
from tracekit.analysis.kernel_names import COMMUNICATION, matches
from tracekit.diff.breakdowns import BreakdownLine, Group, StepTimeBreakdown
from tracekit.diff.compared_steps import StepRange
from tracekit.diff.naming import Role
from tracekit.errors import TracekitError
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, Union
from tracekit.runs.run import Run, busy
from tracekit.runs.step_windows import END_NS
from tracekit.schema import C, DeviceKind, HostKind

ANALYSIS = "idle_gaps"
_TABLE, _CAUSE, _OP = "gaps", "cause", "op"
NO_OP = ""
LAUNCH_BOUND, SYNC, DATALOAD = "launch-bound idle", "synchronization idle", "data loading idle"
LINES = {LAUNCH_BOUND: HOST_LAUNCHES, SYNC: (IdleCause.SYNC,), DATALOAD: (IdleCause.DATALOAD,)}
"""Causes summed by each line of the ledger; all others are in the last line."""
Parts: TypeAlias = dict[str, int]


def read_idle_causes(base: Run, head: Run) -> tuple[tuple[pd.DataFrame, pd.DataFrame] | None, str]:
    """Return the gaps of both runs with their causes, or None and why they are not known."""
    if ANALYSIS not in registry.names(registry.ANALYSES):
        return None, f"idle time is one line: the analysis {ANALYSIS!r} is not installed"
    columns = [C.RANK, C.DEVICE, C.START_NS, C.DUR_NS, _CAUSE, _OP]
    # A device that is never idle has no gaps, and then there is no table.
    none = pd.DataFrame({name: np.empty(0, np.int64) for name in columns})
    try:
        a, b = (analyze(run, ANALYSIS).tables.get(_TABLE, none)[columns] for run in (base, head))
    except TracekitError as error:
        return None, f"idle time is one line: {error.message}"
    return (a, b), ""


def _idle_by_op(gaps: pd.DataFrame, windows: pd.DataFrame) -> dict[str, Parts]:
    """Return the idle time of a device inside windows, by line of the breakdown and op of the host, ns."""
    start = gaps[C.START_NS].to_numpy(np.int64)
    end = start + gaps[C.DUR_NS].to_numpy(np.int64)
    inside = intervals.overlap_lengths(intervals.union(*_bounds(windows)), start, end)
    ops = gaps[_OP].astype(object).fillna(NO_OP).astype(str)
    by_op = pd.DataFrame({_OP: ops.to_numpy(), _CAUSE: gaps[_CAUSE].to_numpy(), C.DUR_NS: inside})
    sums = {}
    for line, causes in LINES.items():
        of_line = by_op[by_op[_CAUSE].isin(causes)].groupby(_OP)[C.DUR_NS].sum()
        sums[line] = {str(op): int(ns) for op, ns in of_line.items()}
    return sums


COMPUTE, OVERLAPPED, COMMUNICATING = "compute only", "overlapped", "exposed communication"
COPYING, OTHER_IDLE, IDLE = "exposed copies", "other idle", "idle"
IN_OPS, OUTSIDE = "in ops", "outside of ops"
OF_WORK = frozenset((COMPUTE, OVERLAPPED, COMMUNICATING, COPYING, IN_OPS))
"""Parts that lines of the work ledger explain."""
HOST_ANALYSIS = "host_breakdown"
HOST_PARTS = {
    HostPart.GARBAGE_COLLECTION: ("garbage collection", "Python collects garbage"),
    HostPart.LOADING: (
        "data loading",
        "inside `__next__` of a data loader: its work, or waiting for its workers",
    ),
    HostPart.COMPILATION: ("compilation", "code is compiled or loaded"),
    HostPart.START_UP: ("start-up", "the first call of an op, which took far longer than the others"),
    HostPart.PROFILER: ("profiler", "the profiler's own work"),
    HostPart.COMMUNICATION: ("communication", "an op that communicates runs"),
    HostPart.WAITS: ("waits for a device", "a call waits for a device"),
    HostPart.RUNTIME: ("runtime calls", "another call of the runtime runs"),
    HostPart.OPS: (IN_OPS, "an op runs"),
    HostPart.OTHER_THREADS: ("in ops of other threads", "an op runs on another thread only"),
    HostPart.UNRECORDED_BACKWARD: (
        "backward that is not recorded",
        "the thread waits for autograd, whose work is not recorded",
    ),
    HostPart.OUTSIDE: (OUTSIDE, "no op runs, and no other part applies"),
}
"""Lines of the ledger without device work, in the order in which a moment is given to them, with meanings."""

MEANINGS = {
    COMPUTE: "a kernel that computes runs, and neither copies nor communication",
    OVERLAPPED: "a kernel that computes runs beside copies or communication",
    COMMUNICATING: "communication runs, and no kernel that computes",
    COPYING: "copies or memsets run, and no kernel",
    LAUNCH_BOUND: "the device waits for the host to launch, whatever the host does",
    SYNC: "the device waits for a host that waited for it",
    DATALOAD: "the device waits for a host that waits for data",
    OTHER_IDLE: "idle for another reason, or too short to tell, or before the first or after the last work",
    IDLE: "nothing runs on the device",
    **dict(HOST_PARTS.values()),
}


@dataclass(frozen=True)
class StepParts:
    """The parts of a run's compared steps, the time in which anything ran, and time by part and name.

    The names are those of ops or functions that the host was in. Matched work names the parts without any.
    """

    parts: Parts
    ran_ns: int
    by_name: dict[str, Parts] = field(default_factory=dict)


def divide_device_time(run: Run, steps: StepRange, gaps: pd.DataFrame | None) -> StepParts:
    """Divide the steps by what ran on the devices; idle time by cause where causes are known.

    Args:
        run: The run.
        steps: Its compared steps.
        gaps: Its idle intervals with their causes.
    """
    frame = busy(run, [C.RANK, C.DEVICE, C.KIND, C.NAME, C.START_NS, C.DUR_NS])
    parts: Parts = dict.fromkeys((COMPUTE, OVERLAPPED, COMMUNICATING, COPYING), 0)
    parts |= dict.fromkeys((IDLE,) if gaps is None else (*LINES, OTHER_IDLE), 0)
    by_name: dict[str, Parts] = {}
    for rank, windows in steps.windows.groupby(C.RANK):
        device, rows = _busiest(frame[frame[C.RANK] == rank])
        of_rank = _device_parts(rows, windows)
        if gaps is not None:
            idle = _idle_by_op(gaps[(gaps[C.RANK] == rank) & (gaps[C.DEVICE] == device)], windows)
            by_cause = {name: sum(ops.values()) for name, ops in idle.items()}
            of_rank |= {**by_cause, OTHER_IDLE: of_rank.pop(IDLE) - sum(by_cause.values())}
            for name, ops in idle.items():
                ops.pop(NO_OP, None)
                by_name[name] = _add(by_name.get(name, {}), ops)
        parts = _add(parts, of_rank)
    ran = sum(parts[name] for name in (COMPUTE, OVERLAPPED, COMMUNICATING, COPYING))
    return StepParts(parts, ran, by_name)


def _add(a: Parts, b: Parts, *, sign: int = 1) -> Parts:
    return {name: a.get(name, 0) + sign * b.get(name, 0) for name in (*a, *b)}


def divide_host_time(
    runs: tuple[Run, Run], steps: tuple[StepRange, StepRange], *, explain: bool
) -> tuple[StepParts, StepParts]:
    """Divide the steps by what the host did.

    Args:
        runs: The base and the head.
        steps: Their compared steps.
        explain: Whether to ask `host_breakdown`; if it does not know one side, only ops count on both.
    """
    sides = list(zip(runs, steps, strict=True))
    in_ops = [_time_in_ops(*side) for side in sides]
    if explain and HOST_ANALYSIS in registry.names(registry.ANALYSES):
        base, head = (_read_thread_time(*side) for side in sides)
        if base and head:
            names = _name_parts(base, head)
            a, b = (
                StepParts(
                    {HOST_PARTS[part][0]: time for part, time in side.times.items() if time}, ran, by_name
                )
                for side, ran, by_name in zip((base, head), in_ops, names, strict=True)
            )
            return a, b
    a, b = (
        StepParts({IN_OPS: ran, OUTSIDE: side.total_ns - ran}, ran)
        for side, ran in zip(steps, in_ops, strict=True)
    )
    return a, b


@dataclass(frozen=True)
class _ThreadTime:
    """Time of the driving threads in the compared steps by part, and rows of `by_name`.

    There are no rows where other steps were profiled as well, as each row is of all of them.
    """

    times: dict[HostPart, int]
    names: pd.DataFrame

    def rows(self, part: HostPart) -> pd.DataFrame:
        """Return the rows of a part."""
        return self.names[self.names["part"] == str(part)]

    def is_sampled(self, part: HostPart) -> bool:
        """Whether functions are named in a part."""
        return bool(self.rows(part)["samples"].notna().any())


def _read_thread_time(run: Run, steps: StepRange) -> _ThreadTime | None:
    """Return what the driving threads did; None where that is not known for each step."""
    try:
        tables = analyze(run, HOST_ANALYSIS).tables
    except TracekitError:
        return None
    if not {"whole", "by_name", "per_step"} <= tables.keys():
        return None
    compared = steps.windows[[C.RANK, C.STEP]].merge(tables["per_step"], on=[C.RANK, C.STEP])
    times = {part: int(compared[f"{part}_ns"].sum()) for part in HOST_PARTS}
    if sum(times.values()) != steps.total_ns:
        return None
    is_all = sum(times.values()) == int(tables["whole"]["time_ns"].sum())
    names = tables["by_name"][is_all & (tables["by_name"][C.NAME] != NOT_RECORDED)]
    # The line of a function is another one where lines were added above it.
    return _ThreadTime(times, names.assign(**{C.NAME: names[C.NAME].str.replace(_LINE, ": ", regex=True)}))


_LINE = r"\(\d+\): "


def _name_parts(base: _ThreadTime, head: _ThreadTime) -> tuple[dict[str, Parts], dict[str, Parts]]:
    """Return the time of both sides by part and name; functions only where samples name them on both."""
    by_name: tuple[dict[str, Parts], dict[str, Parts]] = {}, {}
    for part, (line, _) in HOST_PARTS.items():
        are_sampled = base.is_sampled(part) and head.is_sampled(part)
        for side, of_side in zip((base, head), by_name, strict=True):
            rows = side.rows(part)
            rows = rows if are_sampled else rows[rows["samples"].isna()]
            if len(rows):
                of_side[line] = {
                    str(name): int(ns) for name, ns in rows.groupby(C.NAME)["time_ns"].sum().items()
                }
    if loader := _name_loader(base, head):
        for of_side, of_loader in zip(by_name, loader, strict=True):
            of_side[HOST_PARTS[HostPart.LOADING][0]] = of_loader
    return by_name


def _name_loader(base: _ThreadTime, head: _ThreadTime) -> tuple[Parts, Parts] | None:
    """Return the function that most of the loading is in, with its time on both sides and what it calls.

    All loading of a side without samples counts as this function; then the change is no smaller than that.
    """
    sides = (base, head)
    rows = [side.rows(HostPart.LOADING) for side in sides]
    whole_ns = [side.times[HostPart.LOADING] for side in sides]
    sampled = [side.is_sampled(HostPart.LOADING) for side in sides]
    longest = max((0, 1), key=lambda place: (sampled[place], whole_ns[place]))
    name, _ = find_main_function(rows[longest], whole_ns[longest])
    inside_ns = [int(named.loc[named[C.NAME] == name, "total_ns"].sum()) for named in rows]
    a, b = (
        min(inside, whole) if inside or known else whole
        for inside, whole, known in zip(inside_ns, whole_ns, sampled, strict=True)
    )
    if not name or not any(sampled) or (not all(sampled) and (a, b)[longest] <= (b, a)[longest]):
        return None
    return {name: a}, {name: b}


def _time_in_ops(run: Run, steps: StepRange) -> int:
    """Return for how long any op of the host ran in the steps."""
    columns = [C.RANK, C.START_NS, C.DUR_NS]
    frame = run.table("host_intervals", columns=columns, where=pc.field(C.KIND) == str(HostKind.OP))
    ran = 0
    for rank, windows in steps.windows.groupby(C.RANK):
        ran += _inside(_union(frame[frame[C.RANK] == rank]), windows)
    return ran


def largest(changes: dict[str, int]) -> tuple[str, int]:
    """Return the name with the largest change in either direction; an empty name without any.

    Example:
        >>> largest({"aten::mm": -5, "aten::add": 3, "aten::mul": 0}), largest({})
        (('aten::mm', -5), ('', 0))
    """
    name = min(changes, key=lambda name: (-abs(changes[name]), name), default="")
    return (name, changes[name]) if changes.get(name) else ("", 0)


def break_down(
    base: StepParts,
    head: StepParts,
    steps: tuple[StepRange, StepRange],
    work: tuple[int, int],
    groups: Sequence[Group] = (),
) -> StepTimeBreakdown:
    """Join the parts of both sides.

    Args:
        base: The parts of the base.
        head: The parts of the head.
        steps: The steps that were divided.
        work: Σ of durations of the compared steps, ns.
        groups: Matched work that differs, which names what changed in each part.
    """
    names = [name for name in MEANINGS if name in base.parts or name in head.parts]
    changes: dict[str, Parts] = {name: {} for name in names}
    for group in groups:
        if (part := _part_of(group)) in changes:
            changes[part][group.label] = changes[part].get(group.label, 0) + group.terms.delta
    for name in {**base.by_name, **head.by_name}.keys() & changes.keys():
        changes[name] = _add(head.by_name.get(name, {}), base.by_name.get(name, {}), sign=-1)
    lines = [
        BreakdownLine(
            name, MEANINGS[name], base.parts.get(name, 0), head.parts.get(name, 0), *largest(changes[name])
        )
        for name in names
    ]
    total = BreakdownLine("step", "the compared steps", steps[0].total_ns, steps[1].total_ns)
    overlap = BreakdownLine(
        "overlap",
        "Σ of durations minus the time in which anything ran",
        work[0] - base.ran_ns,
        work[1] - head.ran_ns,
    )
    return StepTimeBreakdown(tuple(lines), total, overlap)


def _part_of(group: Group) -> str:
    if group.sort == HostKind.OP:
        return IN_OPS
    if group.sort in {DeviceKind.KERNEL, DeviceKind.GRAPH}:
        return COMMUNICATING if group.role == Role.COLLECTIVE else COMPUTE
    return COPYING


def _busiest(rows: pd.DataFrame) -> tuple[int, pd.DataFrame]:
    """Return the device of a rank with most work; the lower of two with equal work."""
    if rows.empty:
        return 0, rows
    # Devices of a rank run at the same time: their parts do not add up to a step, so one stands for all.
    sums = rows.groupby(C.DEVICE, sort=True)[C.DUR_NS].sum()
    device = int(sums.index[int(np.argmax(sums.to_numpy()))])
    return device, rows[rows[C.DEVICE] == device]


def _device_parts(rows: pd.DataFrame, windows: pd.DataFrame) -> Parts:
    kernel = rows[C.KIND].isin([str(DeviceKind.KERNEL), str(DeviceKind.GRAPH)]).to_numpy(bool)
    communicates = kernel & matches(rows[C.NAME], COMMUNICATION).to_numpy(bool)
    computes = kernel & ~communicates

    def within(mask: npt.NDArray[np.bool_]) -> int:
        return _inside(_union(rows[mask]), windows)

    # Four unions give all parts: |K \ B| = |K ∪ B| - |B| and |K ∩ B| = |K| + |B| - |K ∪ B|.
    compute, rest, kernels = within(computes), within(~computes), within(kernel)
    anything = within(np.ones(len(rows), bool))
    start, end = _bounds(windows)
    return {
        COMPUTE: anything - rest,
        OVERLAPPED: compute + rest - anything,
        COMMUNICATING: kernels - compute,
        COPYING: anything - kernels,
        IDLE: int((end - start).sum()) - anything,
    }


def _union(rows: pd.DataFrame) -> Union:
    start = rows[C.START_NS].to_numpy(np.int64)
    return intervals.union(start, start + rows[C.DUR_NS].to_numpy(np.int64))


def _bounds(windows: pd.DataFrame) -> tuple[Ints, Ints]:
    return windows[C.START_NS].to_numpy(np.int64), windows[END_NS].to_numpy(np.int64)


def _inside(union: Union, windows: pd.DataFrame) -> int:
    return int(intervals.overlap_lengths(union, *_bounds(windows)).sum())
