"""Text about idle time: its amount, the main ops, and the evidence rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import EVIDENCE_ROWS
from tracekit.kernel_names import LINE, brief
from tracekit.schema import C

from .._shared.units import duration, percent
from .rows import ANCHOR_ROW, BETWEEN, OP, SOURCE, WAIT_ROW, total

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from tracekit.savings import Budget

NAMED = 3
LEAST_NAMED = 0.01
ONE_OFF = 0.5
"""Share of a single gap from which the advice warns that it may be a one-time event."""


def one_off(rows: pd.DataFrame) -> str:
    """Warn if one gap makes up most of the idle time."""
    longest = int(rows[C.DUR_NS].max()) / total(rows)
    if longest < ONE_OFF:
        return ""
    amount = "It is a single gap" if len(rows) == 1 else f"A single gap is {percent(longest)} of it"
    return f". {amount}: if it happens only once, exclude it with warm-up steps"


def amount(rows: pd.DataFrame, allowed: Budget) -> str:
    """Text: share of the time, amount per step and number of gaps."""
    idle = total(rows)
    size = f"{percent(allowed.share(idle))} of the time: {duration(allowed.per_step(idle))} {allowed.per}"
    return f"{size}, in {len(rows):,} gap{'s' if len(rows) > 1 else ''}"


def largest_part(rows: pd.DataFrame, keys: Sequence[str] = (OP, SOURCE)) -> str:
    """Text: the ops with most idle time and their source lines."""
    sums = rows.groupby([*keys], observed=True)[C.DUR_NS].sum().reset_index()
    first = sums.sort_values([C.DUR_NS, *keys], ascending=[False, *(True for _ in keys)])[:NAMED]
    shares = first[C.DUR_NS] / total(rows)
    parts = [
        f"{_place([str(row[key]) for key in keys])} ({100 * part:.0f}%)"
        for (_, row), part in zip(first.iterrows(), shares, strict=True)
        if part >= LEAST_NAMED
    ]
    if (rows[OP] == BETWEEN).all() and not (rows[SOURCE] != "").any():
        return "No op or source line was recorded for these gaps"
    verb = "is" if len(parts) == 1 else "are"
    if parts:
        return f"The largest part{'s' if len(parts) > 1 else ''} {verb} {', '.join(parts)}"
    return f"It is spread over {len(sums):,} ops and lines"


def _place(names: list[str]) -> str:
    """Text `call in op at line`, without unknown or repeated parts."""
    *names, line = names
    text = " in ".join(brief(name) for name in names)
    return text if not line or line in names else f"{text} at {brief(line, LINE)}"


def evidence(rows: pd.DataFrame) -> dict[str, list[int]]:
    """Row ids of the longest gaps, and of the host rows responsible."""
    host = rows[WAIT_ROW].fillna(rows[ANCHOR_ROW]).fillna(rows[C.LAUNCH_ROW]).dropna().drop_duplicates()
    found = {"device_intervals": [int(row) for row in rows[C.ROW_ID][:EVIDENCE_ROWS]]}
    if len(host):
        found["host_intervals"] = [int(row) for row in host[:EVIDENCE_ROWS]]
    return found
