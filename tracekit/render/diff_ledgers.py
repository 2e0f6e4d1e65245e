"""Wall and work ledgers of a comparison as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import Column
from tracekit.render.cells import PROSE
from tracekit.render.diff_table import BASE, DELTA, HEAD, NOT_MATCHED, Table, per_step

if TYPE_CHECKING:
    from tracekit.diff.ledgers import Terms
    from tracekit.diff.model import Diff

TERMS = (
    Column("added_ns", "ns", "work in the head only"),
    Column("removed_ns", "ns", "work in the base only"),
    Column("count_ns", "ns", "change of the call count of the same work"),
    Column("rate_ns", "ns", "change of the time per call of the same work"),
)


def wall(diff: Diff) -> Table:
    """Return the wall ledger, and the overlap that links it to the work ledger."""
    columns = (
        Column("part", "", "part of the step"),
        BASE,
        HEAD,
        DELTA,
        Column("share_base", "share", "share of the base's step"),
        Column("share_head", "share", "share of the head's step"),
        Column("meaning", PROSE, "definition"),
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
    return Table("wall", "Wall ledger: step time by part, mean of the compared steps", columns, rows)


def work(diff: Diff) -> Table:
    """Return the work ledger, one row."""
    columns = (
        BASE,
        HEAD,
        DELTA,
        *TERMS,
        Column("residual_ns", "ns", "part not explained by the terms"),
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
        "work", "Work ledger: summed durations per step, Δ = added − removed + count + rate", columns, [row]
    )


def terms(diff: Diff, of: Terms) -> dict[str, int]:
    """Return the terms of a difference per step."""
    return {f"{name}_ns": per_step(diff, getattr(of, name)) for name in ("added", "removed", "count", "rate")}


def match(diff: Diff) -> Table:
    """Return the time matched by each kind of evidence."""
    columns = (
        Column("matched_by", "", "kind of evidence, strongest first"),
        Column("groups", "count", "number of groups"),
        BASE,
        HEAD,
        Column("share_base", "share", "share of the base's work"),
        Column("share_head", "share", "share of the head's work"),
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
    return Table("match", "Matching of base and head, per step", columns, rows)
