"""Step times on the host and on the device, and the profiler's overhead.

If the host runs ahead of the device, windows overlap because they include the queue of earlier steps; own
then is the period between successive ends on the device, elsewhere it is the window. own is missing if a step
ends no later than an earlier one. Device times are missing, not zero, if nothing was launched.

A warm-up outlier is one of the first steps without a gap; it needs at least 4 steps, each with a known own
time.

`cuda_event` clocks measure a step from when the device reaches it until the device finishes it, so they are
compared with own; the first of several steps is ignored if it launched device work, because its window may
include work queued before the capture. `perf_counter` clocks measure host time only and are compared with
host.

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

from tracekit.analysis import NOT_PROFILED, Analysis, Column, Result, TableSpec
from tracekit.run import busy
from tracekit.savings import budget
from tracekit.schema import C
from tracekit.windows import END_NS, HOST_NS, step_windows

from ._shared.common import NO_STEPS, RANK, STEP, absent_device_note, ints, percentile, spans, union_by
from ._steps import findings

if TYPE_CHECKING:
    from tracekit.intervals import Ints
    from tracekit.run import Run

FEWEST_STEPS = 4
OUTLIER_SHARE = 0.1
OUTLIER_DEVIATIONS = 3
OWN_NS = "own_ns"
_MAD_TO_SIGMA = 1.4826
_NEVER = np.iinfo(np.int64).min

HOST_CLOCK = "perf_counter"

OVERLAPPING = (
    "some steps end on the device no later than an earlier one, so their own times and the profiler's "
    "overhead are unknown"
)
NOT_SEEN = (
    "the un-profiled steps were timed on the device, but no device work of the profiled steps is known, so "
    "the profiler's overhead is unknown"
)
ELSEWHERE = "no device interval belongs to a profiled step, so their device time is unknown"
NO_TIMINGS = (
    "no un-profiled step times, so the profiler's overhead is unknown: `tracekit collect` measures them, "
    "imported traces have none"
)
_MEASURES = {
    HOST_NS: "host",
    "window_ns": "window",
    OWN_NS: "own (window after earlier steps)",
    "device_span_ns": "device span (first start to last end)",
    "device_busy_ns": "device busy (union)",
}


def compute(run: Run) -> Result:
    """Time the profiled steps and compare them with un-profiled ones."""
    if not run.meta.profiled:
        return _unprofiled(run)
    steps = profiled_steps(run)
    if steps.empty:
        return Result(notes=(str(NO_STEPS),))  # no `Remark`: the rules could not be checked
    tables = {"summary": _summary(steps), "steps": steps}
    notes = [_device_note(run)] if steps["device_busy_ns"].isna().all() else []
    timings = run.meta.timings
    compared = overhead(run, steps)
    if not compared.empty:
        tables["overhead"] = compared
    if timings is None or not timings.step_ns:
        notes.append(NO_TIMINGS)
    elif len(compared) < steps[C.RANK].nunique():
        notes.append(NOT_SEEN if steps["device_span_ns"].isna().all() else OVERLAPPING)
    return Result(tables, findings.findings(steps, OWN_NS, budget(run)), tuple(notes))


def _unprofiled(run: Run) -> Result:
    """Result for a run without a profile: its un-profiled step times."""
    timings = run.meta.timings
    if timings is None or not timings.step_ns:
        return Result(notes=(NOT_PROFILED,))
    times = _distribution(np.array(timings.step_ns, np.int64))
    row = {C.RANK: 0, "measure": f"un-profiled ({timings.clock})", **times}
    return Result({"summary": pd.DataFrame([row])}, notes=(NOT_PROFILED,))


def _device_note(run: Run) -> str:
    return absent_device_note(run) if busy(run, [C.DUR_NS]).empty else ELSEWHERE


def profiled_steps(run: Run) -> pd.DataFrame:
    """Compute the table of every profiled step."""
    table = step_windows(run).merge(_on_device(run), how="left", on=[C.RANK, C.STEP])
    table["window_ns"] = table[END_NS] - table[C.START_NS]
    table[OWN_NS] = _own(table)
    slow = [_warmup(rows[OWN_NS]) for _, rows in table.groupby(C.RANK, sort=True)]
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


def _own(table: pd.DataFrame) -> pd.Series:
    """Part of each window after all earlier ones of the rank; missing if it is empty."""
    ordered = table.sort_values([C.RANK, C.START_NS], kind="stable")
    start, end = ints(ordered, C.START_NS), ordered[END_NS]
    earlier = end.groupby(ordered[C.RANK]).cummax().groupby(ordered[C.RANK]).shift(fill_value=_NEVER)
    reached = earlier.to_numpy(dtype=np.int64)
    own = pd.Series(end.to_numpy(dtype=np.int64) - np.maximum(start, reached), index=ordered.index)
    return own.astype("Int64").mask((reached > start) & (own <= 0)).reindex(table.index)


def _warmup(own: pd.Series) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Find the leading steps that are far longer than the median."""
    if len(own) < FEWEST_STEPS or own.isna().any():
        return np.zeros(len(own), bool)
    times = own.to_numpy(dtype=np.int64)
    middle = float(np.median(times))
    deviation = _MAD_TO_SIGMA * float(np.median(np.abs(times - middle)))
    slow = times - middle > max(OUTLIER_SHARE * middle, OUTLIER_DEVIATIONS * deviation)
    return np.logical_and.accumulate(slow)


def _summary(steps: pd.DataFrame) -> pd.DataFrame:
    rows = [
        {C.RANK: rank, "measure": meaning, **_distribution(ints(selected, name))}
        for rank, own in steps.groupby(C.RANK, sort=True)
        for name, meaning in _MEASURES.items()
        if len(selected := own[own[name].notna() & ~own["warmup_outlier"]])
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


def overhead(run: Run, steps: pd.DataFrame) -> pd.DataFrame:
    """Compare the profiled steps of each rank with the run's un-profiled step times."""
    timings = run.meta.timings
    if timings is None or not timings.step_ns:
        return pd.DataFrame()
    unprofiled = percentile(np.array(timings.step_ns, np.int64), 50)
    compared = [(rank, _comparable(own, timings.clock)) for rank, own in steps.groupby(C.RANK)]
    medians = [
        (rank, percentile(times.to_numpy(dtype=np.int64), 50))
        for rank, times in compared
        if not times.isna().any()
    ]
    return pd.DataFrame(
        [
            {
                C.RANK: rank,
                "profiled_ns": profiled,
                "unprofiled_ns": unprofiled,
                "overhead_ns": profiled - unprofiled,
                "overhead_share": (profiled - unprofiled) / unprofiled if unprofiled else float("nan"),
                "unprofiled_steps": len(timings.step_ns),
                "clock": timings.clock,
            }
            for rank, profiled in medians
        ]
    )


def _comparable(steps: pd.DataFrame, clock: str) -> pd.Series:
    """Times of one rank's profiled steps that are comparable with the clock of the un-profiled steps."""
    selected = ~steps["warmup_outlier"]
    if clock == HOST_CLOCK:
        return steps.loc[selected, HOST_NS]
    off_device = steps["device_span_ns"].isna()
    if off_device.all():
        return steps[OWN_NS].mask(off_device)
    if len(steps) > 1:
        selected &= (steps[C.START_NS] > steps[C.START_NS].min()) | off_device
    return steps.loc[selected, OWN_NS]


_TIMES = (
    Column(HOST_NS, "ns", "duration of the marker on the host"),
    Column("window_ns", "ns", "step start to the later of host end and last device end"),
    Column(OWN_NS, "ns", "the part of the window after the windows of all earlier steps"),
    Column("device_span_ns", "ns", "first start to last end of the launched device intervals"),
    Column("device_busy_ns", "ns", "union of the launched device intervals, over the devices of the rank"),
)

ANALYSIS = Analysis(
    name="steps",
    title="Steps",
    question="How long do the steps take, how steady are they, and what does the profiler add?",
    definition=(
        "host = duration of the step's marker on the host; window = step start to the later of host end and "
        "the end of the last device interval launched in it; own = the part of the window after the windows "
        "of all earlier steps (the period between ends on the device if the host runs ahead); device span = "
        "first start to last end of the launched intervals; device busy = their union. Percentiles are "
        "values that occurred (inverted empirical distribution) and spread = (p95 − p05) / median; the "
        "summary and the overhead exclude warm-up outliers (leading steps whose own time exceeds the median "
        "by over 10% and over 3 scaled median absolute deviations, from 4 steps on). Overhead = median "
        "profiled − median un-profiled step, by the clock of the latter: own for cuda_event, without the "
        "first step if it launched device work; host for perf_counter. Unknown if a step ends no later than "
        "an earlier one, or if cuda_event has no device work to compare with."
    ),
    tables=(
        TableSpec(
            "summary",
            "Distribution over the steps, without warm-up outliers",
            (
                RANK,
                Column("measure", "", "measured time: see the definition"),
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
                Column("profiled_ns", "ns", "median of the profiled steps, comparable with that clock"),
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
    needs_profile=False,
    rules=findings.RULES,
)
