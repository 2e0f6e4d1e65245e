"""Tables of a comparison, shared by its output formats.

The JSON output has the exact totals over all compared steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tracekit.analysis import Column
from tracekit.diff.breakdowns import BreakdownLine, Terms
from tracekit.diff.matching import path_of
from tracekit.diff.model import Diff
from tracekit.runs.text import ID, PROSE, human, shorten

__all__ = ["Table", "alone", "causes", "counts", "differences", "groups", "match", "metrics", "wall", "work"]


_LONGEST_NAME = 48
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


def differences(diff: Diff) -> Table:
    """Return the fields in which the runs differ."""
    columns = (
        Column("field", "", "name for --varying"),
        Column("status", "", "effect on the comparison"),
        Column("base", "prose", "value of the base"),
        Column("head", "prose", "value of the head"),
    )
    rows = [
        {"field": one.field, "status": str(one.status), **_values(one.base, one.head)}
        for one in diff.comparability.differences
    ]
    return Table("differences", "Differences of the runs", columns, rows)


def _values(base: Any, head: Any) -> dict[str, str | None]:
    return {"base": None if base is None else str(base), "head": None if head is None else str(head)}


def metrics(diff: Diff) -> Table:
    """Return the metrics, each in its unit."""
    rows = [
        {
            "metric": one.name,
            "unit": one.unit,
            "base": one.a,
            "head": one.b,
            "change": None if one.ratio is None else one.ratio - 1,
            "95%_interval": None
            if one.ci95 is None
            else " to ".join(f"{100 * (end - 1):+z.1f}%" for end in one.ci95),
            "least_detectable": one.mde,
            "verdict": str(one.verdict),
            "basis": one.basis,
        }
        for one in diff.metrics
    ]
    return Table("metrics", "Metrics", filled(_METRICS, rows), rows)


_METRICS = (
    Column("metric", "", "metric"),
    Column("unit", "", "ns or bytes"),
    Column("base", "", "median of the base", unit_in="unit"),
    Column("head", "", "median of the head", unit_in="unit"),
    Column("change", "share", "head over base, minus 1"),
    Column(
        "95%_interval",
        "id",
        "95% confidence interval of the change; for exact metrics, the range over the runs",
    ),
    Column("least_detectable", "share", "minimum detectable effect: smallest change these runs can detect"),
    Column("verdict", "id", "verdict at the threshold"),
    Column("basis", "prose", "how it was measured"),
)


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
        Column("largest_change", "", "op or kernel whose time in this part changed most, per step"),
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
            "largest_change": _changed(diff, line),
            "meaning": line.meaning,
        }
        for line in (*diff.wall.lines, total, diff.wall.overlap)
        if line.a_ns or line.b_ns or line is total
    ]
    return Table("wall", "Wall ledger: step time by part, mean of the compared steps", columns, rows)


def _changed(diff: Diff, line: BreakdownLine) -> str | None:
    """Name the op or kernel that changed most in a part, with its change per step; None if unknown."""
    if not line.changed:
        return None
    return f"{shorten(line.changed, _LONGEST_NAME)} {signed(per_step(diff, line.changed_ns))}"


def signed(ns: int) -> str:
    """Format a change with its sign."""
    return f"{'+' if ns > 0 else ''}{human(ns, 'ns')}"


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
            "matched_by": one.name or NOT_MATCHED,
            "groups": one.groups,
            "base_ns": per_step(diff, one.a_ns),
            "head_ns": per_step(diff, one.b_ns),
            "share_base": one.a_ns / diff.work.a_ns if diff.work.a_ns else None,
            "share_head": one.b_ns / diff.work.b_ns if diff.work.b_ns else None,
        }
        for one in diff.match.by_level
    ]
    return Table("match", "Matching of base and head, per step", columns, rows)


LEAST = Column("least_ns", "ns", "least difference between any step of the head and any of the base")
MOST = Column("most_ns", "ns", "most difference between any step of the head and any of the base")
_NOISE = Column("noise", ID, "within: the steps of both sides overlap, so the change may be noise")
_MADE_OF = Column("made_of", PROSE, "nonzero terms of the difference")
_MODULE = Column("module", "", "some of the modules it runs in")
_MATCHED_BY = Column("matched_by", ID, "how base and head were matched")


def _made_of(diff: Diff, terms: Terms) -> str | None:
    """Format the nonzero terms with their signs; None if all are below 1 ns per step."""
    parts = {"added": terms.added, "removed": -terms.removed, "count": terms.count, "rate": terms.rate}
    nonzero = [(name, per_step(diff, value)) for name, value in parts.items() if per_step(diff, value)]
    return " · ".join(f"{name} {signed(value)}" for name, value in nonzero) or None


def causes(diff: Diff, *, spelled: bool = True) -> Table:
    """Return the lines of the work ledger.

    Args:
        diff: The comparison.
        spelled: Describe nonzero terms in one text column, instead of a column per term.
    """
    module = (_MODULE,) if diff.by != "module" and any(one.modules for one in diff.causes) else ()
    columns = (
        Column(diff.by, "", "op, module or kernel of the line"),
        *((DELTA, BASE, _MADE_OF) if spelled else (DELTA, BASE, HEAD, *TERMS, LEAST, MOST)),
        _NOISE,
        *NUMBERS,
        Column("what", "", "kernel, copy or op that ran"),
        *((*module, _MATCHED_BY) if spelled else (_MATCHED_BY, *module)),
    )
    rows = [
        {
            diff.by: one.label,
            "delta_ns": per_step(diff, one.terms.delta),
            "base_ns": per_step(diff, one.a.total_ns),
            "head_ns": per_step(diff, one.b.total_ns),
            **terms(diff, one.terms),
            "least_ns": one.change[0] if one.change else None,
            "most_ns": one.change[1] if one.change else None,
            "noise": "within" if one.noisy else None,
            "made_of": _made_of(diff, one.terms),
            **numbers(diff, one.a.count, one.b.count),
            "matched_by": ", ".join(level or NOT_MATCHED for level in one.match_levels),
            "what": one.detail or None,
            **({} if diff.by == "module" else {"module": ", ".join(one.modules) or None}),
        }
        for one in diff.causes
    ]
    return Table("causes", "Causes: lines of the work ledger, per step", filled(columns, rows), rows)


def groups(diff: Diff) -> Table:
    """Return the matched groups that differ."""
    columns = (
        Column("what", "", "kernel, copy or op that ran"),
        Column("path", "", "ops that launched it"),
        DELTA,
        _MADE_OF,
        *NUMBERS,
        Column("role", "", "kind of work"),
        _MATCHED_BY,
        Column("shapes", "", "input shapes of the op that launched the longest interval"),
        Column("module", "", "module of that op"),
    )
    rows = [
        {
            "what": one.what,
            "path": path_of(one),
            "delta_ns": per_step(diff, one.terms.delta),
            "made_of": _made_of(diff, one.terms),
            **numbers(diff, one.a.count, one.b.count),
            "role": one.role,
            "matched_by": one.match_level or NOT_MATCHED,
            "shapes": one.shapes or None,
            "module": one.module or None,
        }
        for one in diff.groups
    ]
    return Table("groups", "Groups that differ, per step", columns, rows)


def counts(diff: Diff) -> Table:
    """Return the work whose count changed."""
    columns = (
        Column("op", "", "ops that launched it"),
        *NUMBERS,
        Column("what", "", "kernel, copy or op that ran"),
    )
    rows = [{"op": one.label, "what": one.name, **numbers(diff, one.a, one.b)} for one in diff.counts]
    return Table("counts", "Changed counts per step (exact, no test needed)", columns, rows)


def alone(diff: Diff) -> Table:
    """Return names that run on one side only, with the names they were matched with on the other side."""
    columns = (
        Column("only_in", "", "side it runs on"),
        Column("name", "", "name without parameters"),
        Column("time_ns", "ns", "time on that side, per step"),
        Column("matched_ns", "ns", "part matched with work of other names; the rest is added or removed"),
        Column("times", "count", "intervals per step"),
        Column("role", "", "kind of work"),
        Column("instead", "", "some of the names it was matched with"),
    )
    both = [("base", one) for one in diff.only_base] + [("head", one) for one in diff.only_head]
    rows = [
        {
            "only_in": side,
            "name": one.name,
            "time_ns": per_step(diff, one.total_ns),
            "matched_ns": per_step(diff, one.matched_ns),
            "times": number(diff, one.count),
            "role": one.role,
            "instead": ", ".join(one.instead) or None,
        }
        for side, one in sorted(both, key=lambda each: -each[1].total_ns)  # both sides by time, mixed
    ]
    return Table("alone", "Names on one side only, per step", columns, rows)
