"""Parts shared by the tables of a comparison, in whole nanoseconds per compared step.

The JSON output has the exact totals over all compared steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit.analysis import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.diff.model import Diff

NOT_MATCHED = "one side"
BASE = Column("base_ns", "ns", "base, per step")
HEAD = Column("head_ns", "ns", "head, per step")
DELTA = Column("delta_ns", "ns", "head minus base, per step")
NUMBERS = (
    Column("n_base", "count", "intervals per step of the base"),
    Column("n_head", "count", "intervals per step of the head"),
)


@dataclass(frozen=True)
class Table:
    """A table to render: name, title, columns in order, and rows by column name."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: list[dict[str, Any]] = field(default_factory=list)


def filled(columns: Sequence[Column], rows: list[dict[str, Any]]) -> tuple[Column, ...]:
    """Return the columns with any value; without rows all columns, for the header."""
    if not rows:
        return tuple(columns)
    return tuple(one for one in columns if any(row[one.name] is not None for row in rows))


def per_step(diff: Diff, total: int) -> int:
    """Divide a total over the compared steps by their number, rounded."""
    return round(total / steps(diff))


def numbers(diff: Diff, a: int, b: int) -> dict[str, int | float]:
    """Return the counts of both sides per step."""
    return {"n_base": number(diff, a), "n_head": number(diff, b)}


def number(diff: Diff, value: int) -> int | float:
    """Return a count per step, an integer if it divides evenly."""
    many = steps(diff)
    return value // many if value % many == 0 else value / many


def steps(diff: Diff) -> int:
    """Return the number of compared steps of a side, at least 1."""
    return max(1, diff.compared.steps) if diff.compared else 1
