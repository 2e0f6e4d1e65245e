"""Estimate the saving of a finding, and its severity.

A saving is per step: the total over the run divided by the number of profiled steps of all ranks. Where no
steps are marked the whole capture of a rank counts as one step, and the finding says so.

Severity follows from the saving's share of a step: high from 10%, warn from 3%, else info. Below 1% a rule
stays silent unless it says otherwise: two runs of one program differ by about that much (TorchBench alarms at
7%).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.analysis import Basis, Bottleneck, Finding, Rule, Severity
from tracekit.runs import rank_view
from tracekit.runs.run import Run, busy
from tracekit.runs.text import human
from tracekit.schema import C, DeviceKind

if TYPE_CHECKING:
    import pandas as pd


HIGH_SHARE = 0.10
WARN_SHARE = 0.03
MIN_SHARE = 0.01
MIN_ASIDE_SHARE = 0.1
"""Share of the steps, or of the capture, from which edges and marked warm-up do not count."""
MIN_EVENTS = 5
"""Kernels and copies of a rank, or of one without any what its CPU did, below which nothing is certain."""
MIN_ON_HOST = 20
"""Ops, ranges and calls of a rank with which one kernel or copy less is enough."""
EXPLAINS_IDLE = "idle_gaps"
"""The analysis that explains all idle time, and knows what of it is an edge."""
CONFIDENT = 0.9
"""Confidence of an observed cause; a likely explanation has less."""

TRIALS = Path(".try", "measured.jsonl")
"""File of a store, in its local folder, with a `Trial` per line."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Effect of a change on the step time of a program, measured by `tracekit try`."""

    run: str  # run of the unchanged program
    configuration: str  # hash of its fingerprint
    created_at: str  # when it was measured
    change: str  # name of the change
    status: str  # what is known of it, such as "helps" or "no effect"
    effect: str  # the change of the step time with its 95% interval, as text
    ratio: float  # step time with the change over that of the unchanged program
    ci95: tuple[float, float] | None  # 95% interval of the ratio; None if there is none
    # share of the step that each finding it answers says is saved, by code of the rule; 0 if the finding has
    # no saving
    predicted: dict[str, float]
    code: str  # what to write in the program
    changed_run: str = ""  # a run with the change; empty if none was kept

    @property
    def saved(self) -> float:
        """Measured share of the step that it saves, negative if it is slower."""
        return 1 - self.ratio

    @property
    def text(self) -> str:
        """Describe it in one line."""
        effect = f", step time {self.effect}" if self.effect else ""
        return f"tried `{self.change}`: {self.status}{effect}"


@dataclass(frozen=True)
class Ranked:
    """Finding with what its place among others depends on; `findings.by_saving` orders them."""

    analysis: str  # name of the analysis
    finding: Finding  # what it found
    share_of_step: float | None  # its saving over the mean step; None without a saving
    bound: Bottleneck | None = None  # what its time is spent on, as its rule says
    measured: tuple[Trial, ...] = ()  # trials of changes that it advises
    is_refuted: bool = False  # whether trials on several programs of the store found its rule to save nothing

    @property
    def codes(self) -> set[str]:
        """Codes of its rule and of those of its remedies."""
        return {self.finding.code, *(remedy.code for remedy in self.finding.remedies)}


@dataclass(frozen=True)
class Budget:
    """Reference of savings: the time per step, or of the capture."""

    steps: int  # profiled steps of all ranks; one per rank where none are marked
    # mean time of a step: the union of a rank's windows over their number; the capture where none are marked.
    # Without edges and marked warm-up where these are a large part of it
    step_ns: int
    marked: bool  # whether steps are marked
    aside_ns: int = field(default=0, repr=False)  # time of a step that is not in `step_ns`
    # whether too little is recorded for advice: every finding is information then
    is_small: bool = field(default=False, repr=False)
    # time of the first step of a rank before its window, in which devices ran earlier work
    earlier_ns: int = field(default=0, repr=False)

    def per_step(self, total_ns: int) -> int:
        """A total over the run as an amount per step.

        Example:
            >>> Budget(steps=4, step_ns=1_000, marked=True).per_step(800)
            200
        """
        return int(total_ns) // self.steps

    def share(self, total_ns: int) -> float:
        """Return a total over the run as a share of the time of all steps; 0 without steps."""
        return int(total_ns) / (self.steps * self.step_ns) if self.step_ns else 0.0

    def count(self, number: int, noun: str) -> str:
        """Return a number over the run as that of a step, or of all steps if it is smaller than theirs.

        Example:
            >>> budget = Budget(steps=3, step_ns=1_000, marked=True)
            >>> budget.count(2_487, "gap"), budget.count(2, "gap"), budget.count(3, "gap")
            ('829 gaps', '2 gaps in 3 steps', '1 gap')
        """
        per_step = round(number / self.steps) if number >= self.steps else number
        plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
        text = f"{per_step:,} {noun if per_step == 1 else plural}"
        return f"{text} in {self.steps:,} steps" if self.marked and number < self.steps else text

    def describe(self, total_ns: int) -> str:
        """Return a total over the run as a share and an amount.

        Example:
            >>> Budget(steps=4, step_ns=1_000, marked=True).describe(800)
            '20.0% of the steps: 200 ns per step'
        """
        of = "steps" if self.marked else "capture"
        share, amount = human(self.share(total_ns), "share"), human(self.per_step(total_ns), "ns")
        return f"{share} of the {of}: {amount} {self.per}"

    def matters(self, total_ns: int, *, least: float = MIN_SHARE) -> bool:
        """Whether a total over the run is worth a finding: at least this share of all steps."""
        return total_ns > 0 and self.share(total_ns) >= least

    def severity(self, total_ns: int) -> Severity:
        """Return the severity of a total over the run.

        Example:
            >>> Budget(steps=4, step_ns=1_000, marked=True).severity(800)
            <Severity.HIGH: 'high'>
        """
        return Severity.INFO if self.is_small else severity_of(self.share(total_ns))

    def finding(
        self,
        rule: Rule,
        saving_ns: int | None,
        title: str,
        advice: str,
        how: str = "",
        *,
        basis: Basis = Basis.ESTIMATED,
        confidence: float = CONFIDENT,
        evidence: dict[str, list[int]] | None = None,
    ) -> Finding:
        """Return the finding of a rule, with the severity that follows from its saving.

        Args:
            rule: The rule.
            saving_ns: Its saving over the run; None where no number can be given: then it is information.
            title: What is the case, in one line.
            advice: What to change.
            how: How the saving was worked out.
            basis: Whether it was measured or estimated.
            confidence: From 0 to 1.
            evidence: Rows of the run's tables that show it.
        """
        severity = Severity.INFO if saving_ns is None else self.severity(saving_ns)
        per_step = None if saving_ns is None else self.per_step(saving_ns)
        based_on = None if saving_ns is None else basis
        return Finding(
            rule.code, severity, title, advice, per_step, based_on, how, confidence, evidence or {}
        )

    @property
    def per(self) -> str:
        """Return the unit of a per-step number for the end of a sentence."""
        return "per step" if self.marked else "per capture"


def severity_of(share: float) -> Severity:
    """Return the severity of a share of the steps."""
    if share >= HIGH_SHARE:
        return Severity.HIGH
    return Severity.WARN if share >= WARN_SHARE else Severity.INFO


@dataclass(frozen=True, kw_only=True)
class StepTotals:
    """The steps of some ranks, so that the budget of a run follows from those of its ranks."""

    steps: int  # how many are profiled
    stepped_ns: int  # time within them: the union of the windows of each rank, summed over ranks
    on_device_ns: tuple[int, ...] = ()  # extent of what was recorded on devices, of each rank that has any
    # extent of what was recorded on the host, of each rank with nothing on a device
    on_host_ns: tuple[int, ...] = ()
    # part of the steps, or of what was recorded on devices, that is an edge or marked warm-up
    aside_ns: int = 0
    is_small: bool = False  # whether each rank has fewer than `MIN_EVENTS`, and no opaque graph
    earlier_ns: int = 0  # time of the first steps before their windows, in which devices ran earlier work


def measure_steps(run: Run) -> StepTotals:
    """The steps of a run of one rank, or of few."""
    return run.compute_once(_measure_steps)


def _measure_steps(run: Run) -> StepTotals:
    from tracekit.runs.step_windows import HOST_START_NS, after_warm_up, step_windows, with_device_work

    windows, frame = step_windows(run), busy(run, [C.RANK, C.START_NS, C.DUR_NS, C.KIND])
    is_small = _is_small(run, frame)
    if len(windows):
        windows = with_device_work(windows, frame)
        total = sum(_sum_windows(of_rank) for _, of_rank in windows.groupby(C.RANK))
        aside_ns = _aside_ns(run, windows, frame, total)
        starts = windows[[C.START_NS, HOST_START_NS]].groupby(windows[C.RANK]).min()
        return StepTotals(
            steps=len(windows),
            stepped_ns=total,
            aside_ns=aside_ns,
            is_small=is_small,
            earlier_ns=int((starts[C.START_NS] - starts[HOST_START_NS]).sum()),
        )
    if len(frame):
        frame = after_warm_up(run, frame)
        lengths = _extents(frame)
        aside_ns = _aside_ns(run, windows, frame, sum(lengths))
        return StepTotals(steps=0, stepped_ns=0, on_device_ns=lengths, aside_ns=aside_ns, is_small=is_small)
    columns = [C.RANK, C.START_NS, C.DUR_NS]
    lengths = _extents(run.table("host_intervals", columns=columns))
    return StepTotals(steps=0, stepped_ns=0, on_host_ns=lengths, is_small=is_small)


def is_few(on_device: int, on_host: int) -> bool:
    """Whether too little is recorded of a rank for a verdict or for advice.

    Args:
        on_device: Number of kernels, copies and memsets.
        on_host: Number of ops, ranges and calls of its CPU.

    Example:
        >>> is_few(5, 0), is_few(4, 19), is_few(4, 20), is_few(3, 1_000), is_few(0, 5)
        (False, True, False, True, False)
    """
    if not on_device:
        return on_host < MIN_EVENTS
    return on_device < MIN_EVENTS - (on_host >= MIN_ON_HOST)


def _is_small(run: Run, frame: pd.DataFrame) -> bool:
    """Whether too little is profiled of each rank for advice; a run without a profile is none of these."""
    on_device = frame.groupby(C.RANK).size().to_dict()
    if max(on_device.values(), default=0) >= MIN_EVENTS or (frame[C.KIND] == DeviceKind.GRAPH).any():
        return False
    on_host = run.table("host_intervals", columns=[C.RANK]).groupby(C.RANK).size().to_dict()
    if not on_device and len(run.table("host_samples", columns=[C.RANK])):
        return False
    ranks = on_device or on_host
    return bool(ranks) and all(is_few(on_device.get(rank, 0), on_host.get(rank, 0)) for rank in ranks)


def _aside_ns(run: Run, windows: pd.DataFrame, device: pd.DataFrame, total_ns: int) -> int:
    """Time of the steps, or of the capture, at edges and in marked warm-up; 0 if it is surely a small part.

    A large one is before the first or after the last work of a device, or has a long idle interval.
    """
    import pyarrow.compute as pc

    from tracekit.analysis import get
    from tracekit.runs.step_windows import END_NS, first_and_last

    if device.empty:
        return 0
    idle = run.arrow("device_intervals", columns=[C.DUR_NS], where=pc.field(C.KIND) == DeviceKind.IDLE)
    at_most = pc.max(idle[C.DUR_NS]).as_py() or 0
    if len(windows):
        first, last = (windows[C.RANK].map(times) for times in first_and_last(device))
        inside = windows[END_NS].clip(upper=last) - windows[C.START_NS].clip(lower=first)
        at_most += total_ns - int(inside.clip(lower=0).sum())
    if 2 * at_most < MIN_ASIDE_SHARE * total_ns:  # of one rank, but a large part of all is meant
        return 0
    measure = get(EXPLAINS_IDLE).measure_aside
    return measure(run) if measure else 0


def combine_budget(parts: Iterable[StepTotals]) -> Budget:
    """The budget of a run from those of its ranks.

    Example:
        >>> combine_budget([StepTotals(steps=2, stepped_ns=300), StepTotals(steps=1, stepped_ns=60)])
        Budget(steps=3, step_ns=120, marked=True)
    """
    ranks = list(parts)
    steps, marked = sum(rank.steps for rank in ranks), any(rank.steps for rank in ranks)
    total = sum(rank.stepped_ns for rank in ranks)
    if not marked:
        lengths = [length for rank in ranks for length in rank.on_device_ns]
        lengths = lengths or [length for rank in ranks for length in rank.on_host_ns]
        steps, total = max(1, len(lengths)), sum(lengths)
    aside_ns = sum(rank.aside_ns for rank in ranks)
    aside_ns = aside_ns if aside_ns >= MIN_ASIDE_SHARE * total else 0
    is_small = bool(ranks) and all(rank.is_small for rank in ranks)
    earlier_ns = sum(rank.earlier_ns for rank in ranks) // max(1, sum(rank.steps > 0 for rank in ranks))
    return Budget(steps, (total - aside_ns) // steps, marked, aside_ns // steps, is_small, earlier_ns)


def budget(run: Run) -> Budget:
    """The run's steps: how many, and how long they take."""
    return run.compute_once(_budget)  # most analyses ask


def _budget(run: Run) -> Budget:
    return combine_budget(measure_steps(part) for part in rank_view.split_by_rank(run))


def _sum_windows(windows: pd.DataFrame) -> int:
    """Time within the windows of one rank, which overlap where the host runs ahead: none counts twice."""
    import numpy as np

    from tracekit.runs import intervals
    from tracekit.runs.step_windows import END_NS

    start, end = (windows[column].to_numpy(np.int64) for column in (C.START_NS, END_NS))
    return intervals.length(intervals.union(start, end))


def _extents(frame: pd.DataFrame) -> tuple[int, ...]:
    """From the first start to the last end of each rank."""
    from tracekit.runs.step_windows import first_and_last

    first, last = first_and_last(frame)
    return tuple(map(int, last - first))


@dataclass(frozen=True)
class Part:
    """Part of the window."""

    bound: Bottleneck  # what it is spent on
    label: str  # what exactly: the cause of idle time, or an op
    dur_ns: int  # its length
    share: float  # its share of the window


@dataclass(frozen=True)
class Verdict:
    """What bounds a run."""

    bound: Bottleneck  # the largest part; `UNKNOWN` if it cannot be told
    # the largest part other than compute of a run bound by compute; None if it is under 1%
    loss: Bottleneck | None
    sentence: str  # all of it in one or two sentences
    parts: tuple[Part, ...] = ()  # parts of the window, which sum to it; empty if there is none
    window: str = ""  # what the window is
    # findings on the bound and on the loss, at most three; then the largest others
    findings: tuple[Ranked, ...] = ()

    @property
    def window_ns(self) -> int:
        """Length of the window."""
        return sum(part.dur_ns for part in self.parts)

    def share(self, bound: Bottleneck) -> float:
        """Return the share of the window that is spent on something."""
        return sum(part.share for part in self.parts if part.bound == bound)


def cannot_tell(reason: str) -> Verdict:
    """Return the verdict that nothing certain can be said, with the reason."""
    end = "" if reason.endswith("?") else "."
    return Verdict(Bottleneck.UNKNOWN, None, f"Cannot tell what bounds this run: {reason.rstrip('.')}{end}")


def split_window(lengths: dict[tuple[Bottleneck, str], int]) -> tuple[Part, ...]:
    """Return the parts of a window that have a length."""
    total = sum(lengths.values())
    return tuple(
        Part(bound, label, length, length / total) for (bound, label), length in lengths.items() if length
    )
