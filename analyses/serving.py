"""Steps of an inference server: time and tokens by phase and batch size, and the host between steps.

The names of the ranges of vLLM, SGLang and TensorRT-LLM say what each step processes; the import reads them.
If the host runs ahead, the step time is the period between ends on the device. The time per output token is
what a request waits for its next token while steps run. A step that launched no device work has no device
window. Where the host waits for the device between steps (the range ends before the device does), the device
is not idle there.

Source: definitions of vLLM's and SGLang's profilers, see `tracekit.ingest.link.serving`; NVIDIA GenAI-Perf
for time per output token.

Example:
    >>> tracekit.analyze(run, "serving").tables["by_batch"]  # doctest: +SKIP
"""

from __future__ import annotations

import re
from functools import reduce
from operator import and_
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import Analysis, Column, Remark, Result, TableSpec
from tracekit.runs.intervals import Ints, Union, complement, overlap_lengths, union
from tracekit.runs.run import Run, busy
from tracekit.runs.step_windows import HOST_NS
from tracekit.schema import C, HostKind

from .shared.common import RANK, STEP, absent_device_note, contains, ints, percentile, select, share, spans
from .steps import ELSEWHERE, OWN_NS, measure_steps

STEP_NS, SPAN_NS, BUSY_NS, IDLE_NS = "step_ns", "device_span_ns", "device_busy_ns", "device_idle_ns"
BETWEEN_NS, BETWEEN_IDLE_NS, SUM_NS = "between_ns", "between_idle_ns", "sum_ns"
TOKENS_PER_S, PER_TOKEN_NS, BUSY_SHARE = "tokens_per_s", "per_output_token_ns", "busy_share"
ACTIVITY, PART, SHARE, EXCESS_NS = "activity", "part", "share", "excess_ns"
NOT_RECORDED = "(not recorded)"
NO_SERVING = Remark(
    "no steps of an inference server: an import recognizes ranges of vLLM, SGLang and TensorRT-LLM, and "
    "patterns in pyproject.toml"
)
SPECULATIVE = Remark(
    "SGLang names steps of the draft model like those of the model: prompts of speculative decoding count in "
    "both, and tokens are missing where names do not say them"
)
_DRAFTS = r"^step\[(?:TARGET_VERIFY|DRAFT_EXTEND)"
_PARTS = {
    "detokenization": r"detoken|tokenizer",
    "sampling": r"sampl|argmax|multinomial|logit|top_?[kp]\b|softmax",
    "scheduling": r"schedul|batch_result|next_batch|prepare_input|update_from_output",
    "waiting": r"wait|dequeue|recv|poll|zmq|acquire|synchronize",
}
"""Parts of the host's work between steps, by the first pattern that its name contains."""
OTHER = "other"
MIN_SIMILAR, MIN_SLOW_SHARE, GROUPS_PER_OCTAVE = 4, 0.2, 4
"""Minimum steps of similar tokens that have a median to compare with; the share of the median by which a slow
step exceeds it; groups of similar tokens from a number to its double."""
_SIMILAR = f"{2 ** (1 / GROUPS_PER_OCTAVE) - 1:.0%}"
_WHAT = [C.PHASE, C.REQUESTS]
_SIDES = [C.CONTEXT_REQUESTS, C.GENERATION_REQUESTS, C.CONTEXT_TOKENS, C.GENERATION_TOKENS]


def compute(run: Run) -> Result:
    """Time the steps of a server, and what the host does between them."""
    marked = run.table("steps", columns=[C.RANK, C.STEP, C.NAME, C.START_NS, C.DUR_NS, *_WHAT, *_SIDES])
    served = marked[marked[_WHAT].notna().any(axis=1)].reset_index(drop=True)
    if served.empty:
        return Result(notes=(NO_SERVING,))
    device = busy(run, [C.RANK, C.START_NS, C.DUR_NS])
    by_rank = [_between(run, int(rows[C.RANK].iloc[0]), rows, device) for _, rows in served.groupby(C.RANK)]
    between = [gap for gap in by_rank if gap is not None]
    steps = _steps(run, served, between)
    tables = {
        "summary": _summary(steps),
        "by_batch": _by_batch(steps),
        "between_parts": _sum_activities(between, [C.RANK, PART]),
        "between": _sum_activities(between, [C.RANK, PART, C.KIND, ACTIVITY]),
        "steps": select(steps, _STEPS),
    }
    notes = [SPECULATIVE] if contains(served[C.NAME], _DRAFTS).any() else []
    if steps[BUSY_NS].isna().all():
        notes.append(Remark(absent_device_note(run) if device.empty else ELSEWHERE))
    return Result({name: table for name, table in tables.items() if len(table)}, notes=tuple(notes))


class Between(NamedTuple):
    """The time between the steps of a rank."""

    steps: pd.DataFrame  # number of the step after each gap, its length and idle device time
    # what the host did in them: rank, part, kind, activity, count, time and idle device time
    activities: pd.DataFrame


def _between(run: Run, rank: int, steps: pd.DataFrame, device: pd.DataFrame) -> Between | None:
    """Measure the time between the steps of a rank; None if it has one step."""
    ordered = steps.sort_values(C.START_NS, ignore_index=True)
    start, end = spans(ordered)
    low, high = end[:-1], np.maximum(start[1:], end[:-1])
    if not len(low):
        return None
    of_rank = device[device[C.RANK] == rank]
    idle = complement(union(*spans(of_rank)), int(low[0]), int(high[-1])) if len(of_rank) else None
    gaps = pd.DataFrame({C.RANK: rank, C.STEP: ints(ordered, C.STEP)[1:], BETWEEN_NS: high - low})
    gaps[BETWEEN_IDLE_NS] = _idle_within(idle, low, high)
    rows = _outermost(_read_thread(run, rank, ordered), low, high)
    named = zip(rows[C.KIND], rows[C.NAME], strict=True)
    done = pd.DataFrame(
        {
            C.RANK: rank,
            PART: [_part(str(kind), str(name)) for kind, name in named],
            C.KIND: rows[C.KIND].astype(object),
            ACTIVITY: rows[C.NAME].astype(object),
            "count": 1,
            SUM_NS: ints(rows, C.DUR_NS),
            IDLE_NS: _idle_within(idle, *spans(rows)),
        }
    )
    rest = {
        C.RANK: rank,
        PART: NOT_RECORDED,
        C.KIND: "",
        ACTIVITY: NOT_RECORDED,
        "count": 0,
        SUM_NS: int(gaps[BETWEEN_NS].sum() - done[SUM_NS].sum()),
        IDLE_NS: gaps[BETWEEN_IDLE_NS].sum(min_count=1) - done[IDLE_NS].sum(),
    }
    done = pd.concat([done, pd.DataFrame([rest])], ignore_index=True)
    return Between(gaps, done.astype({IDLE_NS: "Int64"}))


def _idle_within(idle: Union | None, low: Ints, high: Ints) -> pd.Series:
    """Idle device time within each window; missing without device work."""
    values = pd.Series(pd.NA, index=range(len(low)), dtype="Int64")
    return values if idle is None else pd.Series(overlap_lengths(idle, low, high), dtype="Int64")


def _read_thread(run: Run, rank: int, steps: pd.DataFrame) -> pd.DataFrame:
    """Host rows of the thread of the steps, by start, the enclosing ones first."""
    first, of_rank = steps.iloc[0], pc.field(C.RANK) == rank
    marks = of_rank & (pc.field(C.START_NS) == int(first[C.START_NS]))
    marks &= pc.field(C.NAME) == str(first[C.NAME])
    columns = [C.KIND, C.NAME, C.PID, C.TID, C.START_NS, C.DUR_NS, C.DEPTH]
    first_rows = run.table("host_intervals", columns=columns, where=marks)
    if first_rows.empty:
        return first_rows
    thread = (pc.field(name) == int(first_rows[name].iloc[0]) for name in (C.PID, C.TID))
    rows = run.table("host_intervals", columns=columns, where=reduce(and_, thread, of_rank))
    return rows.sort_values([C.START_NS, C.DEPTH], ignore_index=True)


def _outermost(rows: pd.DataFrame, low: Ints, high: Ints) -> pd.DataFrame:
    """The rows that lie within one of some windows, without those inside another such row."""
    start, end = spans(rows)
    place = np.searchsorted(low, start, side="right") - 1
    inside = (place >= 0) & (end > start) & (end <= high[place])
    start, end = start[inside], end[inside]
    outer = np.append(True, start[1:] >= np.maximum.accumulate(end)[:-1])[: len(start)]
    return rows[inside][outer].reset_index(drop=True)


def _part(kind: str, name: str) -> str:
    if kind == HostKind.SYNC:
        return "waiting"
    return next((part for part, pattern in _PARTS.items() if re.search(pattern, name, re.IGNORECASE)), OTHER)


def _sum_activities(between: list[Between], keys: list[str]) -> pd.DataFrame:
    """Sums of what the hosts did between steps, most time of a rank first."""
    if not between:
        return pd.DataFrame()
    rows = pd.concat([gap.activities for gap in between], ignore_index=True)
    grouped = rows.groupby(keys, sort=True, as_index=False)
    table = grouped.agg(
        **{"count": ("count", "sum"), SUM_NS: (SUM_NS, "sum")},
        **{IDLE_NS: (IDLE_NS, lambda values: values.sum(min_count=1))},
    ).astype({IDLE_NS: "Int64"})
    table = table[table[SUM_NS] > 0]
    total = table.groupby(C.RANK)[SUM_NS].transform("sum").to_numpy(np.int64)
    table[SHARE] = share(ints(table, SUM_NS), total)
    ascending = [True, False, *(True for _ in keys)]
    return table.sort_values([C.RANK, SUM_NS, *keys], ascending=ascending, ignore_index=True)


def _steps(run: Run, served: pd.DataFrame, between: list[Between]) -> pd.DataFrame:
    timed = measure_steps(run).rename(columns={OWN_NS: STEP_NS}).drop(columns=[C.START_NS])
    steps = served.merge(timed, how="left", on=[C.RANK, C.STEP])
    if between:
        steps = steps.merge(pd.concat([gap.steps for gap in between]), how="left", on=[C.RANK, C.STEP])
    else:
        steps[BETWEEN_NS] = steps[BETWEEN_IDLE_NS] = pd.array([pd.NA] * len(steps), "Int64")
    steps[BETWEEN_NS] = steps[BETWEEN_NS].astype("Int64")
    steps[IDLE_NS] = steps[SPAN_NS] - steps[BUSY_NS]
    written = steps[C.GENERATION_TOKENS].mask(steps[C.GENERATION_TOKENS] == 0)
    steps[PER_TOKEN_NS] = steps[STEP_NS] * steps[C.GENERATION_REQUESTS] // written
    return _compare_similar(steps).sort_values([C.RANK, C.START_NS, C.STEP], ignore_index=True)


def _compare_similar(steps: pd.DataFrame) -> pd.DataFrame:
    """Excess of each step over the median of its phase at similar tokens, and whether it is slow."""
    tokens = steps[C.CONTEXT_TOKENS] + steps[C.GENERATION_TOKENS]
    timed = steps[steps[STEP_NS].notna() & (tokens.fillna(0) > 0)]
    # logarithmic groups: times grow with tokens, so a fixed width would be too wide for small batches
    similar = np.floor(GROUPS_PER_OCTAVE * np.log2(tokens[timed.index].to_numpy(np.float64)))
    excess = pd.Series(pd.NA, index=steps.index, dtype="Int64")
    for _, similar_steps in timed.groupby([C.RANK, C.PHASE, similar], dropna=False, observed=True):
        if len(similar_steps) >= MIN_SIMILAR:
            times = ints(similar_steps, STEP_NS)
            excess[similar_steps.index] = times - percentile(times, 50)
    slow = (excess > MIN_SLOW_SHARE * (steps[STEP_NS] - excess)).astype("boolean")
    return steps.assign(**{EXCESS_NS: excess, "slow": slow})


def _by_batch(steps: pd.DataFrame) -> pd.DataFrame:
    grouped = steps.groupby([C.RANK, *_WHAT], dropna=False, sort=True, observed=True)
    rows = [
        {**dict(zip((C.RANK, *_WHAT), key, strict=True)), "count": len(rows), **_rates(rows)}
        for key, rows in grouped
    ]
    return _with_types(pd.DataFrame(rows), _BY_BATCH)


WHOLE = "all, with the time between"


def _summary(steps: pd.DataFrame) -> pd.DataFrame:
    """Each phase of each rank, and the whole of its steps."""
    rows = []
    for rank, of_rank in steps.groupby(C.RANK, sort=True):
        for phase, phase_steps in of_rank.groupby(C.PHASE, dropna=False, sort=True, observed=True):
            rows.append({C.RANK: rank, C.PHASE: phase, **_totals(phase_steps)})
        start, end = spans(of_rank)
        ended = np.maximum(end, start + ints(of_rank, "window_ns"))
        span_ns = int(ended.max() - start.min())
        timed = {SUM_NS: span_ns, TOKENS_PER_S: _per_second(_all_tokens(of_rank), span_ns)}
        rows.append({C.RANK: rank, C.PHASE: WHOLE, **_totals(of_rank), **timed})
    return _with_types(pd.DataFrame(rows), _SUMMARY)


def _totals(steps: pd.DataFrame) -> dict[str, object]:
    """Number, rates and sums of tokens, missing where those of a step are."""
    tokens = {name: steps[name].sum(skipna=False) for name in (C.CONTEXT_TOKENS, C.GENERATION_TOKENS)}
    return {"count": len(steps), **tokens, **_rates(steps)}


def _all_tokens(steps: pd.DataFrame) -> int | None:
    total = (steps[C.CONTEXT_TOKENS] + steps[C.GENERATION_TOKENS]).sum(skipna=False)
    return None if pd.isna(total) else int(total)


def _per_second(tokens: int | None, ns: int) -> float | None:
    return tokens * 1e9 / ns if tokens is not None and ns else None


def _rates(steps: pd.DataFrame) -> dict[str, object]:
    timed = steps[steps[STEP_NS].notna()]
    times, waits = ints(timed, STEP_NS), ints(timed[timed[PER_TOKEN_NS].notna()], PER_TOKEN_NS)
    window, worked = (int(timed[name].sum()) for name in (SPAN_NS, BUSY_NS))
    return {
        "median_ns": percentile(times, 50) if len(times) else None,
        "p90_ns": percentile(times, 90) if len(times) else None,
        SUM_NS: int(times.sum()),
        BUSY_SHARE: worked / window if window else None,
        TOKENS_PER_S: _per_second(_all_tokens(timed), int(times.sum())),
        PER_TOKEN_NS: percentile(waits, 50) if len(waits) else None,
    }


def _with_types(table: pd.DataFrame, columns: tuple[Column, ...]) -> pd.DataFrame:
    types = {
        column.name: "Int64" if column.unit in {"ns", "count"} else "Float64"
        for column in columns
        if column.name not in (C.RANK, C.PHASE)
    }
    return table.astype({**types, C.PHASE: object})[[column.name for column in columns]]


_COUNT = Column("count", "count", "number of steps")
_BATCH = (
    Column(C.PHASE, "", "prefill, decode, or mixed; missing if the name does not say"),
    Column(C.REQUESTS, "count", "requests of a step: its batch size"),
)
_TOKENS = (
    Column(C.CONTEXT_TOKENS, "count", "tokens of prompts processed"),
    Column(C.GENERATION_TOKENS, "count", "tokens processed for requests that generate"),
)
_RATES = (
    Column("median_ns", "ns", "median step time"),
    Column("p90_ns", "ns", "90th percentile of the step time"),
    Column(SUM_NS, "ns", "Σ of the step times"),
    Column(BUSY_SHARE, "share", "device busy over the device windows"),
    Column(TOKENS_PER_S, "tokens/s", "context and generation tokens over the time"),
    Column(PER_TOKEN_NS, "ns", "time per output token, median over the steps"),
)
_SUMMARY = (RANK, Column(C.PHASE, "", "phase, or all of the rank"), _COUNT, *_TOKENS, *_RATES)
_BY_BATCH = (RANK, *_BATCH, _COUNT, *_RATES)
_DONE = (
    Column("count", "count", "number of times"),
    Column(SUM_NS, "ns", "time on the host between steps"),
    Column(IDLE_NS, "ns", "part of it in which no device of the rank works"),
    Column(SHARE, "share", "time over all time of the rank between steps"),
)
_HOST_PART = Column(PART, "", "part of the host's work, by its name")
_STEPS = (
    RANK,
    STEP,
    *_BATCH,
    Column(C.CONTEXT_REQUESTS, "count", "requests whose prompt is processed"),
    Column(C.GENERATION_REQUESTS, "count", "requests that generate"),
    *_TOKENS,
    Column(C.START_NS, "ns", "start of the range on the host, since the run's t0"),
    Column(HOST_NS, "ns", "duration of the range on the host"),
    Column("window_ns", "ns", "start to the later of host end and last device end"),
    Column(STEP_NS, "ns", "step time: the part of the step's window after all earlier steps"),
    Column(SPAN_NS, "ns", "device window: first start to last end of the work launched in the step"),
    Column(BUSY_NS, "ns", "union of that work"),
    Column(IDLE_NS, "ns", "device window without it"),
    Column(PER_TOKEN_NS, "ns", "time per output token"),
    Column(EXCESS_NS, "ns", "step time minus the median of steps of the phase with similar tokens"),
    Column("slow", "", f"whether it exceeds that median by over {MIN_SLOW_SHARE:.0%}"),
    Column(BETWEEN_NS, "ns", "time on the host from the end of the step before"),
    Column(BETWEEN_IDLE_NS, "ns", "part of it in which no device of the rank works"),
)

_BETWEEN = (
    RANK,
    _HOST_PART,
    Column(C.KIND, "", "kind of host interval"),
    Column(ACTIVITY, "", "name of the op, call, annotation or Python frame"),
    *_DONE,
)
ANALYSIS = Analysis(
    name="serving",
    title="Serving",
    question="How long do prefill and decode steps take per token, and what does the host do between them?",
    definition=(
        "Steps, phases, requests and tokens are those of the ranges of vLLM, SGLang, TensorRT-LLM or the "
        "project's patterns. Step time = own time of `steps`: the part of the step's window after all "
        "earlier steps; the window lasts from the start of the range to the later of its end and the end of "
        "the last device work launched in it. Device window = first start to last end of the work launched "
        "in the step; busy = the union of that work, idle = the rest; the busy share is the Σ of busy over "
        "the Σ of the windows. Tokens per second = context and generation tokens over the Σ of step times; "
        "for all steps of a rank, over the time from the start of the first to the end of the last. Time per "
        "output token = step time × requests that generate / their tokens, without the time between steps; "
        "drafts of speculative decoding count as tokens. Excess = step time − median of the steps of "
        f"the rank and phase with similar tokens (groups in which they differ by {_SIMILAR} at most), from "
        f"{MIN_SIMILAR} such steps on; a step that exceeds it by over {MIN_SLOW_SHARE:.0%} is slow. Between "
        "steps = end of a range to the start "
        "of the next on the host. What the host does there are the outermost ops, calls, annotations and "
        "Python frames that lie within it, on the thread of the steps; parts are identified by words in "
        "their names (schedul…, sampl…, detoken…, wait…). Percentiles are values that occurred."
    ),
    tables=(
        TableSpec("summary", "By phase, and all steps", _SUMMARY),
        TableSpec("by_batch", "By phase and batch size", _BY_BATCH),
        TableSpec("between_parts", "Host between steps, by part", (RANK, _HOST_PART, *_DONE)),
        TableSpec("between", "Host between steps, by activity", _BETWEEN),
        TableSpec("steps", "Every step", _STEPS),
    ),
    sources=("vLLM, SGLang and TensorRT-LLM: names of their profiled ranges", "NVIDIA GenAI-Perf"),
    order=25,
    reads=("steps.phase", "steps.requests"),
    compute=compute,
)
