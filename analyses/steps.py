"""Times of the profiled steps on host and device, compared with unprofiled ones.

If the host runs ahead of the device, windows overlap because they include the queue of earlier steps. Device
times are missing, not zero, if nothing was launched. Steps of an inference server that process different
numbers of tokens take different times by design, so none is a warm-up outlier or called unsteady.

`cuda_event` clocks measure a step from when the device reaches it until the device finishes it, so they are
compared with own; the window of the first step may include work queued before the capture.

Source: TorchBench (Hao et al., 2023), 2.2.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "steps")  # doctest: +SKIP
    >>> result.tables["summary"]  # doctest: +SKIP
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.analysis import NOT_PROFILED, Analysis, Column, Finding, Result, Rule, Severity, TableSpec
from tracekit.analysis.savings import CONFIDENT, Budget, budget
from tracekit.runs.conditions import is_disturbed
from tracekit.runs.environment import program_settings
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.runs.step_times import (
    MIN_STEPS,
    OUTLIER_DEVIATIONS,
    OUTLIER_SHARE,
    find_period,
    longer_part,
    of_different_batches,
    unprofiled_step_time,
    warmup,
)
from tracekit.runs.step_windows import END_NS, HOST_NS, HOST_START_NS, step_windows
from tracekit.runs.text import human
from tracekit.schema import C, HostKind

from .shared.common import (
    NO_STEPS,
    RANK,
    STEP,
    Bools,
    absent_device_note,
    ints,
    is_kind,
    percentile,
    spans,
    union_by,
)
from .shared.groups import group_rows

WARM_UP = Rule(
    "warmup_steps",
    states=f"the first steps, without a gap, exceed the median by more than {OUTLIER_SHARE:.0%} and by more "
    f"than {OUTLIER_DEVIATIONS} scaled median absolute deviations; at least {MIN_STEPS} steps",
    why="lazy loading, autotuning and cold caches affect only the first steps",
)
UNSTEADY = Rule(
    "unsteady_steps",
    states="after warm-up p95 − p05 of at least {min_steps} profiled steps exceeds {min_spread_share} of the "
    "median, or, with fewer of them, that of at least {min_steps} unprofiled steps, which has no saving; "
    "neither has one where the times recur with a fixed period, as with accumulated gradients; not for "
    "steps of an inference server that process different tokens",
    why="steps of one shape differ by a few percent; fewer steps do not show a distribution",
    thresholds={"min_spread_share": 0.25, "min_steps": 8},
)
SLOWING = Rule(
    "steps_slow_down",
    states="of at least {min_steps} unprofiled steps after warm-up the last third has {min_ratio} times the "
    "median of the first or more, no third is faster than the one before, and three quarters of the last are "
    "slower than three quarters of the first; no other program took the CPU",
    why="steps that vary do so in any order; a quarter more within some tens of steps is hours in a training",
    thresholds={"min_ratio": 1.25, "min_steps": 24},
)
RULES = (WARM_UP, UNSTEADY, SLOWING)
LIKELY = 0.5
"""Confidence that slow steps could be as fast as the median: their work may differ."""
MAX_NAMED_STEPS = 3


def findings(steps: pd.DataFrame, times: str, budget: Budget, table: str) -> tuple[Finding, ...]:
    """Return findings on warm-up and unsteady steps of each rank.

    Args:
        steps: Profiled steps with their rank, number, `warmup_outlier` and times.
        times: Column of the times, null if unknown.
        budget: Time of the run's steps.
        table: Table with what each step does.
    """
    results = []
    for rank, rows in steps[steps[times].notna()].groupby(C.RANK, sort=True):
        slow, steady = rows[rows["warmup_outlier"]], rows[~rows["warmup_outlier"]]
        if len(slow):
            results.append(_report_warmup(rank, slow, steady, times))
        if len(steady) >= UNSTEADY["min_steps"]:
            results += _report_unsteady(rank, steady, times, budget, table)
    return tuple(results)


def _report_warmup(rank: object, slow: pd.DataFrame, steady: pd.DataFrame, times: str) -> Finding:
    plural = "s" * (len(slow) != 1)
    longest, median = int(slow[times].max()), percentile(ints(steady, times), 50)
    return Finding(
        WARM_UP.code,
        Severity.INFO,
        f"{len(slow):,} warm-up step{plural} of rank {rank} took {'up to ' * bool(plural)}"
        f"{human(longest, 'ns')}; the median of the others is {human(median, 'ns')}",
        f"Exclude step{plural} {_numbers(slow)} from comparisons, or record after more warm-up steps",
        confidence=CONFIDENT,
    )


def _report_unsteady(
    rank: object, steady: pd.DataFrame, times: str, budget: Budget, table: str
) -> list[Finding]:
    values = ints(steady.sort_values(C.STEP), times)
    slowest = _numbers(steady.sort_values([times, C.STEP], ascending=[False, True]).head(MAX_NAMED_STEPS))
    where = f": `{table}` shows the slowest steps ({slowest})"
    spread = _describe_spread(f"Steps of rank {rank}", values, where)
    if isinstance(spread, Finding):
        return [spread]
    if not spread:
        return []
    median = percentile(values, 50)
    excess = int(np.maximum(values - median, 0).sum())
    return [
        budget.finding(
            UNSTEADY,
            excess,
            spread,
            f"Compare the slowest steps ({slowest}) with the others in `{table}`: their "
            "shapes, copies or waits may differ",
            f"time of steps above their median of {human(median, 'ns')}, over all steps",
            confidence=LIKELY,
        )
    ]


def _report_unsteady_unprofiled(times: Ints, later: int, table: str) -> list[Finding]:
    """Return the finding on the steps without a profiler: at the default number, few are profiled.

    Args:
        times: Times of the steps before the profiled ones, then of those after them.
        later: How many of the steps are after them.
        table: Where to see the profiled steps.
    """
    values = times[warmup(times) :]
    if len(values) < UNSTEADY["min_steps"]:
        return []
    spread = _describe_spread("Steps without the profiler", values, "", later=later)
    if isinstance(spread, Finding) or not spread:
        return [spread] if spread else []
    action = (
        f"Profile more steps (--steps {2 * UNSTEADY['min_steps']}) to see which are slow, and compare them "
        f"in `{table}`: their shapes, copies or waits may differ, or other programs disturbed "
        "them"
    )
    return [Finding(UNSTEADY.code, Severity.INFO, spread, action, confidence=LIKELY)]


def find_slowdown(run: Run, *, disturbed: bool = False) -> tuple[int, int, Ints] | None:
    """Return the median of the first third of the unprofiled steps, that of the last, and all their times.

    None if they do not become slower or, unless `disturbed`, if another program took the CPU.
    """
    timings = run.meta.timings
    values = np.array(timings.step_ns if timings else [], np.int64)
    values = values[warmup(values) :]
    if len(values) < SLOWING["min_steps"] or (not disturbed and is_disturbed(run.meta.cpu_loads)):
        return None
    thirds = np.array_split(values, 3)
    first, middle, last = (percentile(third, 50) for third in thirds)
    is_apart = percentile(thirds[2], 25) > percentile(thirds[0], 75)
    is_slower = first <= middle <= last >= SLOWING["min_ratio"] * first and is_apart
    return (first, last, values) if is_slower else None


def _report_slowing(run: Run, against: Budget) -> list[Finding]:
    """Return the finding on steps that take longer and longer."""
    slowdown = find_slowdown(run)
    if not slowdown:
        return []
    first, last, values = slowdown
    share = 1 - first / max(float(values.mean()), first)
    modes = program_settings(run.meta.environment).get("modes") or {}
    denormal = busy(run, [C.DUR_NS]).empty and modes.get("flush_denormals") is False
    others = _DENORMAL * denormal + "the clock may be throttled"
    equal = _have_equal_shapes(run)
    advice = f"{_GROWS}. If shapes stay, {others}"
    if equal is not None:
        advice = f"Ops of the profiled steps have equal shapes: {others}, or {_KEPT}" if equal else _DIFFER
    return [
        against.finding(
            SLOWING,
            int(share * against.steps * against.step_ns),
            f"Steps become slower: {human(first, 'ns')} in the first third of {len(values)} unprofiled "
            f"steps, {human(last, 'ns')} in the last",
            advice,
            "upper bound: what the unprofiled steps take longer than the first third",
            confidence=LIKELY,
        )
    ]


_GROWS = "If inputs or what is kept grow (lists, caches, graphs of losses), keep less"
_DIFFER = f"Shapes of ops differ between the profiled steps. {_GROWS}, or pad less"
_KEPT = "what is kept in Python (lists, dictionaries) takes longer to go through"
_DENORMAL = (
    "values may have become denormal, which CPUs compute slowly (`torch.set_flush_denormal(True)`), or "
)


def _have_equal_shapes(run: Run) -> bool | None:
    """Whether each profiled step of the first rank runs the same ops on inputs of the same shapes.

    None if shapes are unknown, or without two such steps.
    """
    columns = [C.RANK, C.NAME, C.INPUT_SHAPES, C.STEP]
    rows = run.table("host_intervals", columns=columns, where=is_kind(HostKind.OP))
    rows = rows[(rows[C.RANK] == rows[C.RANK].min()) & rows[C.STEP].notna() & rows[C.INPUT_SHAPES].notna()]
    counts = rows.groupby(columns[1:], observed=True).size().unstack(C.STEP, fill_value=0)
    return bool((counts.nunique(axis=1) == 1).all()) if counts.shape[1] > 1 else None


def _describe_spread(steps: str, values: Ints, where: str, *, later: int = 0) -> Finding | str:
    """Return the spread of unsteady steps, or the finding if it recurs; empty if they are steady.

    Args:
        steps: Which steps.
        values: Their times, in order.
        where: Where to see the slowest of them, to end a sentence.
        later: How many of the last ones followed later.
    """
    low, median, high = (percentile(values, place) for place in (5, 50, 95))
    max_spread = UNSTEADY["min_spread_share"] * median
    if high - low <= max_spread:
        return ""
    title = f"{steps} take from {human(low, 'ns')} (p05) to {human(high, 'ns')} (p95)"
    period = find_period(
        longer_part(values, later), lambda phase: percentile(phase, 95) - percentile(phase, 5) <= max_spread
    )
    if not period:
        return title
    return Finding(
        UNSTEADY.code,
        Severity.INFO,
        f"{title}, in a pattern that recurs every {period} steps",
        "Gradient accumulation causes such a pattern by design; logging or evaluation every "
        f"{period} steps may be avoidable{where}",
        confidence=CONFIDENT,
    )


def _numbers(steps: pd.DataFrame) -> str:
    return ", ".join(map(str, steps[C.STEP]))


OWN_NS = "own_ns"


OVERLAPPING = (
    "some steps end on the device no later than an earlier one, so their own times and the profiler's "
    "overhead are unknown"
)
NOT_SEEN = (
    "the unprofiled steps were timed on the device, but no device work of the profiled steps is known, so "
    "the profiler's overhead is unknown"
)
ELSEWHERE = "no device interval belongs to a profiled step, so their device time is unknown"
DIFFERENT = (
    "steps of an inference server process different numbers of tokens, so their times are not compared: "
    "`serving` compares those of similar tokens"
)
NO_TIMINGS = (
    "no unprofiled step times, so the profiler's overhead is unknown: `tracekit collect` measures them, "
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
    """Time the profiled steps and compare them with unprofiled ones."""
    if not run.meta.profiled:
        return _describe_timings(run)
    steps = measure_steps(run)
    if steps.empty:
        return Result(notes=(str(NO_STEPS),))  # no `Remark`: the rules could not be checked
    tables = {"summary": _summary(steps), "steps": steps}
    notes: list[str] = []
    if steps["device_busy_ns"].isna().all():
        notes.append(absent_device_note(run) if busy(run, [C.DUR_NS]).empty else ELSEWHERE)
    timings = run.meta.timings
    compared = overhead(run, steps)
    if not compared.empty:
        tables["overhead"] = compared
    if timings is None or not timings.step_ns:
        notes.append(NO_TIMINGS)
    elif len(compared) < steps[C.RANK].nunique():
        notes.append(NOT_SEEN if steps["device_span_ns"].isna().all() else OVERLAPPING)
    different = of_different_batches(run)
    if different:
        notes.append(DIFFERENT)
    alike = steps[~steps[C.RANK].isin(different)]
    table = f"{'host' if busy(run, [C.DUR_NS]).empty else 'gpu'}_breakdown.per_step"
    reported = findings(alike, OWN_NS, budget(run), table)
    has_few = steps.groupby(C.RANK).size().max() < UNSTEADY["min_steps"]
    if has_few and not different and timings is not None and timings.step_ns:
        times = np.array(timings.step_ns, np.int64)
        reported = (*reported, *_report_unsteady_unprofiled(times, timings.later, table))
    if not different:
        reported = (*reported, *_report_slowing(run, budget(run)))
    return Result(tables, reported, tuple(notes))


def _describe_timings(run: Run) -> Result:
    """Result for a run without a profile: its unprofiled step times."""
    timings = run.meta.timings
    if timings is None or not timings.step_ns:
        return Result(notes=(NOT_PROFILED,))
    times = _distribution(np.array(timings.step_ns, np.int64))
    row = {C.RANK: 0, "measure": f"unprofiled ({timings.clock})", **times}
    return Result({"summary": pd.DataFrame([row])}, notes=(NOT_PROFILED,))


def measure_steps(run: Run) -> pd.DataFrame:
    """Compute the table of every profiled step, which several analyses need."""
    return run.compute_once(_measure_steps).copy()


def _measure_steps(run: Run) -> pd.DataFrame:
    table = step_windows(run).merge(_on_device(run), how="left", on=[C.RANK, C.STEP])
    own_ns = (table[END_NS] - table[C.START_NS]).astype("Int64")
    table["window_ns"] = table[END_NS] - table[HOST_START_NS]
    table[OWN_NS] = own_ns.mask((own_ns <= 0) & (table["window_ns"] > 0))
    table[C.START_NS] = table[HOST_START_NS]
    different = of_different_batches(run)
    slow = [
        np.zeros(len(rows), bool) if rank in different else _warmup(rows[OWN_NS])
        for rank, rows in table.groupby(C.RANK, sort=True)
    ]
    table["warmup_outlier"] = np.concatenate([np.empty(0, bool), *slow])
    return table[[C.RANK, C.STEP, C.START_NS, *_MEASURES, "warmup_outlier"]]


def _on_device(run: Run) -> pd.DataFrame:
    """Span and union of the device intervals launched in each step."""
    frame = busy(run, [C.RANK, C.STEP, C.START_NS, C.DUR_NS])
    frame = frame[frame[C.STEP].notna()].reset_index(drop=True)
    (start, end), groups = spans(frame), group_rows(frame, [C.RANK, C.STEP])
    span_ns = groups.largest(end) + groups.largest(-start)
    busy_ns = union_by(groups.codes, len(groups.first), start, end)
    columns = {
        C.RANK: frame[C.RANK].array[groups.first],
        C.STEP: ints(frame, C.STEP)[groups.first],
        "device_span_ns": pd.array(span_ns, dtype="Int64"),
        "device_busy_ns": pd.array(busy_ns, dtype="Int64"),
    }
    return pd.DataFrame(columns)


def _warmup(times: pd.Series) -> Bools:
    """Find the leading steps that are far longer than the median."""
    if times.isna().any():
        return np.zeros(len(times), bool)
    return np.arange(len(times)) < warmup(times.to_numpy(dtype=np.int64))


def _summary(steps: pd.DataFrame) -> pd.DataFrame:
    table = [
        {C.RANK: rank, "measure": meaning, **_distribution(ints(selected, name))}
        for rank, table in steps.groupby(C.RANK, sort=True)
        for name, meaning in _MEASURES.items()
        if len(selected := table[table[name].notna() & ~table["warmup_outlier"]])
    ]
    return pd.DataFrame(table)


def _distribution(values: Ints) -> dict[str, float | int]:
    low, middle, high = (percentile(values, rank) for rank in (5, 50, 95))
    return {
        "steps": len(values),
        "mean_ns": round(values.mean()),
        "median_ns": middle,
        "p05_ns": low,
        "p95_ns": high,
        "min_ns": int(values.min()),
        "max_ns": int(values.max()),
        "spread": (high - low) / middle if middle else float("nan"),
    }


def overhead(run: Run, steps: pd.DataFrame) -> pd.DataFrame:
    """Compare the profiled steps of each rank with the run's unprofiled step times."""
    timings, timed = run.meta.timings, unprofiled_step_time(run.meta.timings)
    if timings is None or timed is None:
        return pd.DataFrame()
    rows = []
    for rank, of_rank in steps.groupby(C.RANK):
        times = _comparable(of_rank, timings.clock)
        if not times.isna().any():
            profiled, unprofiled = round(times.to_numpy(dtype=np.int64).mean()), timed.mean_ns
            row = {C.RANK: rank, "profiled_ns": profiled, "unprofiled_ns": unprofiled}
            row |= {"overhead_ns": profiled - unprofiled}
            row |= {"overhead_share": (profiled - unprofiled) / unprofiled if unprofiled else np.nan}
            rows.append(row | {"unprofiled_steps": timed.steps, "clock": timings.clock})
    return pd.DataFrame(rows)


def _comparable(steps: pd.DataFrame, clock: str) -> pd.Series:
    """Times of one rank's profiled steps that are comparable with the clock of the unprofiled steps."""
    is_comparable = ~steps["warmup_outlier"]
    # a device clock starts when the device reaches the step, a host clock when the host does
    if clock == "perf_counter":
        return steps.loc[is_comparable, HOST_NS]
    off_device = steps["device_span_ns"].isna()
    if off_device.all():
        return steps[OWN_NS].mask(off_device)
    if len(steps) > 1:
        is_comparable &= (steps[C.START_NS] > steps[C.START_NS].min()) | off_device
    return steps.loc[is_comparable, OWN_NS]


_TIMES = (
    Column(HOST_NS, "ns", "duration of the marker on the host"),
    Column("window_ns", "ns", "step start to the later of host end and last device end"),
    Column(OWN_NS, "ns", "the part of the window after all earlier steps and work from before the capture"),
    Column("device_span_ns", "ns", "first start to last end of the launched device intervals"),
    Column("device_busy_ns", "ns", "union of the launched device intervals, over the devices of the rank"),
)

_SUMMARY = (
    RANK,
    Column("measure", "", "measured time: see the definition"),
    Column("steps", "count", "number of steps"),
    Column("mean_ns", "ns", "mean"),
    Column("median_ns", "ns", "median"),
    Column("p05_ns", "ns", "5th percentile"),
    Column("p95_ns", "ns", "95th percentile"),
    Column("min_ns", "ns", "shortest"),
    Column("max_ns", "ns", "longest"),
    Column("spread", "share", "p95 minus p05 over the median"),
)
_OVERHEAD = (
    RANK,
    Column("profiled_ns", "ns", "mean of the profiled steps, comparable with that clock"),
    Column("unprofiled_ns", "ns", "mean step without a profiler"),
    Column("overhead_ns", "ns", "profiled minus unprofiled"),
    Column("overhead_share", "share", "overhead over the unprofiled step"),
    Column("unprofiled_steps", "count", "number of unprofiled steps"),
    Column("clock", "", "clock of the unprofiled steps"),
)
_STEPS = (
    RANK,
    STEP,
    Column(C.START_NS, "ns", "start since the run's t0"),
    *_TIMES,
    Column("warmup_outlier", "", "whether it is a warm-up outlier"),
)
ANALYSIS = Analysis(
    name="steps",
    title="Steps",
    question="How long do the steps take, how steady are they, and what does the profiler add?",
    definition=(
        "host = duration of the step's marker on the host; window = step start to the later of host end and "
        "the end of the last device interval launched in it; own = the part of the window after the windows "
        "of all earlier steps and the work launched before the capture (the period between ends on the "
        "device if the host runs ahead); device span = first start to last end of the launched intervals; "
        "device busy = their union. Percentiles are values that occurred (inverted empirical distribution) "
        "and spread = (p95 − p05) / median; the summary and the overhead exclude warm-up outliers (leading "
        f"steps whose own time exceeds the median by over {OUTLIER_SHARE:.0%} and over {OUTLIER_DEVIATIONS} "
        f"scaled median absolute deviations, from {MIN_STEPS} steps on; none among steps of an inference "
        "server of different tokens). Overhead = mean profiled − mean unprofiled step, by the clock of "
        "the latter: own for cuda_event, without the first step if it launched device work; host for "
        "perf_counter. Unknown if a step ends no later than an earlier one, or if cuda_event has no device "
        "work to compare with."
    ),
    tables=(
        TableSpec("summary", "Distribution over the steps, without warm-up outliers", _SUMMARY),
        TableSpec("overhead", "Profiled against unprofiled steps", _OVERHEAD),
        TableSpec("steps", "Every profiled step", _STEPS),
    ),
    sources=("TorchBench, 2.2",),
    order=20,
    reads=("steps",),
    compute=compute,
    needs_profile=False,
    rules=RULES,
)
