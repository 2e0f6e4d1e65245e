"""Rules of `memory`: leaks, reserved memory that is not used, and calls of the driver for memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import EVIDENCE_ROWS, Bottleneck, Finding, Rule, Severity, savings
from tracekit.analysis.kernel_names import matches
from tracekit.analysis.savings import CONFIDENT, MIN_SHARE, Budget
from tracekit.runs import intervals
from tracekit.runs.environment import program_settings
from tracekit.runs.run import Run, busy
from tracekit.schema import HOST_DEVICE, C, HostKind

from ..shared.common import duration, is_kind, largest_rows, percent, size, spans, union_by
from ..shared.host_rows import NO_OP, fill_missing_text, host_rows, source_lines
from ..shared.intervals_by_class import idle_by_rank
from .events import AFTER_WARMUP, FREES, MIN_FLOORS, OP, WARMUP_STEPS, Events

MIN_FAST_GROWTH_SHARE = 0.001
"""Share of the peak; growth by it per step doubles the memory within 1,000 steps."""
MIN_LARGE_REQUEST_BYTES = 1 << 20
"""Smaller requests have separate blocks, which grow regardless of other unused memory."""
MAX_NAMED_OPS = 3
UNSETTLED = 0.5
"""Confidence that unused memory is fragmentation and not the cache of an earlier peak."""
CHURN_CONFIDENCE = 0.6
"""The host time in the calls was measured; the effect on the step was not."""

LEAK = Rule(
    "memory_leak",
    states="over at least {min_steps} steps after the first, the minimum of allocated memory in a step "
    "grows by at least {min_growth_bytes} per step, and the lower bound of its confidence interval is above "
    "{min_steady_share} of that; on the host not of a program with several Python threads",
    why="the first step allocates persistent memory (optimizer states, workspaces); the interval of noise "
    "or of growth that ends includes zero; torch reports only what the thread of the steps frees; random "
    "minima of a few steps rarely exceed {min_steady_share} of the growth; {min_growth_bytes} per step are "
    "gigabytes over a training, and a program may store less by design, such as losses",
    bound=Bottleneck.LAUNCH,
    thresholds={"min_steps": MIN_FLOORS, "min_growth_bytes": 64 << 10, "min_steady_share": 0.5},
)
UNUSED = Rule(
    "unused_reserved_memory",
    states="at the peak, more than {min_unused_share} of the reserved memory and more than "
    "{min_unused_bytes} are not allocated",
    why="the caching allocator rounds and splits blocks, which costs a few percent; less than "
    "{min_unused_bytes} does not allow a larger batch or model",
    bound=Bottleneck.LAUNCH,
    thresholds={"min_unused_share": 0.2, "min_unused_bytes": 512 << 20},
)
CHURN = Rule(
    "allocator_churn",
    states="in at least {min_steps} steps after the first, the host allocates or frees device memory at the "
    "driver (cudaMalloc, cudaFree and similar calls) for at least {min_saving_share} of a step, and the "
    "device is idle for as long; if no steps are marked, at least {min_frees} calls free memory in the "
    "later part of the capture",
    why="a caching allocator needs no calls after the first step; each call blocks the host, and cudaFree "
    "waits for the device; a single step may be an evaluation; without steps, start-up cannot be "
    "distinguished from a loop, but start-up rarely frees memory",
    bound=Bottleneck.HOST,
    thresholds={"min_steps": 2, "min_saving_share": MIN_SHARE, "min_frees": 50},
)
UNCACHED = Rule(
    "caching_allocator_off",
    states="at least {min_driver_share} of at least {min_tensors} `aten::empty` and `aten::empty_strided` "
    "calls contain an allocation at the driver; otherwise as `allocator_churn`, which it replaces",
    why="a caching allocator serves nearly all tensors from memory that it holds",
    bound=Bottleneck.HOST,
    thresholds={"min_tensors": 20, "min_driver_share": 0.5},
)
RULES = (LEAK, UNUSED, CHURN, UNCACHED)


def findings(
    run: Run, events: list[Events], tables: dict[str, pd.DataFrame], steps: pd.DataFrame
) -> list[Finding]:
    """Findings on leaks, then on unused memory, each for the device with most of it and for the host."""
    threads = program_settings(run.meta.environment).get("threads") or {}
    has_threads = threads.get("python", 1) > 1  # torch reports what is freed in the thread of the steps only
    places = {(of_device.rank, of_device.device): of_device for of_device in events}
    result = []
    growing = [
        row
        for row in _records(tables, "leak")
        if row["growth"] >= LEAK["min_growth_bytes"]
        and not (row[C.DEVICE] == HOST_DEVICE and has_threads)
        and row["growth_low"] >= LEAK["min_steady_share"] * row["growth"]
    ]
    for group in _by_kind(growing):
        row = max(group, key=lambda row: int(row["growth"]))
        of_device = places[row[C.RANK], row[C.DEVICE]]
        of_rank = steps[steps[C.RANK] == of_device.rank]
        result.append(_leak(run, of_device, row, of_rank, more=len(group) - 1))
    for group in _by_kind([row for row in _records(tables, "summary") if _unused(row)]):
        row = max(group, key=lambda row: int(row["fragmentation"]))
        result.append(_fragmented(places[row[C.RANK], row[C.DEVICE]], row, more=len(group) - 1))
    return result


def _by_kind(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Group rows of devices and of hosts; empty groups are omitted."""
    groups = ([row for row in rows if (row[C.DEVICE] == HOST_DEVICE) == host] for host in (False, True))
    return [group for group in groups if group]


def _others(more: int) -> str:
    return f"; also on {more} more" if more else ""


def _records(tables: dict[str, pd.DataFrame], name: str) -> list[dict[str, Any]]:
    return tables[name].to_dict("records") if name in tables else []  # type: ignore[return-value]


def _place(events: Events) -> str:
    device = "the host" if events.device == HOST_DEVICE else f"device {events.device}"
    return f"{device} of rank {events.rank}"


def _leak(run: Run, events: Events, row: dict[str, Any], steps: pd.DataFrame, *, more: int) -> Finding:
    leaked = _leaked(events, steps)
    ops = _largest_first(leaked)[C.OP_ROW].dropna()
    fast = row["growth"] >= MIN_FAST_GROWTH_SHARE * max(int(events.level.max()), 1)
    return Finding(
        code=LEAK.code,
        severity=Severity.HIGH if fast else Severity.WARN,
        title=f"Memory on {_place(events)} grows by {size(row['growth'])} per step (95% confidence: "
        f"{size(row['growth_low'])} to {size(row['growth_high'])}), over {row['steps']} steps"
        f"{_others(more)}",
        advice=_leak_advice(run, leaked),
        how="Theil–Sen slope of the minimum of allocated memory in each step after the first",
        confidence=CONFIDENT,
        evidence={"host_intervals": [int(row) for row in ops.drop_duplicates().head(EVIDENCE_ROWS)]},
    )


def _leaked(events: Events, steps: pd.DataFrame) -> pd.DataFrame:
    """Unfreed allocations of the steps after the first, except the last events, whose may be freed later."""
    if events.unfreed is None:
        return events.frame.iloc[:0]
    later = steps.iloc[WARMUP_STEPS:]
    start, end = int(later[C.START_NS].iloc[0]), int(later[C.START_NS].iloc[-1])
    return events.frame[events.unfreed & (events.t_ns >= start) & (events.t_ns < end)]


def _leak_advice(run: Run, leaked: pd.DataFrame) -> str:
    fix = (
        "Look for references that persist across steps: tensors in lists or logs (use `.item()` or "
        "`.detach()`), a loss summed with its graph, hooks, growing caches, or a library's workspaces."
    )
    if leaked.empty:
        return f"This capture does not show which allocations are not freed. {fix}"
    sizes = leaked[C.BYTES].groupby(leaked[OP].astype(object)).agg(["sum", "count"]).reset_index()
    top = sizes.sort_values(["sum", OP], ascending=[False, True]).head(MAX_NAMED_OPS)
    named = ", ".join(
        f"{size(int(total))} by {op} ({count:,} allocations)"
        for op, total, count in top.itertuples(index=False, name=None)
    )
    lines = source_lines(run, _largest_first(leaked[leaked[OP] == top[OP].iloc[0]])[C.OP_ROW].head(1))
    line = f", the largest at {lines.iloc[0]}" if len(lines) and lines.iloc[0] else ""
    without = "" if (leaked[OP] != NO_OP).any() else " They were made outside recorded ops."
    return f"Allocated after the first step and not freed before the last: {named}{line}.{without} {fix}"


def _largest_first(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sort_values([C.BYTES, C.T_NS, C.ADDRESS], ascending=[False, True, True])


def _unused(row: dict[str, Any]) -> bool:
    unused, reserved = row["fragmentation"], row["peak_reserved"]
    if pd.isna(unused) or pd.isna(reserved):
        return False
    large = unused > UNUSED["min_unused_bytes"]
    return bool(large and unused > UNUSED["min_unused_share"] * (unused + row["peak_allocated"]))


def _fragmented(events: Events, row: dict[str, Any], *, more: int) -> Finding:
    unused, reserved = int(row["fragmentation"]), int(row["fragmentation"]) + int(row["peak_allocated"])
    grown, spare = _grown(events)
    measured = grown > 0 and spare > UNUSED["min_unused_bytes"]
    cause = (
        f"The allocator reserved {size(grown)} more during the capture for requests smaller than its unused "
        f"memory (up to {size(spare)}): its free blocks did not fit, because of their sizes or streams."
        if measured
        else "It may be free blocks that fit no request, or the cache of an earlier peak; "
        "`torch.cuda.memory_stats()['inactive_split_bytes.all.peak']` shows which."
    )
    return Finding(
        code=UNUSED.code,
        severity=Severity.WARN if measured else Severity.INFO,
        title=f"At the peak {size(unused)} of the {size(reserved)} reserved on {_place(events)} were unused "
        f"({percent(unused / reserved)}){_others(more)}",
        advice=f"{cause} Against fragmentation set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and "
        "give inputs few distinct shapes.",
        how="reserved minus allocated bytes at the peak of allocated bytes",
        confidence=CONFIDENT if measured else UNSETTLED,
    )


def _grown(events: Events) -> tuple[int, int]:
    """Bytes newly reserved for requests below the unused memory, and the maximum of the latter then."""
    reserved = events.reserved
    if reserved is None:
        return 0, 0
    rise = reserved[1:] - reserved[:-1]
    unused, requested = (reserved - events.level)[:-1], events.bytes[1:]
    fits = (rise > 0) & (requested > MIN_LARGE_REQUEST_BYTES) & (requested <= unused)
    return int(rise[fits].sum()), int(unused[fits].max(initial=0))


def churn_findings(run: Run, calls: pd.DataFrame) -> list[Finding]:
    """Findings on recurring calls of the driver for memory."""
    later = calls[calls[AFTER_WARMUP]]
    if not len(later):
        return []
    budget, is_off = savings.budget(run), _caching_is_off(run, calls)
    if budget.marked:
        recurs = int(later.groupby(C.RANK)[C.STEP].nunique().max()) >= CHURN["min_steps"]
    else:
        recurs = int(matches(later[C.NAME], FREES).sum()) >= CHURN["min_frees"]
    if is_off and not budget.marked:
        later = calls  # the first calls are like all others
    blocked = _blocked(later)
    total = int(blocked.sum())
    if not (recurs and budget.matters(total, least=CHURN["min_saving_share"])):
        return []
    idle = _idle_in(run, later).clip(upper=idle_by_rank(run, blocked.index))
    saved = int(blocked.clip(upper=idle).sum())
    if not budget.matters(saved, least=CHURN["min_saving_share"]):
        return []
    finding = _churn_finding(run, later, total, saved, budget)
    if is_off:
        title = finding.title.replace("Device memory", "Caching allocator off", 1)
        finding = replace(finding, code=UNCACHED.code, title=title, advice=_UNCACHED)
    return [finding]


_UNCACHED = (
    "Most new tensors are allocated at the driver, one by one, so PyTorch's caching allocator is disabled: "
    "unset PYTORCH_NO_CUDA_MEMORY_CACHING and PYTORCH_NO_HIP_MEMORY_CACHING."
)


def _caching_is_off(run: Run, calls: pd.DataFrame) -> bool:
    """Whether most new tensors are allocated at the driver."""
    where = is_kind(HostKind.OP) & pc.field(C.NAME).isin(["aten::empty", "aten::empty_strided"])
    tensors = run.table("host_intervals", columns=[C.ROW_ID], where=where)[C.ROW_ID]
    allocating = calls[matches(calls[C.NAME], r"(?i)malloc")][C.PARENT_ROW]
    return len(tensors) >= UNCACHED["min_tensors"] and int(tensors.isin(allocating).sum()) >= UNCACHED[
        "min_driver_share"
    ] * len(tensors)


def _blocked(calls: pd.DataFrame) -> pd.Series:
    """Time of each rank in which a thread is in one of the calls."""
    codes, ranks = pd.factorize(calls[C.RANK], sort=True)
    return pd.Series(union_by(codes.astype(np.int64), len(ranks), *spans(calls)), index=ranks)


def _idle_in(run: Run, calls: pd.DataFrame) -> pd.Series:
    """Time in the calls of each rank in which its busiest device is idle."""
    rows, idle = busy(run, [C.RANK, C.DEVICE, C.START_NS, C.DUR_NS]), {}
    for rank, of_rank in calls.groupby(C.RANK):
        inside, devices = intervals.union(*spans(of_rank)), rows[rows[C.RANK] == rank].groupby(C.DEVICE)
        unions = (intervals.union(*spans(of_device)) for _, of_device in devices)
        overlaps = (intervals.length(intervals.intersect(inside, union)) for union in unions)
        idle[int(str(rank))] = intervals.length(inside) - max(overlaps, default=0)
    return pd.Series(idle, dtype="int64")


def _churn_finding(run: Run, calls: pd.DataFrame, total: int, saved: int, budget: Budget) -> Finding:
    frees, steps = int(matches(calls[C.NAME], FREES).sum()), len(calls[[C.RANK, C.STEP]].drop_duplicates())
    when = f"{steps:,} steps after the first" if budget.marked else "the second half of the capture"
    return budget.finding(
        CHURN,
        saved,
        f"Device memory: {len(calls) - frees:,} allocations and {frees:,} frees at the driver: "
        f"{duration(budget.per_step(total))} {budget.per}, {percent(budget.share(total))}",
        f"They are in {when}. {_place_of_calls(run, calls)} {_advise_on_cause(run, calls)}",
        "upper bound: time in which a thread of the rank is in such a call, and its busiest device is idle",
        confidence=CHURN_CONFIDENCE,
        evidence={"host_intervals": largest_rows(calls, C.DUR_NS)},
    )


def _place_of_calls(run: Run, calls: pd.DataFrame) -> str:
    """Op with most of the time, and the source line of its longest call."""
    ops = fill_missing_text(host_rows(run, calls[C.PARENT_ROW], [C.NAME])[C.NAME], NO_OP)
    sums = calls.groupby(ops, sort=True)[C.DUR_NS].sum()
    op, part = str(sums.idxmax()), int(sums.max()) / max(int(sums.sum()), 1)
    longest = calls[ops == op].sort_values([C.DUR_NS, C.ROW_ID], ascending=[False, True]).head(1)
    line = str(source_lines(run, longest[C.ROW_ID].astype("Int64")).iloc[0])
    place = "outside recorded ops" if op == NO_OP else f"inside {op}"
    return f"{percent(part)} of that time is {place}{f' at {line}' if line else ''}."


def _advise_on_cause(run: Run, calls: pd.DataFrame) -> str:
    """Likely cause of such calls."""
    library = "or a library allocates its workspace at the driver, which the ops above would show"
    if not matches(calls[C.NAME], FREES).any():
        return (
            f"Memory is only allocated: the allocator's cache cannot serve some sizes, {library}. Give "
            "inputs few distinct shapes (pad or bucket them), run the largest batch first, or set "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
        )
    frames = run.table("host_intervals", columns=[C.NAME], where=is_kind(HostKind.PYTHON))[C.NAME]
    if matches(frames, r"\bempty_cache$").any():
        return "The program calls empty_cache, which frees the cache: remove that call from the loop."
    return (
        "Memory is freed and allocated again: either allocations fail and are retried after emptying the "
        "cache  (`torch.cuda.memory_stats()['num_alloc_retries']` above zero; then use less memory "
        "or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True), or the program calls empty_cache (stacks "
        f"would show it), {library}."
    )
