"""A comparison's ledgers as tables: where a step went, and what its work became."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import Column
from tracekit.render.cells import PROSE
from tracekit.render.diff_table import BASE, DELTA, HEAD, NOT_MATCHED, Table, per_step

if TYPE_CHECKING:
    from tracekit.diff.ledgers import Terms
    from tracekit.diff.model import Diff

TERMS = (
    Column("added_ns", "ns", "only the head has it"),
    Column("removed_ns", "ns", "only the base has it"),
    Column("count_ns", "ns", "more or fewer of the same"),
    Column("rate_ns", "ns", "slower or faster of the same"),
)


def wall(diff: Diff) -> Table:
    """The wall ledger, and what joins it to the work ledger."""
    columns = (
        Column("part", "", "what the step was filled with"),
        BASE,
        HEAD,
        DELTA,
        Column("share_base", "share", "of the base's step"),
        Column("share_head", "share", "of the head's step"),
        Column("meaning", PROSE, "what it is"),
    )
    if diff.wall is None:
        return Table("wall", "", columns)
    total = diff.wall.total
    rows = [
        {
            "part": line.name,
            "base_ns": per_step(diff, line.a_ns),
            "head_ns": per_step(diff, line.b_ns),
            "delta_ns": per_step(diff, line.delta),
            "share_base": line.a_ns / total.a_ns if total.a_ns else None,
            "share_head": line.b_ns / total.b_ns if total.b_ns else None,
            "meaning": line.meaning,
        }
        for line in (*diff.wall.lines, total, diff.wall.overlap)
        if line.a_ns or line.b_ns or line is total
    ]
    return Table("wall", "Wall ledger: where a step went, the mean of those compared", columns, rows)


def work(diff: Diff) -> Table:
    """The work ledger in one row."""
    columns = (
        BASE,
        HEAD,
        DELTA,
        *TERMS,
        Column("residual_ns", "ns", "what the terms leave unexplained"),
    )
    if diff.work is None:
        return Table("work", "", columns)
    ledger = diff.work
    row = {
        "base_ns": per_step(diff, ledger.a_ns),
        "head_ns": per_step(diff, ledger.b_ns),
        "delta_ns": per_step(diff, ledger.b_ns - ledger.a_ns),
        **terms(diff, ledger.terms),
        "residual_ns": ledger.residual,
    }
    return Table(
        "work", "Work ledger: Σ of durations of a step, Δ = added − removed + count + rate", columns, [row]
    )


def terms(diff: Diff, of: Terms) -> dict[str, int]:
    """The terms of a difference per step."""
    return {f"{name}_ns": per_step(diff, getattr(of, name)) for name in ("added", "removed", "count", "rate")}


def match(diff: Diff) -> Table:
    """How much time was matched on which rung."""
    columns = (
        Column("matched_by", "", "how it was matched, the strongest evidence first"),
        Column("groups", "count", "number of groups"),
        BASE,
        HEAD,
        Column("share_base", "share", "of the base's work"),
        Column("share_head", "share", "of the head's work"),
    )
    if diff.match is None or diff.work is None:
        return Table("match", "", columns)
    rows = [
        {
            "matched_by": one.rung or NOT_MATCHED,
            "groups": one.groups,
            "base_ns": per_step(diff, one.a_ns),
            "head_ns": per_step(diff, one.b_ns),
            "share_base": one.a_ns / diff.work.a_ns if diff.work.a_ns else None,
            "share_head": one.b_ns / diff.work.b_ns if diff.work.b_ns else None,
        }
        for one in diff.match.by_rung
    ]
    return Table("match", "How work was matched, per step", columns, rows)
