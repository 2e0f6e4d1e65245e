"""Reference of the analyses: `tracekit analyze --list` and the documentation page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any

from tracekit.analysis import Analysis, Column, Rule, TableSpec
from tracekit.render.cells import csv_text, escape, escape_prose, grid, json_text
from tracekit.render.document import Shown, Table
from tracekit.render.layout import table_text

_SHORT_COLUMNS: tuple[Shown, ...] = (
    (Column("name", "", "name for `tracekit analyze`"), attrgetter("name")),
    (Column("question", "prose", "question it answers"), attrgetter("question")),
    (
        Column("tables", "prose", "tables it can return"),
        lambda of: ", ".join(table.name for table in of.tables),
    ),
)
_ALL_COLUMNS: tuple[Shown, ...] = (
    *_SHORT_COLUMNS,
    (Column("definition", "prose", "definitions of its values"), attrgetter("definition")),
    (Column("rules", "prose", "codes of its findings"), lambda of: ", ".join(rule.code for rule in of.rules)),
    (Column("compares", "", "whether it can compare two runs"), lambda of: of.compare is not None),
    (Column("sources", "prose", "references"), lambda of: "; ".join(of.sources)),
)


def list_analyses(analyses: Sequence[Analysis], output_format: str) -> str:
    """List the analyses in an output format.

    Markdown is the documentation page; JSON has all metadata.
    """
    match output_format:
        case "markdown":
            return page(analyses)
        case "json":
            return json_text("analyze", analyses=[*map(_metadata, analyses)])
        case "csv":
            table = Table.of("", "", analyses, *_ALL_COLUMNS)
            return csv_text(table.rows, table.columns)
    table = Table.of("", "", analyses, *_SHORT_COLUMNS)
    return table_text(table.rows, table.columns, limit=0)


def _metadata(analysis: Analysis) -> dict[str, Any]:
    names = ("name", "title", "question", "definition", "order", "sources")
    return {
        **{name: getattr(analysis, name) for name in names},
        "tables": [asdict(spec) for spec in analysis.tables],
        "rules": [
            {"code": rule.code, "states": rule.condition, "why": rule.reason} for rule in analysis.rules
        ],
        "comparison": [asdict(spec) for spec in analysis.comparison],
    }


def page(analyses: Iterable[Analysis]) -> str:
    """Render the documentation page with all definitions, columns, units and thresholds."""
    analyses = list(analyses)
    rows = [
        (f"[`{analysis.name}`](#{_anchor(analysis.title)})", escape_prose(analysis.question))
        for analysis in analyses
    ]
    parts = [_HEAD, grid(("analysis", "answers"), rows), *(section(analysis) for analysis in analyses)]
    return "\n".join(parts)


def _anchor(title: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


_HEAD = """\
# Analyses

Every analysis is a pure function from a run to tables and findings. This page is generated from their
metadata by `tracekit analyze --list --format markdown`. Times are integer nanoseconds, shares are between 0
and 1, and unknown values are missing, never 0.
"""


def section(analysis: Analysis, *, level: int = 2) -> str:
    """Render the reference of an analysis, under a heading of a level."""
    lines = [
        f"{'#' * level} {escape(analysis.title)}",
        "",
        f"`{analysis.name}`: {escape_prose(analysis.question)}",
        "",
    ]
    lines += [escape_prose(analysis.definition), "", f"Sources: {escape('; '.join(analysis.sources))}.", ""]
    lines += ["```sh", f"tracekit analyze latest {analysis.name}", "```", ""]
    lines += [_table(analysis.name, spec, level + 1) for spec in analysis.tables]
    if analysis.rules:
        lines += [_rules(analysis.name, analysis.rules, level + 1), *_remedies(analysis)]
    if analysis.comparison:
        lines += [
            "Against another run:",
            "",
            "```sh",
            f"tracekit analyze latest {analysis.name} --against latest~1",
            "```",
            "",
        ]
        lines += [_table(analysis.name, spec, level + 1) for spec in analysis.comparison]
    return "\n".join(lines)


def _table(analysis: str, spec: TableSpec, level: int) -> str:
    rows = [(f"`{column.name}`", _unit(column), escape_prose(column.meaning)) for column in spec.columns]
    title = f"{'#' * level} `{analysis}.{spec.name}`: {escape(spec.title)}"
    return f"{title}\n\n{grid(('column', 'unit', 'meaning'), rows)}"


def _unit(column: Column) -> str:
    return f"see `{column.unit_in}`" if column.unit_in else escape(column.unit)


def _remedies(analysis: Analysis) -> list[str]:
    """Return how to see the advice of its findings, and the changes of `tracekit try` that follow it."""
    from tracekit.recording.changes import available

    lines = [
        "What to change in a run, with the ops and lines that are known:",
        "",
        "```sh",
        f"tracekit findings latest {analysis.name} --more",
        "```",
        "",
    ]
    rows = []
    for name, change in available().items():
        codes = [f"`{rule.code}`" for rule in analysis.rules if rule.code in change.answers]
        if codes:
            rows.append((f"`{name}`", f"`{change.code}`", ", ".join(codes)))
    if rows:
        heading = ("change", "code to write", "for the findings")
        lines += [
            "`tracekit try --change NAME -- CMD` measures these without an edit:",
            "",
            grid(heading, rows),
        ]
    return lines


def _rules(analysis: str, rules: Sequence[Rule], level: int) -> str:
    rows = [(f"`{rule.code}`", escape_prose(rule.condition), escape_prose(rule.reason)) for rule in rules]
    return f"{'#' * level} Findings of `{analysis}`\n\n{grid(('code', 'condition', 'reason'), rows)}"
