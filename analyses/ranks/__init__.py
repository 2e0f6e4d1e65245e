"""Differences between the ranks of a job: time by rank, slowest rank by step, stragglers in collectives.

* per_rank: without the overlapped communication, the parts sum to the window: the union of the rank's
  profiled steps as in `gpu_breakdown`, or first start to last end on the device if no steps are marked.
* steps: length = the part of the step's window after the windows of earlier steps of its rank. Ranks that
  wait for each other have steps of equal length, so the rank with the longest computation is listed
  separately.
* skew: the k-th last communication kernel of one family and stream on each rank is taken to be one
  collective, since captures may begin at different points; if the ranks have different numbers of them, only
  where nearly all of them end together. All ranks end a collective together, and the clocks of hosts may
  differ, so arrival is derived from durations: the shortest kernel arrived last, and every other rank waited
  for the difference. Process groups are not recorded: a collective whose ends disagree (by more than 10% of
  its longest duration and 200 µs, after subtracting the ranks' median clock offset) is not `aligned` and is
  ignored: its kernels belong to several groups, or it does not end together.
* stragglers: per device, over aligned collectives (of the profiled steps, if marked): late = time after the
  first arrival; wait = duration − shortest duration, at most the time no other kernel ran; caused = Σ of the
  mean wait of the others over collectives in which it was last; gain = Σ of the saving if it had arrived with
  the next to last, without profiler overhead; host slack = how much earlier its host could have launched its
  last collective, which limits what mending another rank saves; excess = what it did longer than the mean of
  the others between the end of the collective before and its arrival, over the collectives in which it was
  last. All devices end a collective together, so these parts are of one span and sum to its lateness.

A straggler's cause is named if excess computation, idle time or copies explain half of the waiting.

Sources: HTA communication analysis and straggler detection; Hao et al., TorchBench, 2023, for the
breakdown.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "ranks")  # doctest: +SKIP
    >>> result.tables["stragglers"]  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from tracekit.analysis import Analysis, ByRank, Column, Remark, Result, TableSpec
from tracekit.analysis.savings import Spent, budget_of, spent
from tracekit.runs.run import Run
from tracekit.runs.step_windows import step_windows
from tracekit.schema import C

from ..shared.common import DEVICE, NO_STEPS, RANK, STEP, absent_device_note
from .advice import RULES, combine, findings
from .hosts import SLACK_NS
from .skew import Part, part

SINGLE = (
    "only one rank in this run: import the traces of all ranks together (`tracekit import rank*.json`, or "
    "their folder) to compare them"
)
UNMATCHED = (
    "communication kernels that could not be matched between ranks, because their numbers differ (several "
    "process groups, or captures of different lengths): {families}"
)
NO_COMMUNICATION = "no communication kernels in this capture, so wait times are unavailable"
ABSENT = "no device activity was recorded for {count} of {all} ranks: {ranks}"
MISALIGNED = (
    "{count:,} of {all:,} matched collectives do not end together and are ignored for stragglers: several "
    "process groups, or missing ranks of the job"
)
UNEQUAL = "the ranks have different steps: {count} of {all} steps are not in every rank"
_LISTED = 8


@dataclass(frozen=True, kw_only=True)
class Partial:
    """Partial result of some ranks.

    Attributes:
        parts: Measures by rank; None if nothing of the rank ran on a device.
        spent: Their steps.
    """

    parts: dict[int, Part | None]
    spent: Spent


def measure(run: Run) -> Partial:
    """Measure every rank of a run separately."""
    windows = step_windows(run)
    found = {rank: part(run, rank, windows[windows[C.RANK] == rank]) for rank in run.ranks}
    return Partial(parts=found, spent=spent(run))


def compare(run: Run, partials: Sequence[Partial]) -> Result:
    """Compare the ranks of a run."""
    found = {rank: one for some in partials for rank, one in some.parts.items()}
    parts = [one for one in found.values() if one is not None]
    if not parts:
        return Result(notes=(absent_device_note(run),))
    tables, unmatched = combine(parts)
    budget = budget_of(some.spent for some in partials)
    notes: list[str] = [] if budget.marked else [NO_STEPS]
    notes += _absent(found)
    if sum(len(one.devices) for one in parts) < 2:
        communicates = len(parts[0].collectives) > 0
        return Result(tables, notes=(SINGLE if communicates else Remark(SINGLE), *notes))
    notes += _notes(tables, parts, unmatched)
    return Result(tables, findings(parts, tables, budget), tuple(notes))


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
    misaligned = int((~tables["skew"]["aligned"]).sum())
    return [*notes, *([MISALIGNED.format(count=misaligned, all=len(tables["skew"]))] if misaligned else [])]


_BY_RANK = ByRank(map=measure, combine=compare)
_BEFORE = "before those collectives, minus the mean of the others"
_LAST = "it arrived last (only one with the shortest kernel)"

ANALYSIS = Analysis(
    name="ranks",
    title="Ranks",
    question="How do the ranks of a job differ, and which one do the others wait for?",
    definition=(
        "Per device over the union of its profiled steps (the capture if none are marked), with K kernels "
        "and N communication kernels (identified by name): computation = |K∖N|, exposed communication = "
        "|N∖(K∖N)|, overlapped communication = |N∩(K∖N)|, other = copies, memsets and opaque graphs without "
        "a concurrent kernel, idle = the rest. The k-th last communication kernels of one family and stream "
        "are one collective; all ranks end it together, so the shortest kernel arrived last and wait = "
        "duration − the shortest, which needs no common clock. Collectives whose ends differ by more than "
        "10% of the longest duration and 200 µs, after subtracting median clock offsets, are ignored."
    ),
    tables=(
        TableSpec(
            "per_rank",
            "Time by rank and device",
            (
                RANK,
                DEVICE,
                Column("step_median_ns", "ns", "median length of its steps; missing if none are marked"),
                Column("computation_ns", "ns", "|K∖N|: a kernel other than communication runs"),
                Column("communication_exposed_ns", "ns", "|N∖(K∖N)|: exposed communication"),
                Column("idle_ns", "ns", "nothing runs"),
                Column("computation_ratio", "×", "computation over the median of all devices"),
                Column("communication_exposed_share", "share", "exposed communication over window"),
                Column("idle_share", "share", "idle over window"),
                Column("computation_share", "share", "computation over window"),
                Column("communication_overlapped_ns", "ns", "communication overlapped with other kernels"),
                Column("other_ns", "ns", "copies, memsets and opaque graphs without a concurrent kernel"),
                Column("window_ns", "ns", "union of the profiled steps, or first start to last end"),
            ),
        ),
        TableSpec(
            "stragglers",
            "Last arrivals in collectives",
            (
                RANK,
                DEVICE,
                Column("last_share", "share", "share of collectives in which it arrived last"),
                Column("caused_ns", "ns", "Σ of the mean wait of the others in which it arrived last"),
                Column("waited_ns", "ns", "Σ of its own waits, exposed part"),
                Column("mean_late_ns", "ns", "mean arrival after the first rank"),
                Column("last_count", "count", f"collectives in which {_LAST}"),
                Column("collectives", "count", "aligned collectives"),
                Column(
                    "gain_ns",
                    "ns",
                    "Σ of the saving if it had arrived with the next to last, without profiler overhead",
                ),
                Column(
                    SLACK_NS,
                    "ns",
                    "how much earlier it could start its last collective, as far as its host allows: arrival "
                    "of the last rank minus its launch, plus its host's waits for the device since the "
                    "first; missing if unknown",
                ),
                Column("excess_computation_ns", "ns", f"computation {_BEFORE}"),
                Column("excess_idle_ns", "ns", f"idle time {_BEFORE}"),
                Column("excess_other_ns", "ns", f"copies and the like {_BEFORE}"),
            ),
        ),
        TableSpec(
            "steps",
            "Ranks in each step",
            (
                STEP,
                Column("slowest_rank", "", "rank with the longest step; the lowest rank of several"),
                Column("slowest_ns", "ns", "longest step"),
                Column("median_ns", "ns", "lower median of the ranks"),
                Column("fastest_ns", "ns", "shortest step"),
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
                Column("number", "", "index within its family and stream, from 0"),
                STEP,
                Column(
                    "last_rank", "", "rank that arrived last; missing if several have the shortest kernel"
                ),
                Column("wait_ns", "ns", "Σ over ranks of duration minus the shortest"),
                Column("shortest_ns", "ns", "duration on the rank that arrived last"),
                Column("next_ns", "ns", "duration on the rank that arrived next to last"),
                Column("longest_ns", "ns", "duration on the rank that arrived first"),
                Column("ranks", "count", "participating devices"),
                Column("end_spread_ns", "ns", "spread of its ends, after subtracting clock offsets"),
                Column("aligned", "", "whether it ends together on all ranks; others are ignored"),
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
