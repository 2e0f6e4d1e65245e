"""A comparison as tables for people: per compared step, in whole nanoseconds.

The exact totals over all compared steps are in the JSON output; here each is divided by their number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit.analysis import Column
from tracekit.diff.rollup import path_of, what
from tracekit.render.cells import human

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.diff.ledgers import Terms
    from tracekit.diff.model import Diff

NOT_MATCHED = "one side"


@dataclass(frozen=True)
class Table:
    """One table to show: its name, title, columns in order, and rows by column name."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: list[dict[str, Any]] = field(default_factory=list)


_BASE = Column("base_ns", "ns", "base, per step")
_HEAD = Column("head_ns", "ns", "head, per step")
_DELTA = Column("delta_ns", "ns", "head minus base, per step")


_METRICS = {"ns": "Metrics: time", "bytes": "Metrics: memory"}


def differences(diff: Diff) -> Table:
    """The fields in which the runs differ."""
    columns = (
        Column("field", "", "name, as --varying takes it"),
        Column("status", "", "what it means"),
        Column("base", "prose", "value of the base"),
        Column("head", "prose", "value of the head"),
    )
    rows = [
        {"field": one.field, "status": str(one.status), "base": _text(one.base), "head": _text(one.head)}
        for one in diff.comparability.differences
    ]
    return Table("differences", "In what the runs differ", columns, rows)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def metrics(diff: Diff) -> tuple[Table, ...]:
    """The metrics by unit, since a column has one."""
    tables = []
    for unit in dict.fromkeys(one.unit for one in diff.metrics):
        suffix = "_ns" if unit == "ns" else ""
        columns = (
            Column("metric", "", "what was measured"),
            Column(f"base{suffix}", unit, "base"),
            Column(f"head{suffix}", unit, "head"),
            Column("change", "share", "head over base, minus 1"),
            Column("ci95_low", "share", "lower end of the 95 % interval of the change"),
            Column("ci95_high", "share", "its upper end"),
            Column("mde", "share", "smallest change this design detects"),
            Column("verdict", "", "what can be said"),
            Column("basis", "prose", "how it was measured"),
        )
        rows = [
            {
                "metric": one.name,
                f"base{suffix}": one.a,
                f"head{suffix}": one.b,
                "change": None if one.ratio is None else one.ratio - 1,
                "ci95_low": None if one.ci95 is None else one.ci95[0] - 1,
                "ci95_high": None if one.ci95 is None else one.ci95[1] - 1,
                "mde": one.mde,
                "verdict": str(one.verdict),
                "basis": one.basis,
            }
            for one in diff.metrics
            if one.unit == unit
        ]
        tables.append(Table(f"metrics_{unit}", _METRICS[unit], _filled(columns, rows), rows))
    return tuple(tables)


def _filled(columns: Sequence[Column], rows: list[dict[str, Any]]) -> tuple[Column, ...]:
    """The columns that say anything."""
    return tuple(one for one in columns if any(row[one.name] is not None for row in rows))


def wall(diff: Diff) -> Table:
    """The wall ledger, and what joins it to the work ledger."""
    columns = (
        Column("part", "", "what the step was filled with"),
        _BASE,
        _HEAD,
        _DELTA,
        Column("share_base", "share", "of the base's step"),
        Column("share_head", "share", "of the head's step"),
        Column("meaning", "", "what it is"),
    )
    if diff.wall is None:
        return Table("wall", "", columns)
    total = diff.wall.total
    rows = [
        {
            "part": line.name,
            "base_ns": _per(diff, line.a_ns),
            "head_ns": _per(diff, line.b_ns),
            "delta_ns": _per(diff, line.delta),
            "share_base": line.a_ns / total.a_ns if total.a_ns else None,
            "share_head": line.b_ns / total.b_ns if total.b_ns else None,
            "meaning": line.meaning,
        }
        for line in (*diff.wall.lines, total, diff.wall.overlap)
        if line.a_ns or line.b_ns or line is total
    ]
    return Table("wall", "Wall ledger: where a step went", columns, rows)


def work(diff: Diff) -> Table:
    """The work ledger in one row."""
    columns = (
        _BASE,
        _HEAD,
        _DELTA,
        *_TERMS,
        Column("residual_ns", "ns", "what the terms leave unexplained"),
    )
    if diff.work is None:
        return Table("work", "", columns)
    ledger = diff.work
    row = {
        "base_ns": _per(diff, ledger.a_ns),
        "head_ns": _per(diff, ledger.b_ns),
        "delta_ns": _per(diff, ledger.b_ns - ledger.a_ns),
        **_terms(diff, ledger.terms),
        "residual_ns": ledger.residual,
    }
    return Table(
        "work", "Work ledger: Σ of durations of a step, Δ = added − removed + count + rate", columns, [row]
    )


_TERMS = (
    Column("added_ns", "ns", "only the head has it"),
    Column("removed_ns", "ns", "only the base has it"),
    Column("count_ns", "ns", "more or fewer of the same"),
    Column("rate_ns", "ns", "slower or faster of the same"),
)


_MADE_OF = Column("made_of", "prose", "the terms of the difference that are not 0")


def _made_of(diff: Diff, terms: Terms) -> str:
    """The terms that are not 0, signed as they enter the difference."""
    parts = {"added": terms.added, "removed": -terms.removed, "count": terms.count, "rate": terms.rate}
    told = [(name, _per(diff, value)) for name, value in parts.items() if value]
    return ", ".join(f"{name} {'+' if value > 0 else ''}{human(value, 'ns')}" for name, value in told)


def _terms(diff: Diff, terms: Terms) -> dict[str, int]:
    return {f"{name}_ns": _per(diff, getattr(terms, name)) for name in ("added", "removed", "count", "rate")}


_MODULE = Column("module", "", "modules in which it runs, a few of them")
_NUMBERS = (
    Column("n_base", "count", "intervals per step of the base"),
    Column("n_head", "count", "intervals per step of the head"),
)


def causes(diff: Diff, *, spelled: bool = True) -> Table:
    """The lines of the work ledger.

    Args:
        diff: The comparison.
        spelled: Name the terms that are not 0 in one column of words, instead of a column for each.
    """
    columns = (
        Column(diff.by, "", "what the line sums"),
        *((_DELTA, _BASE, _MADE_OF) if spelled else (_DELTA, _BASE, _HEAD, *_TERMS)),
        *_NUMBERS,
        Column("what", "", "what ran"),
        Column("matched_by", "", "how it was matched"),
        *((_MODULE,) if diff.by != "module" and any(one.modules for one in diff.causes) else ()),
    )
    rows = [
        {
            diff.by: one.label,
            "delta_ns": _per(diff, one.terms.delta),
            "base_ns": _per(diff, one.a.total_ns),
            "head_ns": _per(diff, one.b.total_ns),
            **_terms(diff, one.terms),
            "made_of": _made_of(diff, one.terms),
            **_numbers(diff, one.a.count, one.b.count),
            "matched_by": ", ".join(rung or NOT_MATCHED for rung in one.rungs),
            "what": one.detail or None,
            **({} if diff.by == "module" else {"module": ", ".join(one.modules) or None}),
        }
        for one in diff.causes
    ]
    return Table("causes", "Causes: lines of the work ledger, per step", _filled(columns, rows), rows)


def groups(diff: Diff) -> Table:
    """The matched groups that differ."""
    columns = (
        Column("what", "", "what ran"),
        Column("path", "", "ops that launched it"),
        _DELTA,
        _MADE_OF,
        *_NUMBERS,
        Column("role", "", "what it does"),
        Column("matched_by", "", "how it was matched"),
        Column("shapes", "", "input shapes of the launching op of the longest"),
        Column("module", "", "module of that op"),
    )
    rows = [
        {
            "what": what(one),
            "path": path_of(one),
            "delta_ns": _per(diff, one.terms.delta),
            "made_of": _made_of(diff, one.terms),
            **_numbers(diff, one.a.count, one.b.count),
            "role": one.role,
            "matched_by": one.rung or NOT_MATCHED,
            "shapes": one.shapes or None,
            "module": one.module or None,
        }
        for one in diff.groups
    ]
    return Table("groups", "Groups that differ, per step", columns, rows)


def counts(diff: Diff) -> Table:
    """What runs another number of times."""
    columns = (
        Column("op", "", "ops that launched it"),
        *_NUMBERS,
        Column("what", "", "what ran"),
    )
    rows = [{"op": one.label, "what": one.name, **_numbers(diff, one.a, one.b)} for one in diff.counts]
    return Table("counts", "Counts that changed, per step (exact, so without a test)", columns, rows)


def _numbers(diff: Diff, a: int, b: int) -> dict[str, int | float]:
    return {"n_base": _exact(diff, a), "n_head": _exact(diff, b)}


def _exact(diff: Diff, value: int) -> int | float:
    """A count per step: whole where it is."""
    steps = _steps(diff)
    return value // steps if value % steps == 0 else value / steps


def match(diff: Diff) -> Table:
    """How much time was matched on which rung."""
    columns = (
        Column("matched_by", "", "how it was matched, the strongest evidence first"),
        Column("groups", "count", "number of groups"),
        _BASE,
        _HEAD,
        Column("share_base", "share", "of the base's work"),
        Column("share_head", "share", "of the head's work"),
    )
    if diff.match is None or diff.work is None:
        return Table("match", "", columns)
    rows = [
        {
            "matched_by": one.rung or NOT_MATCHED,
            "groups": one.groups,
            "base_ns": _per(diff, one.a_ns),
            "head_ns": _per(diff, one.b_ns),
            "share_base": one.a_ns / diff.work.a_ns if diff.work.a_ns else None,
            "share_head": one.b_ns / diff.work.b_ns if diff.work.b_ns else None,
        }
        for one in diff.match.by_rung
    ]
    return Table("match", "How work was matched, per step", columns, rows)


def _steps(diff: Diff) -> int:
    return max(1, diff.compared.steps) if diff.compared else 1


def _per(diff: Diff, total: int) -> int:
    """A total over the compared steps per step, to the nearest whole number."""
    return round(total / _steps(diff))
