"""Differences between the ranks of a job: time by rank, slowest rank by step, stragglers in collectives.

* per_rank: without the overlapped communication, the parts sum to the window.
* steps: length = the part of the step's window after the windows of earlier steps of its rank. Ranks that
  wait for each other have steps of equal length, so the rank with the longest computation is listed
  separately.
* skew: captures may begin at different points, so collectives are counted from the end; if the ranks have
  different numbers of them, only where nearly all of them end together. The clocks of hosts may differ, so
  arrival is derived from durations. A collective that is not `aligned` does not end together, or its kernels
  belong to several process groups.
* stragglers: per device, over aligned collectives (of the profiled steps, if marked): wait is at most the
  time no other kernel ran; host slack limits what mending another rank saves. The excess times are counted
  from the end of the collective before. All devices end a collective together, so these parts are of one span
  and sum to the lateness of the device.

Sources: HTA communication analysis and straggler detection; Hao et al., TorchBench, 2023, for the
breakdown.

Example:
    >>> tracekit.analyze(run, "ranks").tables["stragglers"]  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from tracekit.analysis import Analysis, ByRank, Remark, Result
from tracekit.analysis.savings import StepTotals, combine_budget, measure_steps
from tracekit.runs.run import Run
from tracekit.runs.step_windows import step_windows
from tracekit.schema import C

from ..shared.collectives import END_TOLERANCE_NS, END_TOLERANCE_SHARE
from ..shared.common import NO_STEPS, absent_device_note, duration
from .findings import RULES, findings
from .skew import RankPart, measure_rank
from .tables import TABLES, build_tables

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
MAX_LISTED = 8


@dataclass(frozen=True, kw_only=True)
class Partial:
    """Partial result of some ranks."""

    parts: dict[int, RankPart | None]  # measures by rank; None if nothing of the rank ran on a device
    spent: StepTotals  # their steps


def measure(run: Run) -> Partial:
    """Measure every rank of a run separately."""
    windows = step_windows(run)
    parts = {rank: measure_rank(run, rank, windows[windows[C.RANK] == rank]) for rank in run.ranks}
    return Partial(parts=parts, spent=measure_steps(run))


def combine(run: Run, partials: Sequence[Partial]) -> Result:
    """Compare the ranks of a run."""
    by_rank = {rank: part for partial in partials for rank, part in partial.parts.items()}
    parts = [part for part in by_rank.values() if part is not None]
    if not parts:
        return Result(notes=(absent_device_note(run),))
    tables, unmatched = build_tables(parts)
    budget = combine_budget(partial.spent for partial in partials)
    notes: list[str] = [] if budget.marked else [NO_STEPS]
    absent = [rank for rank, part in by_rank.items() if part is None]
    if absent:
        notes.append(ABSENT.format(count=len(absent), all=len(by_rank), ranks=_list(absent)))
    if sum(len(part.devices) for part in parts) < 2:
        communicates = len(parts[0].collectives) > 0
        return Result(tables, notes=(SINGLE if communicates else Remark(SINGLE), *notes))
    notes += _notes(tables, len(parts), unmatched)
    return Result(tables, findings(parts, tables, budget), tuple(notes))


def _list(names: Sequence[object]) -> str:
    return ", ".join(map(str, names[:MAX_LISTED])) + (", ..." if len(names) > MAX_LISTED else "")


def _notes(tables: dict[str, pd.DataFrame], ranks: int, unmatched: list[str]) -> list[str]:
    notes = []
    if "steps" in tables:
        partial = int((tables["steps"]["ranks"] < ranks).sum())
        notes += [UNEQUAL.format(count=partial, all=len(tables["steps"]))] if partial else []
    if unmatched:
        notes.append(UNMATCHED.format(families=_list(unmatched)))
    if "skew" not in tables:
        return notes if unmatched else [*notes, NO_COMMUNICATION]
    misaligned = int((~tables["skew"]["aligned"]).sum())
    return [*notes, *([MISALIGNED.format(count=misaligned, all=len(tables["skew"]))] if misaligned else [])]


_BY_RANK = ByRank(map=measure, combine=combine)

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
        f"{1 / END_TOLERANCE_SHARE:.0%} of the longest duration and {duration(END_TOLERANCE_NS)}, "
        "after subtracting median clock offsets, are ignored."
    ),
    tables=TABLES,
    sources=("HTA straggler detection", "TorchBench, Fig. 1 (breakdown)"),
    order=80,
    reads=("device_intervals",),
    compute=_BY_RANK.whole,
    rules=RULES,
    by_rank=_BY_RANK,
)
