"""Reference of the analyses: `tracekit analyze --list` and the documentation page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from tracekit.analysis import Analysis, Column, Rule, TableSpec
from tracekit.render.cells import csv_text, envelope, escape, escape_prose
from tracekit.render.layout import table_text

_LISTED = (
    Column("name", "", "name for `tracekit analyze`"),
    Column("question", "prose", "question it answers"),
    Column("tables", "prose", "tables it can return"),
)
_FULL = (
    *_LISTED,
    Column("definition", "prose", "definitions of its values"),
    Column("rules", "prose", "codes of its findings"),
    Column("compares", "", "whether it can compare two runs"),
    Column("sources", "prose", "references"),
)


def listing(analyses: Sequence[Analysis], output_format: str) -> str:
    """List the analyses in an output format.

    Markdown is the documentation page; JSON has all metadata.
    """
    match output_format:
        case "markdown":
            return page(analyses)
        case "json":
            return envelope("analyze", analyses=[_metadata(one) for one in analyses]) + "\n"
        case "csv":
            return csv_text(map(_row, analyses), _FULL)
    return table_text(map(_row, analyses), _LISTED, limit=0)


def _row(one: Analysis) -> dict[str, Any]:
    return {
        "name": one.name,
        "question": one.question,
        "tables": ", ".join(spec.name for spec in one.tables),
        "definition": one.definition,
        "rules": ", ".join(rule.code for rule in one.rules),
        "compares": one.compare is not None,
        "sources": "; ".join(one.sources),
    }


def _metadata(one: Analysis) -> dict[str, Any]:
    described = ("name", "title", "question", "definition", "order", "sources")
    return {
        **{name: getattr(one, name) for name in described},
        "tables": [asdict(spec) for spec in one.tables],
        "rules": [{"code": rule.code, "states": rule.condition, "why": rule.reason} for rule in one.rules],
        "comparison": [asdict(spec) for spec in one.comparison],
    }


def page(analyses: Iterable[Analysis]) -> str:
    """Render the documentation page with all definitions, columns, units and thresholds."""
    every = list(analyses)
    rows = [(f"[`{one.name}`](#{_anchor(one.title)})", escape_prose(one.question)) for one in every]
    parts = [_HEAD, grid(("analysis", "answers"), rows), *(section(one) for one in every)]
    return "\n".join(parts)


def _anchor(title: str) -> str:
    """Return the anchor of a heading.

    Example:
        >>> _anchor("Gaps, and who fills them")
        'gaps-and-who-fills-them'
    """
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def grid(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Render a Markdown table of Markdown cells.

    Example:
        >>> print(grid(("a", "b"), [("1", "2")]), end="")
        | a | b |
        | --- | --- |
        | 1 | 2 |
    """
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


_HEAD = """\
# Analyses

Every analysis is a pure function from a run to tables and findings. This page is generated from their
metadata by `tracekit analyze --list --format markdown`. Times are integer nanoseconds, shares are between 0
and 1, and unknown values are missing, never 0.
"""


def section(one: Analysis, *, level: int = 2) -> str:
    """Render the reference of an analysis, under a heading of a level."""
    lines = [f"{'#' * level} {escape(one.title)}", "", f"`{one.name}`: {escape_prose(one.question)}", ""]
    lines += [escape_prose(one.definition), "", f"Sources: {escape('; '.join(one.sources))}.", ""]
    lines += ["```sh", f"tracekit analyze latest {one.name}", "```", ""]
    lines += [_table(one.name, spec, level + 1) for spec in one.tables]
    if one.rules:
        lines += [_rules(one.name, one.rules, level + 1)]
    if one.comparison:
        lines += [
            "Against another run:",
            "",
            "```sh",
            f"tracekit analyze latest {one.name} --against latest~1",
            "```",
            "",
        ]
        lines += [_table(one.name, spec, level + 1) for spec in one.comparison]
    return "\n".join(lines)


def _table(analysis: str, spec: TableSpec, level: int) -> str:
    rows = [(f"`{column.name}`", _unit(column), escape_prose(column.meaning)) for column in spec.columns]
    title = f"{'#' * level} `{analysis}.{spec.name}`: {escape(spec.title)}"
    return f"{title}\n\n{grid(('column', 'unit', 'meaning'), rows)}"


def _unit(column: Column) -> str:
    return f"see `{column.unit_in}`" if column.unit_in else escape(column.unit)


def _rules(analysis: str, rules: Sequence[Rule], level: int) -> str:
    rows = [(f"`{rule.code}`", escape_prose(rule.condition), escape_prose(rule.reason)) for rule in rules]
    return f"{'#' * level} Findings of `{analysis}`\n\n{grid(('code', 'condition', 'reason'), rows)}"
