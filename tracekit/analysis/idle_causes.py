"""Causes of idle time of a device, the label of each, and what the host did meanwhile in words.

Example:
    >>> IdleCause.DATALOAD.label
    'data loading'
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache, cached_property
from typing import TYPE_CHECKING

from tracekit.analysis.kernel_names import TITLE_WIDTH
from tracekit.errors import clean
from tracekit.runs.text import human, shorten
from tracekit.schema import C

if TYPE_CHECKING:
    import pandas as pd


class IdleCause(StrEnum):
    """Cause of an idle interval, as the analysis `idle_gaps` decides it."""

    LAUNCH_BOUND = "launch_bound"
    SYNC = "sync"
    DATALOAD = "dataload"
    KERNEL_TO_KERNEL = "kernel_to_kernel"
    STREAM_DEPENDENCY = "stream_dependency"
    SUBMISSION = "submission"
    PROFILER = "profiler"
    UNKNOWN = "unknown"
    HOST_WORK = "host_work"
    SLOW_CALL = "slow_call"
    FIRST_CALL = "first_call"
    STALL = "stall"

    @property
    def label(self) -> str:
        """The cause in words."""
        return _LABELS[self]


_LABELS = {
    IdleCause.LAUNCH_BOUND: "launch-bound",
    IdleCause.HOST_WORK: "CPU busy outside launches",
    IdleCause.SLOW_CALL: "slow runtime calls",
    IdleCause.FIRST_CALL: "first calls of ops",
    IdleCause.STALL: "stalls of the CPU",
    IdleCause.SYNC: "synchronization",
    IdleCause.DATALOAD: "data loading",
    IdleCause.KERNEL_TO_KERNEL: "between kernels",
    IdleCause.STREAM_DEPENDENCY: "stream dependency",
    IdleCause.SUBMISSION: "late submission",
    IdleCause.PROFILER: "profiler overhead",
    IdleCause.UNKNOWN: "unknown cause",
}

HOST_LAUNCHES = (
    IdleCause.LAUNCH_BOUND,
    IdleCause.HOST_WORK,
    IdleCause.SLOW_CALL,
    IdleCause.FIRST_CALL,
    IdleCause.STALL,
)
"""The host launched late, for one of these reasons."""
QUEUED = (IdleCause.KERNEL_TO_KERNEL, IdleCause.STREAM_DEPENDENCY, IdleCause.SUBMISSION)
"""The work was queued on the device and did not start."""
CAUSES = tuple(map(str, IdleCause))
MANAGED = "(managed memory used by the CPU)"
"""Label of idle time that ends as the CPU touches managed memory, which moves its pages to the host."""
READS = r"^(?:f?getc|getchar|f?gets|getline|p?readv?(?:64)?|fread|scanf)$"
"""Calls of the operating system that read files or input."""


def label(cause: str) -> str:
    """Return the label of a cause, or its name if it is not one of these.

    Example:
        >>> label("sync"), label("another")
        ('synchronization', 'another')
    """
    return IdleCause(cause).label if cause in CAUSES else cause


OUTSIDE = "outside of recorded ops"
OF_IT = "of it"
"""Words for what a share is of, in the names of what the host did."""
COVERED_NS, CALL_NS = "covered_ns", "call_ns"
"""For how long the row that names a gap runs in it, all of the gap where no row of the host covers it; and
the time in it of the calls named as its call."""
"""Where the host's work is of which nothing is recorded."""
MIN_OP_SHARE = 0.25
"""Share of the idle time before late launches from which the op or call with most of it is named."""
_WORK = tuple(cause for cause in HOST_LAUNCHES if cause != IdleCause.LAUNCH_BOUND)


class IdleTables:
    """The tables of `idle_gaps`, of the devices in question.

    Attributes:
        read: Returns those of a name.
    """

    def __init__(self, read: Callable[[str], list[pd.DataFrame]]) -> None:
        self.read = cache(read)

    @cached_property
    def by_op(self) -> list[tuple[dict[tuple[str, str], tuple[int, int]], Counter[str]]]:
        """Return the recurring idle time, and the part in which an op runs, by op and cause; longest gaps.

        For each table that names ops, ordered by op.
        """
        tables = []
        for rows in self.read("by_op") + self.read("before_work") + self.read("after_work"):
            recurring = _recurring(rows)
            covered = rows[COVERED_NS].clip(upper=recurring).fillna(0) if COVERED_NS in rows else recurring
            gaps = rows.get("longest_ns", rows.get(C.DUR_NS, recurring))
            columns = (rows["op"], rows["cause"], recurring, covered, gaps)
            lengths: dict[tuple[str, str], tuple[int, int]] = {}
            longest: Counter[str] = Counter()
            for op, cause, ns, covered_ns, gap_ns in zip(*map(list, columns), strict=True):
                if not isinstance(op, str):
                    continue  # none is named
                all_ns, part_ns = lengths.get((op, cause), (0, 0))
                lengths[op, cause] = all_ns + int(ns), part_ns + int(covered_ns)
                if ns >= gap_ns:
                    longest[op] = max(longest[op], int(gap_ns))
            tables.append((dict(sorted(lengths.items())), longest))
        return tables


def name_host_work(idle: IdleTables, late_ns: int) -> tuple[str, int, str]:
    """Return in what most of the host's work in idle time is, in words; empty if in several ops.

    Of `late_ns`, which is due to late launches, the work is named a part where it is not most.

    Returns:
        The words; the length of the one gap that is most of the work if nothing was recorded there; and the
        words for the rest without that gap.
    """
    work, longest = _idle_by_op(idle, _WORK)
    ((largest, largest_ns),) = work.most_common(1) or [("", 0)]
    if 2 * largest_ns <= work.total():
        return "", 0, ""
    late_ns = max(late_ns, work.total())
    if largest == MANAGED:
        return f"{_how_much(largest_ns, late_ns)} with managed memory used by the CPU", 0, ""
    if largest.startswith("("):
        gaps = [rows[rows["op"] == largest] for rows in idle.read("by_op")]
        sampled = any("source_line" in rows and (rows["source_line"] != "").any() for rows in gaps)
        gap_ns, outside = longest[largest], "outside of ops" if sampled else OUTSIDE
        words = f"{_how_much(largest_ns, late_ns)} {outside}{_name_gaps(idle, gap_ns)}"
        if 2 * gap_ns <= work.total():
            return words, 0, ""
        rest_ns = largest_ns - gap_ns
        is_most = 2 * rest_ns > work.total() - gap_ns
        return words, gap_ns, f"{_how_much(rest_ns, late_ns - gap_ns)} {outside}" if is_most else ""
    if re.search(READS, largest):
        return f"{_how_much(largest_ns, late_ns)} reading of files or input in {largest}", 0, ""
    of_cause = {cause: _idle_by_op(idle, (cause,))[0][largest] for cause in _WORK}
    cause = max(of_cause, key=lambda one: of_cause[one])
    covered_ns, what = _idle_by_op(idle, _WORK, covered=True)[0][largest], f"{cause.label} in"
    if cause == IdleCause.FIRST_CALL:
        what = "first calls of"
    elif cause == IdleCause.SLOW_CALL and (calls := _slow_calls(idle, largest).most_common(1)):
        ((call, covered_ns),) = calls
        what = f"{_short(call)} called in"
    return f"{_how_much(covered_ns, late_ns)} {what} {_short(largest)}", 0, ""


def _how_much(part_ns: int, whole_ns: int) -> str:
    return ", mostly" if 2 * part_ns > whole_ns else f", {human(part_ns / whole_ns, 'share')} {OF_IT}"


def name_latest(idle: IdleTables, causes: Sequence[IdleCause], total_ns: int) -> str:
    """Return the op or slow call with most idle time of some causes and its share; empty if it is small.

    The share is of `total_ns`, which may be longer than the time of the causes.
    """
    total_ns = max(total_ns, _idle_by_op(idle, causes)[0].total())
    work, _ = _idle_by_op(idle, [cause for cause in causes if cause != IdleCause.SLOW_CALL], covered=True)
    if IdleCause.SLOW_CALL in causes:
        work.update(_slow_calls(idle))
    named = {op: ns for op, ns in work.items() if op and not op.startswith("(")}
    largest = max(named, key=lambda op: named[op], default="")
    if not named.get(largest) or named[largest] < MIN_OP_SHARE * total_ns:
        return ""
    return f", {human(named[largest] / total_ns, 'share')} {OF_IT} in {_short(largest)}"


def _idle_by_op(
    idle: IdleTables, causes: Sequence[IdleCause], *, covered: bool = False
) -> tuple[Counter[str], Counter[str]]:
    """Return the recurring idle time of some causes by op, or the part in which it runs, and longest gaps."""
    work: Counter[str] = Counter()
    longest: Counter[str] = Counter()
    for lengths, gaps in idle.by_op:
        for (op, cause), parts in lengths.items():
            if cause in causes:
                work[op] += parts[covered]
        longest |= gaps
    return work, longest


def _slow_calls(idle: IdleTables, op: str = "") -> Counter[str]:
    """Return the recurring idle time of slow runtime calls by call, in one op or in all."""
    calls: Counter[str] = Counter()
    for rows in idle.read("gaps") + idle.read("before_work"):
        chosen = (rows["cause"] == IdleCause.SLOW_CALL) & ((rows["op"] == op) | (not op))
        if not chosen.any():
            continue
        recurring = _recurring(rows)
        called = rows[CALL_NS].clip(upper=recurring) if CALL_NS in rows else recurring
        sums = called[chosen].groupby(rows["call"]).sum()
        calls.update({str(call): int(total) for call, total in sums.items()})
    return calls


def _recurring(rows: pd.DataFrame) -> pd.Series[int]:
    """Return the time of each row of a table of idle time that is no start-up."""
    return rows["recurring_ns"] if "recurring_ns" in rows else rows[C.DUR_NS] - rows["start_up_ns"]


def _name_gaps(idle: IdleTables, longest_ns: int) -> str:
    """Name the one gap outside of ops, or the two, in which the host is late for most of the time."""
    late = _idle_by_op(idle, HOST_LAUNCHES)[0].total()
    if 2 * longest_ns > late:
        return f", in one gap of {human(longest_ns, 'ns')}"
    for rows in idle.read("gaps"):
        is_outside = rows["cause"].isin(_WORK) & rows["op"].str.startswith("(")
        lengths = rows.loc[is_outside, "counted_ns"].nlargest(2)
        if longest_ns in lengths.tolist() and 2 * lengths.sum() > late:
            return f", in gaps of {' and '.join(human(int(ns), 'ns') for ns in lengths)}"
    return ""


def _short(name: str) -> str:
    return shorten(clean(name), TITLE_WIDTH)
