"""Data model of a bisection: subjects, ends, exact signatures, and results."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pandas as pd
import pyarrow.compute as pc

from tracekit.errors import ExitCode
from tracekit.runs.metrics import metric
from tracekit.runs.run import Run
from tracekit.runs.text import human
from tracekit.schema import C, DeviceKind, HostKind
from tracekit.stats.comparison import THRESHOLD, Comparison, Metric


@dataclass(frozen=True)
class Subject:
    """A commit or a version."""

    key: str  # full sha, or the version
    title: str  # subject of the commit, or the package with its version
    author: str = ""
    date: str = ""  # when the commit was written, ISO 8601

    @property
    def short(self) -> str:
        """Short name for display."""
        return self.key[:12]


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search."""

    subjects: tuple[Subject, ...]  # from the good one to the bad one, in order
    metric: Metric
    exact: bool = False  # whether it is a count, which one measurement tells
    counts_first: bool = False  # whether a count that differs between the ends is searched before the metric
    repeats: int = 3
    threshold: float = THRESHOLD  # relative change between the ends below which there is nothing to search
    skipped: frozenset[str] = frozenset()  # keys of subjects not to measure
    notes: tuple[str, ...] = ()  # what whoever reads the result has to know of how it was searched

    @property
    def last(self) -> int:
        """Position of the bad end."""
        return len(self.subjects) - 1


@dataclass(frozen=True)
class Estimate:
    """Ratio of the asked metric after to before, with its 95% interval, from `runs` measurements of each."""

    ratio: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True)
class Culprit:
    """A change of the metric, and the subjects that may have caused it."""

    # what may have made it, the last being the first that was measured after it
    suspects: tuple[Subject, ...]
    before: Subject  # the last that was measured before it
    effect: float  # ratio after to before; of a count the difference
    low: float  # lower bound of its 95% interval
    high: float
    posterior: float  # probability that it is a jump in the direction of the whole
    commands: tuple[str, ...] = ()
    asked: Estimate | None = None  # how the asked metric changed, where a count was searched in its place


@dataclass(frozen=True)
class LogEntry:
    """A subject in the log."""

    position: int  # among all subjects, the good end being 0
    subject: Subject
    values: tuple[float, ...] = ()  # of the metric, in its unit
    cached: int = 0  # how many of them are of an earlier call
    problem: str = ""  # why it could not be measured


@dataclass(frozen=True)
class Changed:
    """A count that differs between the ends in all runs."""

    name: str
    good: float
    bad: float

    @property
    def size(self) -> float:
        """Absolute logarithm of the ratio; infinite where one of them is 0."""
        return abs(math.log(self.bad / self.good)) if self.good > 0 < self.bad else math.inf


@dataclass(frozen=True)
class Bisection:
    """The result of a search."""

    metric: Metric
    exact: bool
    good: Subject
    bad: Subject
    subjects: int
    ends: Comparison  # the bad end against the good one
    culprits: tuple[Culprit, ...]  # sure ones, in order
    # steps that repeats did not make sure; not worth a look where a culprit was found
    undecided: tuple[Culprit, ...] = ()
    log: tuple[LogEntry, ...] = ()  # what was measured, in order of the subjects
    reason: str = ""  # why there is no culprit, where there is none
    changed: tuple[Changed, ...] = ()  # counts that would find their commit in one run each
    notes: tuple[str, ...] = ()
    command: tuple[str, ...] = field(default=())
    asked: Comparison | None = None  # the ends by the asked metric, where a count was searched in its place

    @property
    def exit_code(self) -> ExitCode:
        """0 if a culprit was found, else 3."""
        return ExitCode.OK if self.culprits else ExitCode.CANNOT_TELL

    @property
    def runs(self) -> tuple[int, int]:
        """Numbers of measurements made now and taken from the cache."""
        cached = sum(subject.cached for subject in self.log)
        return sum(len(subject.values) for subject in self.log) - cached, cached


KERNELS, COPIES, MEMSETS, LAUNCHES, OPS = "kernels", "copies", "memsets", "launches", "ops"
BYTES = "bytes"
TOTALS = (KERNELS, COPIES, MEMSETS, LAUNCHES, OPS, BYTES)
WORK = (OPS, KERNELS, BYTES)
"""Counts that are searched in place of a time, if they differ between the ends."""
_DEVICE = {KERNELS: DeviceKind.KERNEL, COPIES: DeviceKind.MEMCPY, MEMSETS: DeviceKind.MEMSET}
_LAUNCH = r"Launch(?:Cooperative)?Kernel|GraphLaunch"
_COLUMNS = [C.KIND, C.NAME, C.RANK, C.STEP]


def count_metric(name: str) -> Metric:
    """Return the metric of a count per step.

    Example:
        >>> count_metric("ops").unit, count_metric("bytes").unit
        ('count', 'bytes')
    """
    return metric(name, unit=BYTES if name == BYTES else "count")


def format_value(value: float, unit: str) -> str:
    """Format a value, rounded where its unit has no fractions."""
    is_integer = unit in {"ns", "bytes"} or float(value).is_integer()
    return human(round(value) if is_integer else value, unit)


def counts(run: Run, name: str = "") -> dict[str, float]:
    """Return the counts per step: totals, and one of an op's name or a part of a device interval's name.

    Returns:
        The median over the steps of each rank, by `TOTALS` and the name; `bytes` are those that were copied
        or set on devices. Of a run without marked steps the count in all of it.
    """
    host = run.table(
        "host_intervals",
        columns=_COLUMNS,
        where=pc.field(C.KIND).isin([str(HostKind.OP), str(HostKind.RUNTIME)]),
    )
    device = run.table(
        "device_intervals",
        columns=[*_COLUMNS, C.BYTES],
        where=pc.field(C.KIND).isin([str(kind) for kind in _DEVICE.values()]),
    )
    steps = run.table("steps", columns=[C.RANK, C.STEP]).drop_duplicates()
    launches = host[C.NAME].astype(str).str.contains(_LAUNCH, regex=True)
    totals = {total: _per_step(device[device[C.KIND] == str(kind)], steps) for total, kind in _DEVICE.items()}
    totals[LAUNCHES] = _per_step(host[launches & (host[C.KIND] == str(HostKind.RUNTIME))], steps)
    totals[OPS] = _per_step(host[host[C.KIND] == str(HostKind.OP)], steps)
    totals[BYTES] = _per_step(device[device[C.KIND] != str(DeviceKind.KERNEL)], steps, of=C.BYTES)
    if name and name not in totals:
        on_device = device[device[C.NAME].astype(str).str.contains(name, regex=False)]
        on_host = host[host[C.NAME].astype(str) == name]
        totals[name] = _per_step(on_host, steps) + _per_step(on_device, steps)
    return totals


def _per_step(rows: pd.DataFrame, steps: pd.DataFrame, *, of: str = "") -> float:
    """Return the median over the steps of the rows, or of the sum of a column; 0 for steps without rows."""
    amounts = rows[of].fillna(0).astype("int64") if of else pd.Series(1, index=rows.index, dtype="int64")
    if steps.empty:
        return float(amounts.sum())
    keys = [C.RANK, C.STEP]
    in_steps = rows[keys].assign(amount=amounts).dropna().astype("int64")
    counted = in_steps.groupby(keys, as_index=False)["amount"].sum()
    amount = steps[keys].astype("int64").merge(counted, how="left", on=keys)["amount"]
    return float(amount.fillna(0).median())
