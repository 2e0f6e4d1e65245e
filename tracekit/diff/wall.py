"""The wall ledger: what the compared steps were filled with, exact in integer nanoseconds.

Let K be the computing kernels and opaque graphs of a device, N its communication kernels and M its copies and
memsets, as unions of intervals cut to a step. Then compute only = |K∖(N∪M)|, overlapped = |K∩(N∪M)|, exposed
communication = |N∖K|, exposed copies = |M∖(K∪N)|, and the rest is idle: launch-bound, sync and data loading
where the analysis `idle_gaps` gives that cause, other elsewhere. Of a rank with several devices the one with
most work stands for the rank. Where nothing ran on a device the step is cut into time in ops, on any thread,
and outside of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from tracekit import intervals
from tracekit.diff.idle import DATALOAD, LAUNCH_BOUND, LINES, SYNC
from tracekit.diff.ledgers import Wall, WallLine
from tracekit.kernel_names import COMMUNICATION, matches
from tracekit.run import busy
from tracekit.schema import C, DeviceKind, HostKind
from tracekit.windows import END_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pandas as pd

    from tracekit.diff.idle import IdleCauses
    from tracekit.diff.spans import Span
    from tracekit.intervals import Ints, Union
    from tracekit.run import Run

COMPUTE, OVERLAPPED, COMMUNICATING = "compute only", "overlapped", "exposed communication"
COPYING, OTHER_IDLE, IDLE = "exposed copies", "other idle", "idle"
IN_OPS, OUTSIDE = "in ops", "outside of ops"

MEANINGS = {
    COMPUTE: "a kernel that computes runs, and neither copies nor communication",
    OVERLAPPED: "a kernel that computes runs beside copies or communication",
    COMMUNICATING: "communication runs, and no kernel that computes",
    COPYING: "copies or memsets run, and no kernel",
    LAUNCH_BOUND: "the device waits for the host to launch",
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
    """Put the parts of both sides beside each other.

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
    """The device of a rank with most work; the lower one of two with as much."""
    if rows.empty:
        return 0, rows
    sums = rows.groupby(C.DEVICE, sort=True)[C.DUR_NS].sum()
    device = int(sums.index[int(np.argmax(sums.to_numpy()))])
    return device, rows[rows[C.DEVICE] == device]


def _device_parts(rows: pd.DataFrame, windows: pd.DataFrame) -> Parts:
    kernel = rows[C.KIND].isin([str(DeviceKind.KERNEL), str(DeviceKind.GRAPH)]).to_numpy(bool)
    talks = kernel & matches(rows[C.NAME], COMMUNICATION).to_numpy(bool)
    computes = kernel & ~talks

    def within(*kept: npt.NDArray[np.bool_]) -> int:
        return _inside(_union(rows[np.logical_or.reduce(kept)]), windows)

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
