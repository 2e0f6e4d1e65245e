"""Tables of a comparison, shared by its output formats.

The JSON output has the exact totals over all compared steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tracekit.analysis import Column
from tracekit.diff.breakdowns import BreakdownLine, Cause, Terms, WorkBreakdown
from tracekit.diff.matching import path_of
from tracekit.diff.model import Diff, Metric
from tracekit.render.document import Shown, Table
from tracekit.runs.text import ID, PROSE, human, shorten

_MAX_NAME_CHARS = 48
NOT_MATCHED = "one side"
BASE = Column("base_ns", "ns", "base, per step")
HEAD = Column("head_ns", "ns", "head, per step")
DELTA = Column("delta_ns", "ns", "head minus base, per step")
NUMBERS = (
    Column("n_base", "count", "intervals per step of the base"),
    Column("n_head", "count", "intervals per step of the head"),
)


def nonempty_columns(columns: Sequence[Column], rows: list[dict[str, Any]]) -> tuple[Column, ...]:
    """Return the columns with any value; without rows all columns, for the header."""
    if not rows:
        return tuple(columns)
    return tuple(column for column in columns if any(row[column.name] is not None for row in rows))


def per_step(diff: Diff, total: int) -> int:
    """Divide a total over the compared steps by their number, rounded."""
    return round(total / steps(diff))


def number(diff: Diff, value: int) -> int | float:
    """Return a count per step, an integer if it divides evenly."""
    many = steps(diff)
    return value // many if value % many == 0 else value / many


def steps(diff: Diff) -> int:
    """Return the number of compared steps of a side, at least 1."""
    return max(1, diff.compared.steps) if diff.compared else 1


def unit(diff: Diff) -> str:
    """Return what times and counts are of: a `step`, or a `capture` if no steps are marked."""
    return "step" if diff.compared is None or diff.compared.marked else "capture"


def differences(diff: Diff) -> Table:
    """Return the fields in which the runs differ."""
    return Table.of(
        "differences",
        "Differences of the runs",
        diff.comparability.differences,
        (Column("field", "", "name for --varying"), lambda field: field.field),
        (Column("status", "", "effect on the comparison"), lambda field: str(field.status)),
        (Column("base", "prose", "value of the base"), lambda field: _text(field.base)),
        (Column("head", "prose", "value of the head"), lambda field: _text(field.head)),
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def metrics(diff: Diff) -> Table:
    """Return the metrics, each in its unit."""
    interval = "95% confidence interval of the change; for exact metrics, the range over the runs"
    detectable = "minimum detectable effect: smallest change these runs can detect"
    table = Table.of(
        "metrics",
        "Metrics",
        diff.metrics,
        (Column("metric", "", "metric"), lambda metric: metric.name),
        (Column("unit", "", "ns or bytes"), lambda metric: metric.unit),
        (Column("base", "", "median of the base", unit_in="unit"), lambda metric: metric.a),
        (Column("head", "", "median of the head", unit_in="unit"), lambda metric: metric.b),
        (
            Column("change", "share", "head over base, minus 1"),
            lambda metric: None if metric.ratio is None else metric.ratio - 1,
        ),
        (Column("95%_interval", "id", interval), _interval),
        (Column("least_detectable", "share", detectable), lambda metric: metric.mde),
        (Column("verdict", "id", "verdict at the threshold"), lambda metric: str(metric.verdict)),
        (Column("basis", "prose", "how it was measured"), lambda metric: metric.basis),
    )
    return replace(table, columns=nonempty_columns(table.columns, table.rows))


def _interval(metric: Metric) -> str | None:
    if metric.ci95 is None:
        return None
    return " to ".join(f"{100 * (end - 1):+z.1f}%" for end in metric.ci95)


TERMS = (
    Column("added_ns", "ns", "work in the head only"),
    Column("removed_ns", "ns", "work in the base only"),
    Column("count_ns", "ns", "change of the call count of the same work"),
    Column("rate_ns", "ns", "change of the time per call of the same work"),
)


def wall(diff: Diff) -> Table:
    """Return the wall ledger, and the overlap that links it to the work ledger."""
    lines: list[BreakdownLine] = []
    total = diff.wall.total if diff.wall else BreakdownLine("", "", 0, 0)
    if diff.wall:
        lines = [*diff.wall.lines, diff.wall.total, diff.wall.overlap]
    return Table.of(
        "wall",
        "Wall ledger: step time by part, mean of the compared steps" if lines else "",
        [line for line in lines if line.a_ns or line.b_ns or line is total],
        (Column("part", "", "part of the step"), lambda line: line.name),
        (BASE, lambda line: per_step(diff, line.a_ns)),
        (HEAD, lambda line: per_step(diff, line.b_ns)),
        (DELTA, lambda line: per_step(diff, line.delta)),
        *_shares("step", total.a_ns, total.b_ns),
        (
            Column(
                "largest_change", "", "op, kernel or function whose time in this part changed most, per step"
            ),
            lambda line: largest_change(diff, line),
        ),
        (Column("meaning", PROSE, "definition"), lambda line: line.meaning),
    )


def largest_change(diff: Diff, line: BreakdownLine) -> str | None:
    """Name what changed most in a part (op, kernel, function), with its change per step; None if unknown."""
    if not line.changed:
        return None
    return f"{shorten(line.changed, _MAX_NAME_CHARS)} {format_signed(per_step(diff, line.changed_ns))}"


def format_signed(ns: int) -> str:
    """Format a change with its sign."""
    return f"{'+' if ns > 0 else ''}{human(ns, 'ns')}"


def work(diff: Diff) -> Table:
    """Return the work ledger, one row."""
    title = f"Work ledger: summed durations per {unit(diff)}, Δ = added − removed + count + rate"
    return Table.of(
        "work",
        title if diff.work else "",
        [diff.work] if diff.work else [],
        (BASE, lambda work: per_step(diff, work.a_ns)),
        (HEAD, lambda work: per_step(diff, work.b_ns)),
        (DELTA, lambda work: per_step(diff, work.b_ns - work.a_ns)),
        *((term, partial(_term, diff, term)) for term in TERMS),
        (Column("residual_ns", "ns", "part not explained by the terms"), lambda work: work.residual),
    )


def _term(diff: Diff, term: Column, line: WorkBreakdown | Cause) -> int:
    """Return a term of the difference of a line, or of all work, per step."""
    return per_step(diff, getattr(line.terms, term.name.removesuffix("_ns")))


def match(diff: Diff) -> Table:
    """Return the time matched by each kind of evidence."""
    base_ns, head_ns = (diff.work.a_ns, diff.work.b_ns) if diff.work else (0, 0)
    return Table.of(
        "match",
        f"Matching of base and head, per {unit(diff)}",
        diff.match.by_level if diff.match and diff.work else (),
        (
            Column("matched_by", "", "kind of evidence, strongest first"),
            lambda level: level.name or NOT_MATCHED,
        ),
        (Column("groups", "count", "number of groups"), lambda level: level.groups),
        (BASE, lambda level: per_step(diff, level.a_ns)),
        (HEAD, lambda level: per_step(diff, level.b_ns)),
        *_shares("work", base_ns, head_ns),
    )


def _shares(what: str, base_ns: int, head_ns: int) -> tuple[Shown, Shown]:
    """Return the columns with the shares that the time of an item is of the base's and of the head's."""

    def share(part: int, total: int) -> float | None:
        return part / total if total else None

    return (
        (
            Column("share_base", "share", f"share of the base's {what}"),
            lambda item: share(item.a_ns, base_ns),
        ),
        (
            Column("share_head", "share", f"share of the head's {what}"),
            lambda item: share(item.b_ns, head_ns),
        ),
    )


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
    return " · ".join(f"{name} {format_signed(value)}" for name, value in nonzero) or None


def causes(diff: Diff, *, spelled: bool = True) -> Table:
    """Return the lines of the work ledger; `spelled` puts their nonzero terms in one column of text."""
    module = (_MODULE,) if diff.by != "module" and any(cause.modules for cause in diff.causes) else ()
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
            diff.by: cause.label,
            "delta_ns": per_step(diff, cause.terms.delta),
            "base_ns": per_step(diff, cause.a.total_ns),
            "head_ns": per_step(diff, cause.b.total_ns),
            **{term.name: _term(diff, term, cause) for term in TERMS},
            "least_ns": cause.change[0] if cause.change else None,
            "most_ns": cause.change[1] if cause.change else None,
            "noise": "within" if cause.noisy else None,
            "made_of": _made_of(diff, cause.terms),
            "n_base": number(diff, cause.a.count),
            "n_head": number(diff, cause.b.count),
            "matched_by": ", ".join(level or NOT_MATCHED for level in cause.match_levels),
            "what": cause.detail or None,
            **({} if diff.by == "module" else {"module": ", ".join(cause.modules) or None}),
        }
        for cause in diff.causes
    ]
    title = f"Causes: lines of the work ledger, per {unit(diff)}"
    return Table("causes", title, nonempty_columns(columns, rows), rows)


def groups(diff: Diff) -> Table:
    """Return the matched groups that differ."""
    return Table.of(
        "groups",
        f"Groups that differ, per {unit(diff)}",
        diff.groups,
        (Column("what", "", "kernel, copy or op that ran"), lambda group: group.what),
        (Column("path", "", "ops that launched it"), path_of),
        (DELTA, lambda group: per_step(diff, group.terms.delta)),
        (_MADE_OF, lambda group: _made_of(diff, group.terms)),
        (NUMBERS[0], lambda group: number(diff, group.a.count)),
        (NUMBERS[1], lambda group: number(diff, group.b.count)),
        (Column("role", "", "kind of work"), lambda group: group.role),
        (_MATCHED_BY, lambda group: group.match_level or NOT_MATCHED),
        (
            Column("shapes", "", "input shapes of the op that launched the longest interval"),
            lambda group: group.shapes or None,
        ),
        (Column("module", "", "module of that op"), lambda group: group.module or None),
    )


def counts(diff: Diff) -> Table:
    """Return the work whose count changed."""
    return Table.of(
        "counts",
        f"Changed counts per {unit(diff)} (exact, no test needed)",
        diff.counts,
        (Column("op", "", "ops that launched it"), lambda work: work.label),
        (NUMBERS[0], lambda work: number(diff, work.a)),
        (NUMBERS[1], lambda work: number(diff, work.b)),
        (Column("what", "", "kernel, copy or op that ran"), lambda work: work.name),
    )


def alone(diff: Diff) -> Table:
    """Return names that run on one side only, with the names they were matched with on the other side."""
    names = [("base", work) for work in diff.only_base] + [("head", work) for work in diff.only_head]
    return Table.of(
        "alone",
        f"Names on one side only, per {unit(diff)}",
        sorted(names, key=lambda name: -name[1].total_ns),
        (Column("only_in", "", "side it runs on"), lambda name: name[0]),
        (Column("name", "", "name without parameters"), lambda name: name[1].name),
        (
            Column("time_ns", "ns", "time on that side, per step"),
            lambda name: per_step(diff, name[1].total_ns),
        ),
        (
            Column("matched_ns", "ns", "part matched with work of other names; the rest is added or removed"),
            lambda name: per_step(diff, name[1].matched_ns),
        ),
        (Column("times", "count", "intervals per step"), lambda name: number(diff, name[1].count)),
        (Column("role", "", "kind of work"), lambda name: name[1].role),
        (
            Column("instead", "", "some of the names it was matched with"),
            lambda name: ", ".join(name[1].instead) or None,
        ),
    )


def all_tables(diff: Diff) -> list[Table]:
    """Return all tables of a comparison, most important first."""
    return [table(diff) for table in (metrics, wall, work, causes, counts, alone, match, differences, groups)]
