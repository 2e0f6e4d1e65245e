"""Findings of `memory` on amounts: leaks, and reserved memory that is not used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Bottleneck, Finding, Rule, Severity
from tracekit.analysis.savings import CONFIDENT
from tracekit.runs.run import Run
from tracekit.schema import HOST_DEVICE, C

from ..shared.common import percent, size
from ..shared.host_rows import NO_OP, source_lines
from .allocations import FEWEST_FLOORS, OP, WARMUP_STEPS

if TYPE_CHECKING:
    from .allocations import Events

LEAST_GROWTH = 64 << 10
STEADY = 0.5
FAST_GROWTH = 0.001
"""Share of the peak; growth by it per step doubles the memory within 1,000 steps."""
UNUSED_SHARE = 0.2
UNUSED_BYTES = 512 << 20
SMALL_REQUEST = 1 << 20
NAMED_OPS = 3
UNSETTLED = 0.5
"""Confidence that unused memory is fragmentation and not the cache of an earlier peak."""

RULES = (
    Rule(
        "memory_leak",
        f"over at least {FEWEST_FLOORS} steps after the first, the minimum of allocated memory in a step "
        f"grows by at least {LEAST_GROWTH >> 10} KiB per step, and the lower bound of its 95% confidence "
        "interval is above half of that",
        "the first step allocates persistent memory (optimizer states, workspaces); the interval of noise or "
        "of growth that ends includes zero; random minima of 4 to 10 steps exceed half of the growth once in "
        "100; 64 KiB per step are 6 GiB in 100,000 steps, and a program may store less by design, such as "
        "losses",
        bound=Bottleneck.LAUNCH,
    ),
    Rule(
        "unused_reserved_memory",
        f"at the peak, more than {UNUSED_SHARE:.0%} of the reserved memory and more than "
        f"{UNUSED_BYTES >> 20} MiB are not allocated",
        "the caching allocator rounds and splits blocks, which costs a few percent; less than 512 MiB "
        "does not allow a larger batch or model",
        bound=Bottleneck.LAUNCH,
    ),
)


def findings(
    run: Run, events: list[Events], tables: dict[str, pd.DataFrame], steps: pd.DataFrame
) -> list[Finding]:
    """Findings on leaks, then on unused memory, each for the worst device and for the host."""
    places = {(one.rank, one.device): one for one in events}
    found = []
    growing = [one for one in _records(tables, "leak") if one["growth"] >= LEAST_GROWTH]
    for group in _by_kind([one for one in growing if one["growth_low"] >= STEADY * one["growth"]]):
        row = max(group, key=lambda row: int(row["growth"]))
        one = places[row[C.RANK], row[C.DEVICE]]
        found.append(_leak(run, one, row, steps[steps[C.RANK] == one.rank], more=len(group) - 1))
    for group in _by_kind([row for row in _records(tables, "summary") if _unused(row)]):
        row = max(group, key=lambda row: int(row["fragmentation"]))
        found.append(_fragmented(places[row[C.RANK], row[C.DEVICE]], row, more=len(group) - 1))
    return found


def _by_kind(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Group rows of devices and of hosts; empty groups are omitted."""
    groups = ([row for row in rows if (row[C.DEVICE] == HOST_DEVICE) == host] for host in (False, True))
    return [group for group in groups if group]


def _others(more: int) -> str:
    return f"; also on {more} more" if more else ""


def _records(tables: dict[str, pd.DataFrame], name: str) -> list[dict[str, Any]]:
    return tables[name].to_dict("records") if name in tables else []  # type: ignore[return-value]


def _place(one: Events) -> str:
    device = "the host" if one.device == HOST_DEVICE else f"device {one.device}"
    return f"{device} of rank {one.rank}"


def _leak(run: Run, one: Events, row: dict[str, Any], steps: pd.DataFrame, *, more: int) -> Finding:
    leaked = _leaked(one, steps)
    ops = _largest_first(leaked)[C.OP_ROW].dropna()
    fast = row["growth"] >= FAST_GROWTH * max(int(one.level.max()), 1)
    return Finding(
        code="memory_leak",
        severity=Severity.HIGH if fast else Severity.WARN,
        title=(
            f"Memory on {_place(one)} grows by {size(row['growth'])} per step (95% confidence: "
            f"{size(row['growth_low'])} to {size(row['growth_high'])}), over {row['steps']} steps"
            f"{_others(more)}"
        ),
        advice=_leak_advice(run, leaked),
        how="Theil–Sen slope of the minimum of allocated memory in each step after the first",
        confidence=CONFIDENT,
        evidence={"host_intervals": [int(row) for row in ops.drop_duplicates().head(EVIDENCE_ROWS)]},
    )


def _leaked(one: Events, steps: pd.DataFrame) -> pd.DataFrame:
    """Unfreed allocations of the steps after the first, except the last one, whose may be freed later."""
    if one.unfreed is None:
        return one.frame.iloc[:0]
    later = steps.iloc[WARMUP_STEPS:]
    start, end = int(later[C.START_NS].iloc[0]), int(later[C.START_NS].iloc[-1])
    return one.frame[one.unfreed & (one.t_ns >= start) & (one.t_ns < end)]


def _leak_advice(run: Run, leaked: pd.DataFrame) -> str:
    fix = (
        "Look for references that persist across steps: tensors in lists or logs (use `.item()` or "
        "`.detach()`), a loss summed with its graph, hooks, growing caches, or a library's workspaces."
    )
    if leaked.empty:
        return f"This capture does not show which allocations are not freed. {fix}"
    sizes = leaked[C.BYTES].groupby(leaked[OP].astype(object)).agg(["sum", "count"]).reset_index()
    top = sizes.sort_values(["sum", OP], ascending=[False, True]).head(NAMED_OPS)
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
    return bool(unused > UNUSED_BYTES and unused > UNUSED_SHARE * (unused + row["peak_allocated"]))


def _fragmented(one: Events, row: dict[str, Any], *, more: int) -> Finding:
    unused, reserved = int(row["fragmentation"]), int(row["fragmentation"]) + int(row["peak_allocated"])
    grown, spare = _grown(one)
    measured = grown > 0 and spare > UNUSED_BYTES
    cause = (
        f"The allocator reserved {size(grown)} more during the capture for requests smaller than its unused "
        f"memory (up to {size(spare)}): its free blocks did not fit, because of their sizes or streams."
        if measured
        else "It may be free blocks that fit no request, or the cache of an earlier peak; "
        "`torch.cuda.memory_stats()['inactive_split_bytes.all.peak']` shows which."
    )
    return Finding(
        code="unused_reserved_memory",
        severity=Severity.WARN if measured else Severity.INFO,
        title=(
            f"At the peak {size(unused)} of the {size(reserved)} reserved on {_place(one)} were unused "
            f"({percent(unused / reserved)}){_others(more)}"
        ),
        advice=(
            f"{cause} Against fragmentation set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and give "
            "inputs few distinct shapes."
        ),
        how="reserved minus allocated bytes at the peak of allocated bytes",
        confidence=CONFIDENT if measured else UNSETTLED,
    )


def _grown(one: Events) -> tuple[int, int]:
    """Bytes newly reserved for requests smaller than the unused memory, and the maximum unused memory then.

    Small requests have separate blocks, which grow regardless of other unused memory.
    """
    reserved = one.reserved
    if reserved is None:
        return 0, 0
    rise = reserved[1:] - reserved[:-1]
    unused, requested = (reserved - one.level)[:-1], one.bytes[1:]
    fits = (rise > 0) & (requested > SMALL_REQUEST) & (requested <= unused)
    return int(rise[fits].sum()), int(unused[fits].max(initial=0))
