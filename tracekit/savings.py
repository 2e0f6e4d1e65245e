"""How every finding puts a number on what it would save, and how much that matters.

A saving is per step: the total over the run divided by the number of profiled steps of all ranks. Where no
steps are marked the whole capture of a rank counts as one step, and the finding says so.

Severity follows from the saving's share of a step: high from 10 %, warn from 3 %, else info. Below 1 % a rule
stays silent unless it says otherwise: two runs of one program differ by about that much (TorchBench alarms at
7 %).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit import intervals
from tracekit.analysis import Severity
from tracekit.run import busy
from tracekit.schema import C
from tracekit.windows import END_NS, step_windows

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.run import Run

HIGH_SHARE = 0.10
WARN_SHARE = 0.03
LEAST_SHARE = 0.01
CONFIDENT = 0.9
"""Confidence of a cause that was seen to act; what is merely the likeliest explanation gets less."""


@dataclass(frozen=True)
class Budget:
    """What savings are measured against.

    Attributes:
        steps: Profiled steps of all ranks; one per rank where none are marked.
        step_ns: Mean time of a step: the union of a rank's windows over their number; the capture where none
            are marked.
        marked: Whether steps are marked.
    """

    steps: int
    step_ns: int
    marked: bool

    def per_step(self, total_ns: int) -> int:
        """A total over the run as an amount per step.

        Example:
            >>> Budget(steps=4, step_ns=1_000, marked=True).per_step(800)
            200
        """
        return int(total_ns) // self.steps

    def share(self, total_ns: int) -> float:
        """A total over the run as a share of the time of all steps; 0 where that is nothing."""
        return int(total_ns) / (self.steps * self.step_ns) if self.step_ns else 0.0

    def matters(self, total_ns: int, *, least: float = LEAST_SHARE) -> bool:
        """Whether a total over the run is worth a finding."""
        return total_ns > 0 and self.share(total_ns) >= least

    def severity(self, total_ns: int) -> Severity:
        """How much a total over the run matters.

        Example:
            >>> Budget(steps=4, step_ns=1_000, marked=True).severity(800)
            <Severity.HIGH: 'high'>
        """
        share = self.share(total_ns)
        if share >= HIGH_SHARE:
            return Severity.HIGH
        return Severity.WARN if share >= WARN_SHARE else Severity.INFO

    @property
    def per(self) -> str:
        """What a number "per step" is per, to end a sentence."""
        return "per step" if self.marked else "per capture"


def budget(run: Run) -> Budget:
    """The run's steps: how many, and how long they take."""
    windows = step_windows(run)
    if len(windows):
        total = sum(_covered(own) for _, own in windows.groupby(C.RANK))
        return Budget(len(windows), total // len(windows), marked=True)
    lengths = _captures(run)
    return Budget(max(1, len(lengths)), sum(lengths) // max(1, len(lengths)), marked=False)


def _covered(windows: pd.DataFrame) -> int:
    """Time within the windows of one rank, which overlap where the host runs ahead: none counts twice."""
    start, end = (windows[column].to_numpy(np.int64) for column in (C.START_NS, END_NS))
    return intervals.length(intervals.union(start, end))


def _captures(run: Run) -> list[int]:
    """Length of what was recorded of each rank: on its devices, or on the host where there is none."""
    columns = [C.RANK, C.START_NS, C.DUR_NS]
    frame = busy(run, columns)
    if frame.empty:
        frame = run.table("host_intervals", columns=columns)
    ends = frame.assign(**{END_NS: frame[C.START_NS] + frame[C.DUR_NS]}).groupby(C.RANK)
    return [int(own[END_NS].max() - own[C.START_NS].min()) for _, own in ends]
