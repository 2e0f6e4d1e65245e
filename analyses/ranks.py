"""How several ranks of one job differ: time by rank, slowest rank by step, who keeps the others waiting.

All times are integer nanoseconds. K are the kernels of a device, N its communication kernels (told by their
names), |X| the length of the union of X.

* per_rank: computation = |K∖N|, exposed communication = |N∖(K∖N)|, overlapped communication = |N∩(K∖N)|,
  other = copies, memsets and opaque graphs beside no kernel, idle = window − all of these; without the
  overlapped part they sum to the window. The window is the union of the rank's profiled steps, as in
  `gpu_breakdown`, or from the first start to the last end on the device where none are marked. Shares are
  over the window; computation_ratio is over the median of all devices.
* steps: length = the part of the step's window after the windows of earlier steps of its rank. Ranks that
  wait for each other have steps of one length; the one that computes longest is told apart from the slowest
  one.
* skew: the k-th communication kernel of one family and stream on each rank is taken to be one collective,
  where the ranks have equally many. Ranks end a collective together and the clocks of their hosts need not
  agree, so durations tell who came when: the rank with the shortest kernel arrived last, and each other one
  waited for the time by which its kernel is longer. Process groups are not recorded: a collective whose
  ends do not agree (within 10% of its longest duration, or 10 µs, the ranks' median clock offset taken
  away) is not `aligned` and counts no further: its kernels belong to several groups, or it is no collective
  that ends together.
* stragglers: per device, over aligned collectives (of the profiled steps, where marked): last = it alone
  had the shortest kernel; late = how much later than the first it came; wait = duration − the shortest one,
  as far as no other kernel ran meanwhile; caused = Σ over collectives in which it was last of the mean wait
  of the others; gain = Σ of what would be saved had it come with the next to last; excess = its time over
  the window minus the median of the other devices'.

Thresholds: a straggler is last in at least 50% of at least 10 collectives, causes two thirds of all
waiting (of two equal ranks each is last half of the time), and the others wait 3% of a step for it. Its
cause is named where excess computation, idle or copying explains half of the waiting. Imbalance counts
above 5% of the mean computation and 1% of a step; ranks of equal work differ by 1 to 3%.

Sources: HTA communication analysis and straggler detection; Hao et al., TorchBench, 2023, for the
breakdown.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "ranks")  # doctest: +SKIP
    >>> result.tables["stragglers"]  # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.analysis import Analysis, ByRank, Column, Remark, Result, TableSpec
from tracekit.savings import Spent, budget_of, spent
from tracekit.schema import C
from tracekit.windows import step_windows

from ._ranks.advice import RULES, findings
from ._ranks.part import Part, part
from ._ranks.tables import combine
from ._shared.common import DEVICE, NO_STEPS, RANK, STEP, absent_device_note

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from tracekit.run import Run

SINGLE = (
    "one rank in this run, so there is nothing to compare: import the traces of all ranks together "
    "(`tracekit import rank*.json`, or their folder)"
)
UNMATCHED = (
    "these communication kernels could not be matched between ranks, which have different numbers of them "
    "(several process groups, or captures of different lengths): {families}"
)
NO_COMMUNICATION = "no communication kernels in this capture, so who waits for whom is unknown"
ABSENT = "nothing was recorded on a device for {count} of {all} ranks: {ranks}"
MISALIGNED = (
    "{count:,} of {all:,} matched collectives do not end together and count for no straggler: ranks of "
    "several process groups, or a part of the ranks of a job"
)
UNEQUAL = "the ranks have different steps: {count} of {all} steps are not in every rank"
_LISTED = 8


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What is kept of some ranks.

    Attributes:
        parts: Each of them by rank; None where nothing of it ran on a device.
        spent: Their steps.
    """

    parts: dict[int, Part | None]
    spent: Spent


def keep(run: Run) -> Kept:
    """Measure every rank of a run, each alone."""
    windows = step_windows(run)
    found = {rank: part(run, rank, windows[windows[C.RANK] == rank]) for rank in run.ranks}
    return Kept(parts=found, spent=spent(run))


def compare(run: Run, kept: Sequence[Kept]) -> Result:
    """Compare the ranks of a run."""
    found = {rank: one for some in kept for rank, one in some.parts.items()}
    parts = [one for one in found.values() if one is not None]
    if not parts:
        return Result(notes=(absent_device_note(run),))
    tables, unmatched = combine(parts)
    against = budget_of(some.spent for some in kept)
    notes: list[str] = [] if against.marked else [NO_STEPS]
    notes += _absent(found)
    if len(parts) < 2:
        talks = len(parts[0].collectives) > 0
        return Result(tables, notes=(SINGLE if talks else Remark(SINGLE), *notes))
    notes += _notes(tables, parts, unmatched)
    return Result(tables, findings(parts, tables, against), tuple(notes))


def _absent(found: dict[int, Part | None]) -> list[str]:
    ranks = [rank for rank, one in found.items() if one is None]
    if not ranks:
        return []
    listed = ", ".join(str(rank) for rank in ranks[:_LISTED]) + (", ..." if len(ranks) > _LISTED else "")
    return [ABSENT.format(count=len(ranks), all=len(found), ranks=listed)]


def _notes(tables: dict[str, pd.DataFrame], parts: list[Part], unmatched: list[str]) -> list[str]:
    notes = []
    if "steps" in tables:
        partial = int((tables["steps"]["ranks"] < len(parts)).sum())
        notes += [UNEQUAL.format(count=partial, all=len(tables["steps"]))] if partial else []
    if unmatched:
        listed = ", ".join(unmatched[:_LISTED]) + (", ..." if len(unmatched) > _LISTED else "")
        notes.append(UNMATCHED.format(families=listed))
    if "skew" not in tables:
        return notes if unmatched else [*notes, NO_COMMUNICATION]
    apart = int((~tables["skew"]["aligned"]).sum())
    return [*notes, *([MISALIGNED.format(count=apart, all=len(tables["skew"]))] if apart else [])]


_BY_RANK = ByRank(map=keep, combine=compare)
_LAST = "it alone had the shortest kernel"

ANALYSIS = Analysis(
    name="ranks",
    title="Ranks",
    question="How do the ranks of a job differ, and which one keeps the others waiting?",
    definition=(
        "Per device over the union of its profiled steps (the capture where none are marked): computation = "
        "|K∖N|, exposed communication = |N∖(K∖N)|, other = copies, memsets and opaque graphs beside no "
        "kernel, idle = the rest, with K kernels and N communication kernels. The k-th communication kernels "
        "of one family and stream are one collective; its ranks end it together, so the shortest kernel came "
        "last and wait = duration − the shortest, which needs no common clock. Collectives whose ends differ "
        "by over 10% of the longest duration and 10 µs, median clock offsets taken away, do not count."
    ),
    tables=(
        TableSpec(
            "per_rank",
            "Time by rank and device",
            (
                RANK,
                DEVICE,
                Column("step_median_ns", "ns", "median length of its steps; missing where none are marked"),
                Column("computation_ns", "ns", "|K∖N|: a kernel other than communication runs"),
                Column("communication_exposed_ns", "ns", "|N∖(K∖N)|: communication no other kernel hides"),
                Column("idle_ns", "ns", "nothing runs"),
                Column("computation_ratio", "×", "computation over the median of all devices"),
                Column("communication_exposed_share", "share", "exposed communication over window"),
                Column("idle_share", "share", "idle over window"),
                Column("computation_share", "share", "computation over window"),
                Column("communication_overlapped_ns", "ns", "communication hidden behind other kernels"),
                Column("other_ns", "ns", "copies, memsets and opaque graphs beside no kernel"),
                Column("window_ns", "ns", "union of the profiled steps, or first start to last end"),
            ),
        ),
        TableSpec(
            "stragglers",
            "Who was last to arrive in collectives",
            (
                RANK,
                DEVICE,
                Column("last_share", "share", "of the collectives it was last in"),
                Column("caused_ns", "ns", "Σ of the mean wait of the others where it was last"),
                Column("waited_ns", "ns", "Σ of its own waits, exposed part"),
                Column("mean_late_ns", "ns", "mean of how much later than the first it came"),
                Column("last_count", "count", f"collectives in which {_LAST}"),
                Column("collectives", "count", "collectives that count"),
                Column("gain_ns", "ns", "Σ of what would be saved had it come with the next to last"),
                Column("excess_computation_ns", "ns", "computation minus the median of the other devices"),
                Column("excess_idle_ns", "ns", "idle minus the median of the other devices"),
                Column("excess_other_ns", "ns", "copies and the like minus the median of the other devices"),
            ),
        ),
        TableSpec(
            "steps",
            "Ranks in each step",
            (
                STEP,
                Column("slowest_rank", "", "rank with the longest step, the lowest of several"),
                Column("slowest_ns", "ns", "its length"),
                Column("median_ns", "ns", "lower median of the ranks"),
                Column("fastest_ns", "ns", "shortest"),
                Column("fastest_rank", "", "rank with the shortest step"),
                Column("spread_ns", "ns", "longest minus shortest"),
                Column("excess_ns", "ns", "longest minus median"),
                Column("busiest_rank", "", "rank with the longest computation in the step"),
                Column("computation_spread_ns", "ns", "longest minus shortest computation"),
                Column("ranks", "count", "ranks that have the step"),
            ),
        ),
        TableSpec(
            "skew",
            "Every matched collective",
            (
                Column("collective", "", "kind of collective"),
                Column("number", "", "which one of its family and stream, from 0"),
                STEP,
                Column("last_rank", "", f"rank that came last: {_LAST}; missing where several had"),
                Column("wait_ns", "ns", "Σ over ranks of duration minus the shortest"),
                Column("shortest_ns", "ns", "duration on the rank that came last"),
                Column("next_ns", "ns", "duration on the next to last"),
                Column("longest_ns", "ns", "duration on the rank that came first"),
                Column("ranks", "count", "devices taking part"),
                Column("end_spread_ns", "ns", "spread of its ends, clock offsets taken away"),
                Column("aligned", "", "whether it ends together on all, so that it counts"),
                Column("family", "", "family of its kernels"),
            ),
        ),
    ),
    sources=("HTA straggler detection", "TorchBench, Fig. 1 (breakdown)"),
    order=80,
    compute=_BY_RANK.whole,
    rules=RULES,
    by_rank=_BY_RANK,
)
