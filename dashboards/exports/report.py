"""A page as one HTML file that asks for nothing outside: findings, still figures, tables, definitions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from tracekit import __version__
from tracekit.render import human
from tracekit.render.cells import clean
from tracekit.render.data import first as first_rows
from tracekit.render.headers import header, is_text
from tracekit.render.results import verdict_line
from tracekit.savings import budget

from ..figures.standard import first
from ..figures.svg import svg
from ..parts.prose import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from tracekit.analysis import Analysis, Finding, Result, TableSpec
    from tracekit.run import Run

LIMIT = 500
"""Rows of a table at most."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def report(
    run: Run,
    *,
    title: str,
    question: str,
    results: list[tuple[Analysis, Result]],
    integrity: Result,
    advice: Sequence[Finding] | None = None,
) -> str:
    """The file's text.

    Args:
        run: The run.
        title: Heading of the page.
        question: What the page answers.
        results: Its analyses with their results.
        integrity: Whether the run can be trusted, which stands above everything.
        advice: Findings to open with; each analysis is then told without its own.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template("report.html.j2").render(
        title=clean(title),
        question=clean(question),
        run=clean(run.id),
        label=clean(run.meta.label or ""),
        created=clean(run.meta.created_at),
        verdict=verdict_line(integrity).strip(),
        advice=[_finding(one) for one in advice or ()],
        parts=[_part(analysis, result, told=advice is not None) for analysis, result in results],
        unit="step" if budget(run).marked else "capture",
        version=__version__,
    )


def _part(analysis: Analysis, result: Result, *, told: bool) -> dict[str, Any]:
    figure = first(analysis.tables, result.tables)
    caption = clean(figure.caption) if figure else ""
    return {
        "title": clean(analysis.title),
        "findings": [] if told else [_finding(one) for one in result.findings],
        "notes": [sentence(clean(note)) for note in result.notes],
        # every text in it was escaped where it was drawn
        "picture": Markup(svg(figure.figure, label=caption)) if figure else "",  # noqa: S704
        "caption": caption,
        "tables": [
            _table(spec, result.tables[spec.name]) for spec in analysis.tables if spec.name in result.tables
        ],
        "definition": clean_lines(analysis.definition),
        "sources": [clean(source) for source in analysis.sources],
    }


def clean_lines(text: str) -> str:
    r"""The text with its line breaks kept.

    Example:
        >>> clean_lines("a\nb\x1b")
        'a\nb\\x1b'
    """
    return "\n".join(clean(line) for line in text.splitlines())


def _finding(one: Finding) -> dict[str, str]:
    saving = one.saving_ns_per_step
    return {
        "severity": str(one.severity),
        "title": clean(one.title),
        "advice": sentence(clean(one.advice)),
        "how": sentence(clean(one.how)),
        "saving": "" if saving is None else human(saving, "ns"),
    }


def _table(spec: TableSpec, frame: pd.DataFrame) -> dict[str, Any]:
    rows, total = first_rows(frame, spec.columns, LIMIT)
    words = {column.name: is_text(rows, column) for column in spec.columns}
    return {
        "title": clean(spec.title),
        "heads": [(clean(header(one)), clean(one.meaning), words[one.name]) for one in spec.columns],
        "rows": [[(human(row[one.name], one.unit), words[one.name]) for one in spec.columns] for row in rows],
        "left": total - len(rows),
    }
