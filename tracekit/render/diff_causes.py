"""Tables of what makes up a difference: causes, groups and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import Column
from tracekit.diff.rollup import path_of, what
from tracekit.render.cells import ID, PROSE, human
from tracekit.render.diff_ledgers import TERMS, terms
from tracekit.render.diff_table import (
    BASE,
    DELTA,
    HEAD,
    NOT_MATCHED,
    NUMBERS,
    Table,
    filled,
    number,
    numbers,
    per_step,
)

if TYPE_CHECKING:
    from tracekit.diff.ledgers import Terms
    from tracekit.diff.model import Diff

_MADE_OF = Column("made_of", PROSE, "nonzero terms of the difference")
_MODULE = Column("module", "", "some of the modules it runs in")
_MATCHED_BY = Column("matched_by", ID, "how base and head were matched")


def _made_of(diff: Diff, terms: Terms) -> str | None:
    """Format the nonzero terms with their signs; None if all are below 1 ns per step."""
    parts = {"added": terms.added, "removed": -terms.removed, "count": terms.count, "rate": terms.rate}
    nonzero = [(name, per_step(diff, value)) for name, value in parts.items() if per_step(diff, value)]
    return (
        " · ".join(f"{name} {'+' if value > 0 else ''}{human(value, 'ns')}" for name, value in nonzero)
        or None
    )


def causes(diff: Diff, *, spelled: bool = True) -> Table:
    """Return the lines of the work ledger.

    Args:
        diff: The comparison.
        spelled: Describe nonzero terms in one text column, instead of a column per term.
    """
    module = (_MODULE,) if diff.by != "module" and any(one.modules for one in diff.causes) else ()
    columns = (
        Column(diff.by, "", "op, module or kernel of the line"),
        *((DELTA, BASE, _MADE_OF) if spelled else (DELTA, BASE, HEAD, *TERMS)),
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
            "made_of": _made_of(diff, one.terms),
            **numbers(diff, one.a.count, one.b.count),
            "matched_by": ", ".join(rung or NOT_MATCHED for rung in one.rungs),
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
            "what": what(one),
            "path": path_of(one),
            "delta_ns": per_step(diff, one.terms.delta),
            "made_of": _made_of(diff, one.terms),
            **numbers(diff, one.a.count, one.b.count),
            "role": one.role,
            "matched_by": one.rung or NOT_MATCHED,
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
