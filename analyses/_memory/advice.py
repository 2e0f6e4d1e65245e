"""The findings of `memory` on amounts: leaks and memory that is reserved and not used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Finding, Rule, Severity
from tracekit.savings import CONFIDENT
from tracekit.schema import HOST_DEVICE, C

from .._shared.hosts import NO_OP, source_lines
from .._shared.units import percent, size
from .allocations import OP
from .tables import FEWEST_STEPS, WARMUP_STEPS

if TYPE_CHECKING:
    from tracekit.run import Run

    from .allocations import Events

LEAST_GROWTH = 64 << 10
STEADY = 0.5
FAST_GROWTH = 0.001
"""Growth of that share of the peak a step doubles the memory within 1,000 steps."""
UNUSED_SHARE = 0.2
UNUSED_BYTES = 512 << 20
SMALL_REQUEST = 1 << 20
NAMED_OPS = 3
UNSETTLED = 0.5
"""Confidence that unused memory hinders: a cache left by an earlier peak looks alike."""

RULES = (
    Rule(
        "memory_leak",
        f"over at least {FEWEST_STEPS} steps after the first, the least memory allocated in a step grows by "
        "64 KiB per step or more, and the lower end of its 95% confidence interval is above half of that",
        "the first step allocates what stays (optimizer states, workspaces); growth that ends, or noise, has "
        "an interval that reaches zero; random floors of 4 to 10 steps pass half of the growth once in "
        "100; 64 KiB a step are 6 GiB in 100,000 steps, and less is what a program keeps on purpose, such "
        "as losses",
    ),
    Rule(
        "unused_reserved_memory",
        "at the peak, more than 20% of the reserved memory and more than 512 MiB are not allocated",
        "the caching allocator rounds and splits blocks, which costs some percent; below 512 MiB no larger "
        "batch or model would fit instead",
    ),
)


def findings(
    run: Run, events: list[Events], tables: dict[str, pd.DataFrame], steps: pd.DataFrame
) -> list[Finding]:
    """Leaks of devices and of the host, then unused memory: the worst place of each, and how many more."""
    places = {(one.rank, one.device): one for one in events}
    found = []
    for group in _by_kind([row for row in _records(tables, "leak") if _grows(row)]):
        row = max(group, key=lambda row: int(row["growth"]))
        one = places[row[C.RANK], row[C.DEVICE]]
        found.append(_leak(run, one, row, steps[steps[C.RANK] == one.rank], more=len(group) - 1))
    for group in _by_kind([row for row in _records(tables, "summary") if _unused(row)]):
        row = max(group, key=lambda row: int(row["fragmentation"]))
        found.append(_fragmented(places[row[C.RANK], row[C.DEVICE]], row, more=len(group) - 1))
    return found


def _by_kind(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Those of devices and those of hosts, as far as there are any."""
    groups = ([row for row in rows if (row[C.DEVICE] == HOST_DEVICE) == host] for host in (False, True))
    return [group for group in groups if group]


def _grows(row: dict[str, Any]) -> bool:
    return bool(row["growth"] >= LEAST_GROWTH and row["growth_low"] >= STEADY * row["growth"])


def _others(more: int) -> str:
    return f"; the same on {more} more" if more else ""


def _records(tables: dict[str, pd.DataFrame], name: str) -> list[dict[str, Any]]:
    return tables[name].to_dict("records") if name in tables else []  # type: ignore[return-value]


def _place(one: Events) -> str:
    device = "the host" if one.device == HOST_DEVICE else f"device {one.device}"
    return f"{device} of rank {one.rank}"


def _leak(run: Run, one: Events, row: dict[str, Any], steps: pd.DataFrame, *, more: int) -> Finding:
    kept = _leaked(one, steps)
    fast = row["growth"] >= FAST_GROWTH * max(int(one.level.max()), 1)
    return Finding(
        code="memory_leak",
        severity=Severity.HIGH if fast else Severity.WARN,
        title=(
            f"Memory on {_place(one)} grows by {size(row['growth'])} per step (95% confidence: "
            f"{size(row['growth_low'])} to {size(row['growth_high'])}), over {row['steps']} steps"
            f"{_others(more)}"
        ),
        advice=_leak_advice(run, kept),
        how="Theil–Sen slope of the least memory allocated in each step after the first",
        confidence=CONFIDENT,
        evidence={"host_intervals": _op_rows(kept)},
    )


def _leaked(one: Events, steps: pd.DataFrame) -> pd.DataFrame:
    """Allocations of the steps after the first that stay; not of the last one, where they may yet go."""
    if one.kept is None:
        return one.frame.iloc[:0]
    later = steps.iloc[WARMUP_STEPS:]
    start, end = int(later[C.START_NS].iloc[0]), int(later[C.START_NS].iloc[-1])
    return one.frame[one.kept & (one.t_ns >= start) & (one.t_ns < end)]


def _leak_advice(run: Run, kept: pd.DataFrame) -> str:
    fix = (
        "Look for what keeps them from one step to the next: tensors in lists or logs (use `.item()` or "
        "`.detach()`), a loss summed with its graph, hooks, caches that grow, or a library's workspaces."
    )
    if kept.empty:
        return f"Which allocations stay cannot be told from this capture. {fix}"
    sizes = kept[C.BYTES].groupby(kept[OP].astype(object)).agg(["sum", "count"]).reset_index()
    top = sizes.sort_values(["sum", OP], ascending=[False, True]).head(NAMED_OPS)
    named = ", ".join(
        f"{size(int(total))} by {op} ({count:,} allocations)"
        for op, total, count in top.itertuples(index=False, name=None)
    )
    lines = source_lines(run, _heaviest(kept[kept[OP] == top[OP].iloc[0]])[C.OP_ROW].head(1))
    line = f", the largest at {lines.iloc[0]}" if len(lines) and lines.iloc[0] else ""
    without = "" if (kept[OP] != NO_OP).any() else " They were made outside of recorded ops."
    return f"Allocated after the first step and not freed before the last: {named}{line}.{without} {fix}"


def _heaviest(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sort_values([C.BYTES, C.T_NS, C.ADDRESS], ascending=[False, True, True])


def _op_rows(kept: pd.DataFrame) -> list[int]:
    rows = _heaviest(kept)[C.OP_ROW].dropna().drop_duplicates().head(EVIDENCE_ROWS)
    return [int(row) for row in rows]


def _unused(row: dict[str, Any]) -> bool:
    unused, reserved = row["fragmentation"], row["peak_reserved"]
    if pd.isna(unused) or pd.isna(reserved):
        return False
    return bool(unused > UNUSED_BYTES and unused > UNUSED_SHARE * (unused + row["peak_allocated"]))


def _fragmented(one: Events, row: dict[str, Any], *, more: int) -> Finding:
    unused, held = int(row["fragmentation"]), int(row["fragmentation"]) + int(row["peak_allocated"])
    grown, spare = _grown(one)
    seen = grown > 0 and spare > UNUSED_BYTES
    cause = (
        f"The allocator reserved {size(grown)} more during the capture for requests smaller than what it had "
        f"unused (up to {size(spare)}): its free blocks did not fit, by their sizes or streams."
        if seen
        else "It may be free blocks that fit no request, or a cache left by an earlier peak; "
        "`torch.cuda.memory_stats()['inactive_split_bytes.all.peak']` tells which."
    )
    return Finding(
        code="unused_reserved_memory",
        severity=Severity.WARN if seen else Severity.INFO,
        title=(
            f"At the peak {size(unused)} of the {size(held)} reserved on {_place(one)} were unused "
            f"({percent(unused / held)}){_others(more)}"
        ),
        advice=(
            f"{cause} Against fragmentation set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and give "
            "inputs few distinct shapes."
        ),
        how="reserved minus allocated bytes after the event with most allocated",
        confidence=CONFIDENT if seen else UNSETTLED,
    )


def _grown(one: Events) -> tuple[int, int]:
    """How much was reserved anew for requests smaller than what was unused, and the most of that.

    Small requests have blocks of their own, which grow whatever else is unused.
    """
    reserved = one.reserved
    if reserved is None:
        return 0, 0
    rise = reserved[1:] - reserved[:-1]
    unused, asked = (reserved - one.level)[:-1], one.bytes[1:]
    fits = (rise > 0) & (asked > SMALL_REQUEST) & (asked <= unused)
    return int(rise[fits].sum()), int(unused[fits].max(initial=0))
