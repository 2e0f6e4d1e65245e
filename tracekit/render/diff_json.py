"""Comparison of runs as JSON (`tracekit.diff/1`), or as CSV of its causes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tracekit.render import diff_tables as tables
from tracekit.render.data import records
from tracekit.render.plain import csv_text, envelope

if TYPE_CHECKING:
    from tracekit.diff.ledgers import Amount, Cause, Group, Terms, WallLine
    from tracekit.diff.model import Diff, Side


def as_json(diff: Diff, *, exit_code: int, limit: int = 0) -> str:
    """Render as one JSON object; times are exact totals over the compared steps, in ns.

    Args:
        diff: The comparison.
        exit_code: Exit code of the command.
        limit: Maximum groups, causes, counts and names on one side, 0 for all.
    """
    return (
        envelope(
            "diff",
            verdict=str(diff.verdict),
            exit_code=exit_code,
            base=_side(diff.base),
            head=_side(diff.head),
            comparability=_comparability(diff),
            design=asdict(diff.design),
            metrics=[asdict(metric) for metric in diff.metrics],
            compared=asdict(diff.compared) if diff.compared else None,
            ledger=_ledger(diff),
            by=diff.by,
            causes=[_cause(one) for one in diff.causes[: limit or None]],
            groups=[_group(one) for one in diff.groups[: limit or None]],
            counts=[asdict(one) for one in diff.counts[: limit or None]],
            only_base=[asdict(one) for one in diff.only_base[: limit or None]],
            only_head=[asdict(one) for one in diff.only_head[: limit or None]],
            match=_match(diff),
            analyses=_analyses(diff),
            warnings=list(diff.warnings),
        )
        + "\n"
    )


def as_csv(diff: Diff, *, limit: int = 0) -> str:
    """Render a line per cause, or the differences if nothing was compared."""
    table = tables.causes(diff, spelled=False) if diff.work else tables.differences(diff)
    return csv_text(table.rows[: limit or None], table.columns)


def _side(side: Side) -> dict[str, Any]:
    return {**asdict(side), "runs": list(side.runs)}


def _comparability(diff: Diff) -> dict[str, Any]:
    found = diff.comparability
    return {"status": str(found.status), "differences": [asdict(one) for one in found.differences]}


def _ledger(diff: Diff) -> dict[str, Any] | None:
    if diff.wall is None or diff.work is None:
        return None
    work, wall = diff.work, diff.wall
    return {
        "wall": [_line(line) for line in wall.lines],
        "step": _line(wall.total),
        "overlap": _line(wall.overlap),
        "work": {
            "a_ns": work.a_ns,
            "b_ns": work.b_ns,
            "delta_ns": work.b_ns - work.a_ns,
            **_terms(work.terms),
            "residual": work.residual,
        },
    }


def _line(line: WallLine) -> dict[str, Any]:
    return {**asdict(line), "delta_ns": line.delta}


def _terms(terms: Terms) -> dict[str, int]:
    return asdict(terms)


def _amounts(a: Amount, b: Amount) -> dict[str, Any]:
    return {"a": asdict(a), "b": asdict(b)}


def _cause(one: Cause) -> dict[str, Any]:
    return {
        "label": one.label,
        "detail": one.detail,
        "delta_ns": one.terms.delta,
        **_amounts(one.a, one.b),
        "terms": _terms(one.terms),
        "rungs": list(one.rungs),
        "modules": list(one.modules),
        "evidence": one.evidence,
    }


def _group(one: Group) -> dict[str, Any]:
    return {
        "path": list(one.path),
        "role": one.role,
        "rung": one.rung or None,
        "kind": one.sort,
        "name_a": one.name_a or None,
        "name_b": one.name_b or None,
        "shapes": one.shapes or None,
        "module": one.module or None,
        "delta_ns": one.terms.delta,
        **_amounts(one.a, one.b),
        "terms": _terms(one.terms),
        "evidence": one.evidence,
    }


def _match(diff: Diff) -> dict[str, Any] | None:
    if diff.match is None:
        return None
    return {
        "time_matched_a": diff.match.share_a,
        "time_matched_b": diff.match.share_b,
        "by_rung": [{**asdict(one), "rung": one.rung or None} for one in diff.match.by_rung],
        "rules": diff.match.rules,
    }


def _analyses(diff: Diff) -> dict[str, Any]:
    return {
        analysis.name: {
            "tables": {
                spec.name: records(result.tables[spec.name], spec.columns)
                for spec in analysis.comparison
                if spec.name in result.tables
            },
            "findings": [asdict(finding) for finding in result.findings],
            "notes": list(result.notes),
        }
        for analysis, result in diff.analyses
    }
