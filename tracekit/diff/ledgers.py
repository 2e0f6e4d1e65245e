"""Amounts and terms of a difference, groups of matched work, and the wall ledger.

Let K be the compute kernels and opaque graphs of a device, N its communication kernels and M its copies and
memsets, as unions of intervals clipped to a step. Then compute only = |K∖(N∪M)|, overlapped = |K∩(N∪M)|,
exposed communication = |N∖K|, exposed copies = |M∖(K∪N)|, and the rest is idle: launch-bound, sync and data
loading if the analysis `idle_gaps` gives that cause, else other. The device with the most work represents a
rank. Without device work the step is divided into time in ops, on any thread, and other time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from tracekit import registry
from tracekit.analysis import analyze
from tracekit.analysis.idle_causes import HOST_LAUNCHES, IdleCause
from tracekit.analysis.kernel_names import COMMUNICATION, matches
from tracekit.errors import TracekitError
from tracekit.runs import intervals
from tracekit.runs.rank_view import END_NS
from tracekit.runs.run import busy
from tracekit.schema import C, DeviceKind, HostKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pandas as pd

    from tracekit.diff.spans import Span
    from tracekit.runs.intervals import Ints, Union
    from tracekit.runs.run import Run


@dataclass(frozen=True, order=True)
class Amount:
    """Number of intervals and the sum of their durations."""

    count: int
    total_ns: int


NOTHING = Amount(0, 0)


@dataclass(frozen=True)
class Terms:
    """Terms of a difference in ns: `delta = added − removed + count + rate`, exactly.

    Attributes:
        added: Time of what only the head has.
        removed: Time of what only the base has.
        count: Change of the number times the mean of both mean durations, rounded to whole ns.
        rate: The rest of what both have: change of the mean duration times the mean number.
    """

    added: int = 0
    removed: int = 0
    count: int = 0
    rate: int = 0

    @property
    def delta(self) -> int:
        """The whole difference."""
        return self.added - self.removed + self.count + self.rate

    def __add__(self, other: Terms) -> Terms:
        return Terms(
            self.added + other.added,
            self.removed + other.removed,
            self.count + other.count,
            self.rate + other.rate,
        )


@dataclass(frozen=True)
class Group:
    """Work of both runs that was matched, or work that only one has.

    Attributes:
        path: Names of the ops from the outermost to the launching one; of work of several paths the names
            with which all begin and, after `…`, those with which all end; empty where no op is known.
        shapes: Input shapes of the launching op of its longest interval; empty where unknown.
        module: Module of that op; empty where unknown.
        name_a: Canonical name of its longest work in the base; empty where it has none.
        name_b: The same in the head.
        sort: kernel, memset, graph, op, or memcpy with its direction.
        role: What it does.
        rung: How it was matched; empty where only one side has it.
        a: Intervals of the base.
        b: Intervals of the head.
        terms: What the difference is made of.
        evidence: Rows of the longest intervals of the base (`a`) and the head (`b`).
    """

    path: tuple[str, ...]
    shapes: str
    module: str
    name_a: str
    name_b: str
    sort: str
    role: str
    rung: str
    a: Amount
    b: Amount
    terms: Terms
    evidence: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Cause:
    """Line of the work ledger: groups summed by op, module or kernel.

    Attributes:
        label: The op path, module or kernel.
        detail: What ran: names of the base and of the head where they differ.
        rungs: How its groups were matched.
        evidence: Rows of the longest intervals of the base (`a`) and the head (`b`).
        modules: Modules of its groups, the largest difference first, a few of them.
    """

    label: str
    detail: str
    a: Amount
    b: Amount
    terms: Terms
    rungs: tuple[str, ...]
    evidence: dict[str, list[int]]
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Work:
    """The work ledger: Σ of durations on both sides, and the terms of their difference."""

    a_ns: int
    b_ns: int
    terms: Terms

    @property
    def residual(self) -> int:
        """Remainder of the terms; zero by construction."""
        return self.b_ns - self.a_ns - self.terms.delta


@dataclass(frozen=True)
class WallLine:
    """Line of the wall ledger: time of the compared steps, ns."""

    name: str
    meaning: str
    a_ns: int
    b_ns: int

    @property
    def delta(self) -> int:
        """Head minus base."""
        return self.b_ns - self.a_ns


@dataclass(frozen=True)
class Wall:
    """The wall ledger: the compared steps cut into parts that sum to them exactly on both sides.

    Attributes:
        lines: The parts.
        total: The steps.
        overlap: Work minus the time in which any of it ran: what joins the two ledgers.
    """

    lines: tuple[WallLine, ...]
    total: WallLine
    overlap: WallLine


@dataclass(frozen=True)
class Rung:
    """Time matched by one matching rule."""

    rung: str
    groups: int
    a_ns: int
    b_ns: int


@dataclass(frozen=True)
class Matched:
    """Coverage of the matching.

    Attributes:
        share_a: Matched share of the base's work; None where it has none.
        share_b: Matched share of the head's work.
        by_rung: Time matched on each rung, the strongest first; the last has no name and is not matched.
        rules: Version of the rules for names.
    """

    share_a: float | None
    share_b: float | None
    by_rung: tuple[Rung, ...]
    rules: int


@dataclass(frozen=True)
class OneSided:
    """Work of a name that only one of the two runs has.

    Attributes:
        name: Its canonical name.
        kind: kernel, memcpy, memset, graph or op.
        role: What most of it does.
        count: Intervals.
        total_ns: Their time.
        matched_ns: Time of it that was matched with work of other names; the rest is added or removed.
        instead: Names that it was matched with, those of most time first, a few of them.
    """

    name: str
    kind: str
    role: str
    count: int
    total_ns: int
    matched_ns: int
    instead: tuple[str, ...]


@dataclass(frozen=True)
class Changed:
    """Work with a changed count: exact counts over the compared steps."""

    label: str
    name: str
    a: int
    b: int


ANALYSIS = "idle_gaps"
_TABLE, _CAUSE = "gaps", "cause"
LAUNCH_BOUND, SYNC, DATALOAD = "launch-bound idle", "synchronization idle", "data loading idle"
LINES = {LAUNCH_BOUND: HOST_LAUNCHES, SYNC: (IdleCause.SYNC,), DATALOAD: (IdleCause.DATALOAD,)}
"""Causes summed by each line of the ledger; all others are in the last line."""


@dataclass(frozen=True)
class IdleCauses:
    """The gaps of a run with their causes."""

    gaps: pd.DataFrame

    def of(self, rank: int, device: int) -> dict[str, Union]:
        """Line of the ledger to the idle intervals of one device that belong to it."""
        own = self.gaps[(self.gaps[C.RANK] == rank) & (self.gaps[C.DEVICE] == device)]
        return {line: _idle_union(own[own[_CAUSE].isin(causes)]) for line, causes in LINES.items()}


def _idle_union(gaps: pd.DataFrame) -> Union:
    start = gaps[C.START_NS].to_numpy(np.int64)
    return intervals.union(start, start + gaps[C.DUR_NS].to_numpy(np.int64))


def causes(base: Run, head: Run) -> tuple[tuple[IdleCauses, IdleCauses] | None, str]:
    """The causes of both runs, or None and why they are not known."""
    if ANALYSIS not in registry.names(registry.ANALYSES):
        return None, f"idle time is one line: the analysis {ANALYSIS!r} is not installed"
    try:
        tables = [analyze(run, ANALYSIS).tables for run in (base, head)]
    except TracekitError as error:
        return None, f"idle time is one line: {error.message}"
    found = [_gaps(table.get(_TABLE)) for table in tables]
    return (found[0], found[1]), ""


def _gaps(table: pd.DataFrame | None) -> IdleCauses:
    import pandas as pd

    columns = [C.RANK, C.DEVICE, C.START_NS, C.DUR_NS]
    if table is None:  # a device that is never idle has no gaps
        empty = pd.DataFrame({name: np.empty(0, np.int64) for name in columns})
        return IdleCauses(empty.assign(**{_CAUSE: ""}))
    return IdleCauses(table[[*columns, _CAUSE]])


COMPUTE, OVERLAPPED, COMMUNICATING = "compute only", "overlapped", "exposed communication"
COPYING, OTHER_IDLE, IDLE = "exposed copies", "other idle", "idle"
IN_OPS, OUTSIDE = "in ops", "outside of ops"

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
    IN_OPS: "an op runs on any thread of the host",
    OUTSIDE: "no op runs",
}
Parts = dict[str, int]


@dataclass(frozen=True)
class Cut:
    """The compared steps of one run cut into parts.

    Attributes:
        parts: Length of each part by name; they sum to the steps.
        ran_ns: Time in which anything ran.
    """

    parts: Parts
    ran_ns: int


def cut_device(run: Run, span: Span, causes: IdleCauses | None) -> Cut:
    """Cut the steps by what ran on the devices; idle time by cause where causes are known."""
    frame = busy(run, [C.RANK, C.DEVICE, C.KIND, C.NAME, C.START_NS, C.DUR_NS])
    parts: Parts = dict.fromkeys((COMPUTE, OVERLAPPED, COMMUNICATING, COPYING), 0)
    parts |= dict.fromkeys((*LINES, OTHER_IDLE) if causes else (IDLE,), 0)
    for rank, windows in _by_rank(span):
        device, rows = _busiest(frame[frame[C.RANK] == rank])
        found = _device_parts(rows, windows)
        idle = found.pop(IDLE)
        if causes:
            known = {name: _inside(union, windows) for name, union in causes.of(rank, device).items()}
            found |= {**known, OTHER_IDLE: idle - sum(known.values())}
        else:
            found[IDLE] = idle
        for name, length in found.items():
            parts[name] += length
    return Cut(parts, sum(parts[name] for name in (COMPUTE, OVERLAPPED, COMMUNICATING, COPYING)))


def cut_host(run: Run, span: Span) -> Cut:
    """Cut the steps by whether any op of the host ran."""
    columns = [C.RANK, C.START_NS, C.DUR_NS]
    frame = run.table("host_intervals", columns=columns, where=pc.field(C.KIND) == str(HostKind.OP))
    ran = 0
    for rank, windows in _by_rank(span):
        ran += _inside(_union(frame[frame[C.RANK] == rank]), windows)
    return Cut({IN_OPS: ran, OUTSIDE: span.total_ns - ran}, ran)


def ledger(base: Cut, head: Cut, spans: tuple[Span, Span], work: tuple[int, int]) -> Wall:
    """Join the parts of both sides.

    Args:
        base: The parts of the base.
        head: The parts of the head.
        spans: What was cut.
        work: Σ of durations of the compared steps.
    """
    names = list(dict.fromkeys([*base.parts, *head.parts]))
    lines = [
        WallLine(name, MEANINGS[name], base.parts.get(name, 0), head.parts.get(name, 0)) for name in names
    ]
    total = WallLine("step", "the compared steps", spans[0].total_ns, spans[1].total_ns)
    overlap = WallLine(
        "overlap",
        "Σ of durations minus the time in which anything ran",
        work[0] - base.ran_ns,
        work[1] - head.ran_ns,
    )
    return Wall(tuple(lines), total, overlap)


def _by_rank(span: Span) -> list[tuple[int, pd.DataFrame]]:
    ranks = sorted(span.windows[C.RANK].unique().tolist())
    return [(rank, span.windows[span.windows[C.RANK] == rank]) for rank in ranks]


def _busiest(rows: pd.DataFrame) -> tuple[int, pd.DataFrame]:
    """Return the device of a rank with most work; the lower of two with equal work."""
    if rows.empty:
        return 0, rows
    sums = rows.groupby(C.DEVICE, sort=True)[C.DUR_NS].sum()
    device = int(sums.index[int(np.argmax(sums.to_numpy()))])
    return device, rows[rows[C.DEVICE] == device]


def _device_parts(rows: pd.DataFrame, windows: pd.DataFrame) -> Parts:
    kernel = rows[C.KIND].isin([str(DeviceKind.KERNEL), str(DeviceKind.GRAPH)]).to_numpy(bool)
    talks = kernel & matches(rows[C.NAME], COMMUNICATION).to_numpy(bool)
    computes = kernel & ~talks

    def within(*masks: npt.NDArray[np.bool_]) -> int:
        return _inside(_union(rows[np.logical_or.reduce(masks)]), windows)

    k, beside, all_kernels = within(computes), within(~computes), within(kernel)
    anything = within(np.ones(len(rows), bool))
    window = _length(windows)
    return {
        COMPUTE: anything - beside,
        OVERLAPPED: k + beside - anything,
        COMMUNICATING: all_kernels - k,
        COPYING: anything - all_kernels,
        IDLE: window - anything,
    }


def _union(rows: pd.DataFrame) -> Union:
    start = rows[C.START_NS].to_numpy(np.int64)
    return intervals.union(start, start + rows[C.DUR_NS].to_numpy(np.int64))


def _bounds(windows: pd.DataFrame) -> tuple[Ints, Ints]:
    return windows[C.START_NS].to_numpy(np.int64), windows[END_NS].to_numpy(np.int64)


def _inside(union: Union, windows: pd.DataFrame) -> int:
    return int(intervals.covered(union, *_bounds(windows)).sum())


def _length(windows: pd.DataFrame) -> int:
    start, end = _bounds(windows)
    return int((end - start).sum())


def totals(lines: Sequence[WallLine]) -> tuple[int, int]:
    """Sums of both sides, which are the steps.

    Example:
        >>> totals([WallLine("a", "", 1, 2), WallLine("b", "", 3, 4)])
        (4, 6)
    """
    return sum(line.a_ns for line in lines), sum(line.b_ns for line in lines)
