"""How long the profiled steps take on the host and on the device, and what the profiler adds.

All times are integer nanoseconds. Per step of one rank:

* host = duration of the step's marker on the host;
* window = from the step's start to the later of its end on the host and the end of the last device interval
  launched in it;
* device span = first start to last end of the device intervals launched in it; device busy = length of their
  union, over the devices of the rank together. Missing, not zero, where nothing was launched.

Percentiles are values that occurred (inverted empirical distribution); the spread is (p95 − p05) over the
median. A warm-up outlier is one of the first steps, without a gap, whose window exceeds the median by more
than 10 % and by more than 3 scaled median absolute deviations; it needs at least 4 steps to be told. The
overhead compares the median window of the other steps with the median step time measured without a profiler.

Source: TorchBench (Hao et al., 2023), 2.2.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "steps")  # doctest: +SKIP
    >>> result.tables["summary"]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Column, Result, TableSpec
from tracekit.schema import C

from ._common import NO_STEPS, RANK, STEP, absent_device_note, busy, ints, spans, union_by
from ._steps import END_NS, HOST_NS, step_windows

if TYPE_CHECKING:
    from tracekit.intervals import Ints
    from tracekit.run import Run

FEWEST_STEPS = 4
OUTLIER_SHARE = 0.1
OUTLIER_DEVIATIONS = 3
_MAD_TO_SIGMA = 1.4826

NO_TIMINGS = (
    "no step times without a profiler, so its overhead is unknown: `tracekit collect` measures them, an "
    "imported trace has none"
)
_MEASURES = {
    HOST_NS: "on the host",
    "window_ns": "window",
    "device_span_ns": "device, first start to last end",
    "device_busy_ns": "device, union",
}


def compute(run: Run) -> Result:
    """Time the profiled steps and compare them with un-profiled ones."""
    steps = profiled_steps(run)
    if steps.empty:
        return Result(notes=(NO_STEPS,))
    tables = {"summary": _summary(steps), "steps": steps}
    notes = [absent_device_note(run)] if steps["device_busy_ns"].isna().all() else []
    timings = run.meta.timings
    if timings and timings.step_ns:
        tables["overhead"] = overhead(run, steps)
    else:
        notes.append(NO_TIMINGS)
    return Result(tables, notes=tuple(notes))


def profiled_steps(run: Run) -> pd.DataFrame:
    """The table of every profiled step."""
    table = step_windows(run).merge(_on_device(run), how="left", on=[C.RANK, C.STEP])
    table["window_ns"] = table[END_NS] - table[C.START_NS]
    slow = [_warmup(ints(rows, "window_ns")) for _, rows in table.groupby(C.RANK, sort=True)]
    table["warmup_outlier"] = np.concatenate([np.empty(0, bool), *slow])
    return table[[C.RANK, C.STEP, C.START_NS, *_MEASURES, "warmup_outlier"]]


def _on_device(run: Run) -> pd.DataFrame:
    """Span and union of the device intervals launched in each step."""
    frame = busy(run, [C.RANK, C.STEP, C.START_NS, C.DUR_NS])
    frame = frame[frame[C.STEP].notna()].reset_index(drop=True)
    start, end = spans(frame)
    grouped = frame.assign(end=end).groupby([C.RANK, C.STEP], sort=True)
    table = grouped.agg(first=(C.START_NS, "min"), last=("end", "max")).reset_index()
    codes = grouped.ngroup().to_numpy().astype(np.int64)
    table["device_span_ns"] = (table["last"] - table["first"]).astype("Int64")
    table["device_busy_ns"] = pd.array(union_by(codes, len(table), start, end), dtype="Int64")
    return table.drop(columns=["first", "last"]).astype({C.STEP: np.int64})


def _warmup(windows: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The leading steps that are far longer than the median."""
    if len(windows) < FEWEST_STEPS:
        return np.zeros(len(windows), bool)
    middle = float(np.median(windows))
    deviation = _MAD_TO_SIGMA * float(np.median(np.abs(windows - middle)))
    slow = windows - middle > max(OUTLIER_SHARE * middle, OUTLIER_DEVIATIONS * deviation)
    return np.logical_and.accumulate(slow)


def _summary(steps: pd.DataFrame) -> pd.DataFrame:
    rows = [
        {C.RANK: rank, "measure": meaning, **_distribution(ints(kept, name))}
        for rank, own in steps.groupby(C.RANK, sort=True)
        for name, meaning in _MEASURES.items()
        if len(kept := own[own[name].notna() & ~own["warmup_outlier"]])
    ]
    return pd.DataFrame(rows)


def _distribution(values: Ints) -> dict[str, float | int]:
    low, middle, high = (percentile(values, rank) for rank in (5, 50, 95))
    return {
        "steps": len(values),
        "median_ns": middle,
        "p05_ns": low,
        "p95_ns": high,
        "min_ns": int(values.min()),
        "max_ns": int(values.max()),
        "spread": (high - low) / middle if middle else float("nan"),
    }


def percentile(values: Ints, rank: int) -> int:
    """A percentile that is one of the values.

    Example:
        >>> percentile(np.array([4, 1, 3, 2]), 50)
        2
    """
    return int(np.percentile(values, rank, method="inverted_cdf"))


def overhead(run: Run, steps: pd.DataFrame) -> pd.DataFrame:
    """The profiled steps of each rank against the run's un-profiled step times."""
    timings = run.meta.timings
    if timings is None or not timings.step_ns:
        return pd.DataFrame()
    plain = percentile(np.array(timings.step_ns, np.int64), 50)
    kept = steps[~steps["warmup_outlier"]]
    medians = [(rank, percentile(ints(own, "window_ns"), 50)) for rank, own in kept.groupby(C.RANK)]
    return pd.DataFrame(
        [
            {
                C.RANK: rank,
                "profiled_ns": profiled,
                "unprofiled_ns": plain,
                "overhead_ns": profiled - plain,
                "overhead_share": (profiled - plain) / plain if plain else float("nan"),
                "unprofiled_steps": len(timings.step_ns),
                "clock": timings.clock,
            }
            for rank, profiled in medians
        ]
    )


_TIMES = (
    Column(HOST_NS, "ns", "duration of the marker on the host"),
    Column("window_ns", "ns", "step start to the later of host end and last device end"),
    Column("device_span_ns", "ns", "first start to last end of what it launched"),
    Column("device_busy_ns", "ns", "union of what it launched, devices of the rank together"),
)

ANALYSIS = Analysis(
    name="steps",
    title="Steps",
    question="How long do the steps take, how steady are they, and what does the profiler add?",
    definition=(
        "host = marker duration; window = step start to the later of host end and the end of the last "
        "device interval launched in it; device busy = union of what it launched. Percentiles are values "
        "that occurred and spread = (p95 − p05) / median; the summary and the overhead leave warm-up "
        "outliers out (leading steps longer than the median by over 10 % and over 3 scaled median "
        "absolute deviations, from 4 steps on). Overhead = median profiled window − median un-profiled "
        "step."
    ),
    tables=(
        TableSpec(
            "summary",
            "Distribution over the steps, warm-up outliers left out",
            (
                RANK,
                Column("measure", "", "what was timed"),
                Column("steps", "count", "number of steps"),
                Column("median_ns", "ns", "median"),
                Column("p05_ns", "ns", "5th percentile"),
                Column("p95_ns", "ns", "95th percentile"),
                Column("min_ns", "ns", "shortest"),
                Column("max_ns", "ns", "longest"),
                Column("spread", "share", "p95 minus p05 over the median"),
            ),
        ),
        TableSpec(
            "overhead",
            "Profiled against un-profiled steps",
            (
                RANK,
                Column("profiled_ns", "ns", "median window of the profiled steps"),
                Column("unprofiled_ns", "ns", "median step without a profiler"),
                Column("overhead_ns", "ns", "profiled minus un-profiled"),
                Column("overhead_share", "share", "overhead over the un-profiled step"),
                Column("unprofiled_steps", "count", "number of un-profiled steps"),
                Column("clock", "", "clock of the un-profiled steps"),
            ),
        ),
        TableSpec(
            "steps",
            "Every profiled step",
            (
                RANK,
                STEP,
                Column(C.START_NS, "ns", "start since the run's t0"),
                *_TIMES,
                Column("warmup_outlier", "", "whether it is a warm-up outlier"),
            ),
        ),
    ),
    sources=("TorchBench, 2.2",),
    order=20,
    compute=compute,
)
