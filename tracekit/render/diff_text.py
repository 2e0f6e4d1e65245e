"""Comparison of runs for terminals, and as JSON."""

from __future__ import annotations

import shutil
import textwrap
from dataclasses import asdict, replace
from typing import Any

from tracekit.diff.breakdowns import Amount, BreakdownLine, Cause, Group
from tracekit.diff.model import Diff, Verdict
from tracekit.errors import clean
from tracekit.render import diff_tables as tables
from tracekit.render import diff_words as words
from tracekit.render.cells import csv_text, envelope, records
from tracekit.render.diff_tables import Table
from tracekit.render.layout import DEFAULT_LIMIT, table_text
from tracekit.runs.text import PROSE

_FEW = 8
_ROOMY = 110
_ALL_COLUMNS = "--format html shows all"


def as_text(diff: Diff, *, limit: int = DEFAULT_LIMIT) -> str:
    """Render the verdict, then ledgers and causes.

    Args:
        diff: The comparison.
        limit: Maximum rows per table, 0 for all.
    """
    head = [
        f"base  {clean(words.title(diff.base))}",
        f"head  {clean(words.title(diff.head))}",
        *_wrapped(words.headline(diff)),
    ]
    if diff.verdict is Verdict.NOT_COMPARABLE:
        parts = [_lines(head), _table(tables.differences(diff), limit)]
        command = f"  {clean(words.declaring(diff))}"  # in one line, to be copied
        return "\n".join([*parts, _lines([*_wrapped(words.next_step(diff)), command])])
    said = (words.worst(diff), words.comparable(diff), words.compared(diff), words.next_step(diff))
    parts = [_lines([*head, *(line for text in said for line in _wrapped(text))])]
    parts += [
        _table(tables.metrics(diff), 0),
        _wall(diff),
        _table(tables.work(diff), 0),
        _causes(diff, limit),
    ]
    parts += [
        _table(one, min(limit, _FEW) if limit else 0)
        for one in (tables.counts(diff), tables.alone(diff), tables.match(diff), tables.differences(diff))
        if one.rows
    ]
    parts += _said(diff)
    return "\n".join(parts)


def _lines(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _wall(diff: Diff) -> str:
    """Render the wall ledger; if definitions do not fit, only that of the overlap."""
    table = tables.wall(diff)
    if _width() >= _ROOMY or diff.wall is None:
        return _table(table, 0)
    columns = tuple(one for one in table.columns if one.unit != PROSE)
    joins = diff.wall.overlap
    apart = f"{joins.name}: {joins.meaning}; " if joins.a_ns or joins.b_ns else ""
    definitions = f"{apart}for definitions of the parts use --format html"
    return _table(replace(table, columns=columns), 0) + _lines(_wrapped(definitions))


def _causes(diff: Diff, limit: int) -> str:
    if not diff.causes:
        return words.NOTHING_CHANGED + "\n"
    return _table(tables.causes(diff), limit)


def _table(table: Table, limit: int) -> str:
    return table_text(table.rows, table.columns, title=table.title, limit=limit, all_columns=_ALL_COLUMNS)


def _said(diff: Diff) -> list[str]:
    """Render findings and notes of the analyses, and warnings."""
    lines = []
    for analysis, result in diff.analyses:
        texts = [
            f"{one.severity}: {clean(one.title)}: {clean(one.advice)} [{one.code}]" for one in result.findings
        ]
        texts += [f"note: {note}" for note in result.notes]
        if texts:
            wrapped = [line for text in texts for line in _wrapped(text, indent="  ")]
            lines.append("\n".join([f"{clean(analysis.title)} [{analysis.name}]", *wrapped]) + "\n")
    if diff.warnings:
        warned = [line for text in diff.warnings for line in _wrapped(f"note: {text}")]
        lines.append("\n".join(warned) + "\n")
    return lines


def _wrapped(text: str, *, indent: str = "") -> list[str]:
    return textwrap.wrap(
        clean(text), _width(), initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False
    )


def _width() -> int:
    return shutil.get_terminal_size((120, 40)).columns


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
            base=asdict(diff.base),
            head=asdict(diff.head),
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
            analyses=_analyses_json(diff),
            warnings=list(diff.warnings),
            misleading=list(diff.misleading),
        )
        + "\n"
    )


def as_csv(diff: Diff, *, limit: int = 0) -> str:
    """Render a line per cause, or the differences if nothing was compared."""
    table = tables.causes(diff, spelled=False) if diff.work else tables.differences(diff)
    return csv_text(table.rows[: limit or None], table.columns)


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
            **asdict(work.terms),
            "residual": work.residual,
        },
    }


def _line(line: BreakdownLine) -> dict[str, Any]:
    return {**asdict(line), "delta_ns": line.delta}


def _amounts(a: Amount, b: Amount) -> dict[str, Any]:
    return {"a": asdict(a), "b": asdict(b)}


def _cause(one: Cause) -> dict[str, Any]:
    return {
        "label": one.label,
        "detail": one.detail,
        "delta_ns": one.terms.delta,
        **_amounts(one.a, one.b),
        "terms": asdict(one.terms),
        "rungs": list(one.match_levels),
        "modules": list(one.modules),
        "evidence": one.evidence,
    }


def _group(one: Group) -> dict[str, Any]:
    return {
        "path": list(one.path),
        "role": one.role,
        "rung": one.match_level or None,
        "kind": one.sort,
        "name_a": one.name_a or None,
        "name_b": one.name_b or None,
        "shapes": one.shapes or None,
        "module": one.module or None,
        "delta_ns": one.terms.delta,
        **_amounts(one.a, one.b),
        "terms": asdict(one.terms),
        "evidence": one.evidence,
    }


def _match(diff: Diff) -> dict[str, Any] | None:
    if diff.match is None:
        return None
    return {
        "time_matched_a": diff.match.share_a,
        "time_matched_b": diff.match.share_b,
        "by_rung": [
            {"rung": one.name or None, "groups": one.groups, "a_ns": one.a_ns, "b_ns": one.b_ns}
            for one in diff.match.by_level
        ],
        "rules": diff.match.rules,
    }


def _analyses_json(diff: Diff) -> dict[str, Any]:
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
