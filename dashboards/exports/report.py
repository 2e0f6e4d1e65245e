"""Self-contained HTML report: findings, static figures, tables and definitions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from tracekit.analysis import Analysis, Finding, Result, TableSpec
from tracekit.analysis.findings import CAPTURE_TITLE, Capture
from tracekit.analysis.savings import Ranked, budget
from tracekit.analysis.verdict import integrity_line
from tracekit.errors import clean
from tracekit.registry import VERSION
from tracekit.render import human
from tracekit.render.cells import cell, first_rows, header, is_text
from tracekit.render.facts import FACT, sections
from tracekit.render.findings import describe_remedies, describe_trials, evidence
from tracekit.render.page import page
from tracekit.runs.run import Run

from ..components.text import sentence
from ..figures.pictures import draw_picture
from ..figures.standard import result_figure

MAX_ROWS = 500
"""Maximum number of rows per table."""
STYLES = Path(__file__).parents[1] / "assets" / "picture.css"
"""Styles of pictures."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render_report(
    run: Run,
    *,
    title: str,
    question: str,
    results: list[tuple[Analysis, Result]],
    integrity: Result,
    bound: str = "",
    advice: Sequence[Ranked] | None = None,
    facts: bool = False,
    lacking: Sequence[tuple[str, Sequence[str]]] = (),
    capture: Capture | None = None,
    limit: int = MAX_ROWS,
) -> str:
    """Render the report.

    Args:
        run: The run.
        title: Heading of the page.
        question: What the page answers.
        results: Its analyses with their results.
        integrity: Result of the `integrity` analysis, shown at the top.
        bound: What bounds the run, in a sentence; empty to say nothing.
        advice: Findings to show first; those of the single analyses are then left out.
        facts: Whether to include metadata of the run.
        lacking: Missing data, with the analyses that were skipped for it.
        capture: What to record in a further run.
        limit: Maximum number of rows per table.
    """
    sections_shown = (of for of in sections(run.meta) if of.columns == FACT) if facts else ()
    content = {
        "title": clean(title),
        "question": clean(question),
        "run": clean(run.id),
        "label": clean(run.meta.label or ""),
        "created": clean(run.meta.created_at),
        "verdict": sentence(integrity_line(integrity).strip()),
        "bound": clean(bound),
        "advice": [_finding(ranked.finding, describe_trials(ranked)) for ranked in advice or ()],
        "advised": advice is not None,
        "parts": [_part(analysis, result, limit, advised=advice is not None) for analysis, result in results],
        "unit": "step" if budget(run).marked else "capture",
        "facts": [
            (of.title, [(clean(str(row["name"])), clean(str(row["value"]))) for row in of.rows])
            for of in sections_shown
        ],
        "lacking": [(as_html(note), ", ".join(names)) for note, names in lacking],
        "capture": capture
        and {
            "title": f"{CAPTURE_TITLE} ({clean(capture.framework)})",
            "missing": [as_html(gap.text) for gap in capture.missing],
            "lines": Markup("\n").join(map(clean, capture.lines)),
        },
        "version": VERSION,
        "styles": Markup(STYLES.read_text(encoding="utf-8")),  # noqa: S704 (a file of ours)
    }
    return page("report.html.j2", content, Path(__file__).parent / "templates")


def draw(analysis: Analysis, result: Result) -> tuple[str, str]:
    """Return the picture of a result as HTML with escaped text, and its caption; or empty texts."""
    figure = result_figure(analysis, result)
    if figure is None:
        return "", ""
    caption = clean(figure.caption)
    return draw_picture(figure.figure, label=caption), caption


def _part(analysis: Analysis, result: Result, limit: int, *, advised: bool) -> dict[str, Any]:
    picture, caption = draw(analysis, result)
    return {
        "name": analysis.name,
        "title": clean(analysis.title),
        "question": clean(analysis.question),
        "findings": [] if advised else [_finding(finding) for finding in result.findings],
        "notes": [as_html(note) for note in result.notes],
        "picture": Markup(picture),  # noqa: S704 (its text is escaped)
        "caption": caption,
        "tables": [
            _table(spec, result.tables[spec.name], limit)
            for spec in analysis.tables
            if spec.name in result.tables
        ],
        "definition": Markup("\n").join(map(clean, analysis.definition.splitlines())),
        "sources": [clean(source) for source in analysis.sources],
    }


def as_html(text: str) -> Markup:
    """Convert prose to HTML; text in backticks becomes code.

    Example:
        >>> as_html("set `a<b` first")
        Markup('Set <code>a&lt;b</code> first.')
    """
    parts = sentence(clean(text)).split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if place % 2 else part for place, part in enumerate(parts))


def _finding(finding: Finding, trials: Sequence[str] = ()) -> dict[str, Any]:
    saving = finding.saving_ns_per_step
    return {
        "trials": [as_html(line) for line in trials],
        "severity": str(finding.severity),
        "title": clean(finding.title),
        "advice": [as_html(text) for text in (finding.advice, *describe_remedies(finding))],
        "how": as_html(finding.how),
        "saving": "" if saving is None else f"{finding.saves} {human(saving, 'ns')}",
        "evidence": clean("; ".join(evidence(finding))),
    }


def _table(spec: TableSpec, frame: pd.DataFrame, limit: int) -> dict[str, Any]:
    rows, total = first_rows(frame, spec.columns, limit)
    columns = [(column, is_text(rows, column)) for column in spec.columns]
    return {
        "title": clean(spec.title),
        "heads": [(clean(header(column)), clean(column.meaning), words) for column, words in columns],
        "rows": [[(cell(row, column), words) for column, words in columns] for row in rows],
        "left": total - len(rows),
    }
