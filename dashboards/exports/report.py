"""A page as one HTML file that asks for nothing outside: findings, still figures, tables, definitions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from tracekit import __version__
from tracekit.cli.facts import FACT, sections
from tracekit.render import human
from tracekit.render.cells import clean
from tracekit.render.data import first as first_rows
from tracekit.render.findings import evidence
from tracekit.render.headers import header, is_text
from tracekit.render.results import verdict_line
from tracekit.savings import budget

from ..figures import bars, shares
from ..figures.standard import Standard, first
from ..figures.svg import svg
from ..parts.looked import places
from ..parts.prose import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from tracekit.analysis import Analysis, Finding, Result, TableSpec
    from tracekit.run import Run

LIMIT = 500
"""Rows of a table at most."""
_DEFINED = (
    "Active: a kernel runs. Data movement: a copy or memset runs and no kernel does. Idle: nothing runs."
)
_WHOLE = ("profiled_steps", "whole")
_NAMED = "named"
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def report(
    run: Run,
    *,
    title: str,
    question: str,
    results: list[tuple[Analysis, Result]],
    integrity: Result,
    advice: Sequence[Finding] | None = None,
    facts: bool = False,
    lacking: Sequence[tuple[str, Sequence[str]]] = (),
    limit: int = LIMIT,
) -> str:
    """The file's text.

    Args:
        run: The run.
        title: Heading of the page.
        question: What the page answers.
        results: Its analyses with their results.
        integrity: Whether the run can be trusted, which stands above everything.
        advice: Findings to open with; each analysis is then told without its own.
        facts: Whether to tell what is known of the run: what ran, where, and what recorded it.
        lacking: What could not be judged, with the analyses that lacked it.
        limit: Rows of a table at most.
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
        verdict=sentence(verdict_line(integrity).strip()),
        advice=[_finding(one) for one in advice or ()],
        advised=advice is not None,
        parts=[_part(analysis, result, limit, told=advice is not None) for analysis, result in results],
        unit="step" if budget(run).marked else "capture",
        facts=_facts(run) if facts else [],
        lacking=[(prose(note), ", ".join(names)) for note, names in lacking],
        version=__version__,
    )


def _facts(run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    """What is known of a run, by the titles of its parts."""
    return [
        (section.title, [(clean(str(row["name"])), clean(str(row["value"]))) for row in section.rows])
        for section in sections(run.meta)
        if section.columns == FACT
    ]


def _part(analysis: Analysis, result: Result, limit: int, *, told: bool) -> dict[str, Any]:
    figure = _breakdown(result) or _causes(result) or first(analysis.tables, result.tables)
    caption = clean(figure.caption) if figure else ""
    return {
        "name": analysis.name,
        "title": clean(analysis.title),
        "question": clean(analysis.question),
        "findings": [] if told else [_finding(one) for one in result.findings],
        "notes": [prose(note) for note in result.notes],
        # every text in it was escaped where it was drawn
        "picture": Markup(svg(figure.figure, label=caption)) if figure else "",  # noqa: S704
        "caption": caption,
        "tables": [
            _table(spec, result.tables[spec.name], limit)
            for spec in analysis.tables
            if spec.name in result.tables
        ],
        "definition": clean_lines(analysis.definition),
        "sources": [clean(source) for source in analysis.sources],
    }


def _breakdown(result: Result) -> Standard | None:
    """Where the time of the devices went, where the result is of that."""
    frame = next((result.tables[name] for name in _WHOLE if len(result.tables.get(name, ()))), None)
    if frame is None or shares.WINDOW not in frame:
        return None
    what = (
        "Active: a kernel runs. Data movement: a copy or memset runs and no kernel does. Idle: nothing runs."
    )
    shown, some = shares.furthest(frame.assign(**{_NAMED: places(frame)}))
    figure = shares.by_device(shown, shown[_NAMED].tolist())
    return Standard(figure, f"Where the time of each device went. {what}{some}")


def _causes(result: Result) -> Standard | None:
    """Why the devices were idle, where the result is of that."""
    frame = result.tables.get("by_cause")
    if frame is None or not len(frame):
        return None
    idle = frame.groupby("cause", observed=True)["idle_ns"].sum().sort_values(ascending=False)
    figure = bars.bars([str(cause) for cause in idle.index], idle.tolist(), "ns", title="idle")
    return Standard(figure, "Idle time by its cause, of all devices together.")


def prose(text: str) -> Markup:
    """Sentences of an analysis; what stands in backticks is code.

    Example:
        >>> prose("set `a<b` first")
        Markup('Set <code>a&lt;b</code> first.')
    """
    parts = sentence(clean(text)).split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    coded = [Markup("<code>{}</code>").format(part) for part in parts[1::2]]
    told: list[Markup] = [escape(part) for part in parts]
    told[1::2] = coded
    return Markup("").join(told)


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
        "advice": prose(one.advice),
        "how": prose(one.how),
        "saving": "" if saving is None else human(saving, "ns"),
        "evidence": clean("; ".join(evidence(one))),
    }


def _table(spec: TableSpec, frame: pd.DataFrame, limit: int) -> dict[str, Any]:
    rows, total = first_rows(frame, spec.columns, limit)
    words = {column.name: is_text(rows, column) for column in spec.columns}
    return {
        "title": clean(spec.title),
        "heads": [(clean(header(one)), clean(one.meaning), words[one.name]) for one in spec.columns],
        "rows": [[(human(row[one.name], one.unit), words[one.name]) for one in spec.columns] for row in rows],
        "left": total - len(rows),
    }
