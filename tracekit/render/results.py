"""Output formats of `tracekit analyze`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

from tracekit.errors import UnusableInputError
from tracekit.render import many_ranks
from tracekit.render.cells import clean
from tracekit.render.data import first
from tracekit.render.findings import finding_text
from tracekit.render.plain import csv_text, envelope, escape, markdown_text
from tracekit.render.terminal import DEFAULT_LIMIT, SHOW_ALL, table_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from tracekit.analysis import Analysis, Finding, Result, TableSpec

    Results: TypeAlias = Mapping[str, tuple[Analysis, Result]]

INTEGRITY = "integrity"


def as_json(run_id: str, results: Results, *, limit: int = 0, against: str = "") -> str:
    """One object: `{"schema": "tracekit.analyze/1", "run": ..., "results": {analysis: ...}}`.

    `against` is the id of the run the results compare with; a comparison names it after the run.
    """
    content = {name: _content(analysis, result, limit) for name, (analysis, result) in results.items()}
    base = {"against": against} if against else {}
    return envelope("analyze", run=run_id, **base, results=content) + "\n"


def _content(analysis: Analysis, result: Result, limit: int) -> dict[str, Any]:
    return {
        "tables": {
            spec.name: first(result.tables[spec.name], spec.columns, limit)[0]
            for spec in analysis.tables
            if spec.name in result.tables
        },
        "findings": [asdict(finding) for finding in result.findings],
        "notes": list(result.notes),
    }


def as_csv(results: Results, *, limit: int = 0) -> str:
    """Render each table after a line `# analysis.table`; a single table without it."""
    tables = [
        (
            f"{name}.{spec.name}",
            csv_text(first(result.tables[spec.name], spec.columns, limit)[0], spec.columns),
        )
        for name, (analysis, result) in results.items()
        for spec in analysis.tables
        if spec.name in result.tables
    ]
    if len(tables) == 1:
        return tables[0][1]
    return "\n".join(f"# {title}\n{text}" for title, text in tables)


def as_table(
    run_id: str, results: Results, *, limit: int = DEFAULT_LIMIT, verdict: str = "", against: str = ""
) -> str:
    """Render for a terminal: the verdict, then tables, findings and notes of each analysis."""
    base = f" against {clean(against)}" if against else ""
    parts = [f"run {clean(run_id)}{base}\n{verdict}"]
    for analysis, result in results.values():
        parts.append(f"── {clean(analysis.title)}: {clean(analysis.question)}\n")
        parts += [
            _table(result.tables[spec.name], spec, analysis.name, limit)
            for spec in analysis.tables
            if spec.name in result.tables
        ]
        parts += [finding_text(analysis.name, finding) + "\n" for finding in result.findings]
        parts += [f"note: {clean(note)}\n" for note in result.notes]
    return "\n".join(parts)


def _table(frame: pd.DataFrame, spec: TableSpec, analysis: str, limit: int) -> str:
    """Render a table; one with a row per rank as min, median and max if it exceeds the limit."""
    title = f"{spec.title} [{analysis}.{spec.name}]"
    show_all = f"{SHOW_ALL}, --table {spec.name} only this table"
    brief = many_ranks.summary(frame, spec.columns, limit) if limit and len(frame) > limit else None
    if brief is None:
        return table_text(frame, spec.columns, title=title, limit=limit, show_all=show_all)
    rows, columns = brief
    return table_text(rows, columns, title=title, limit=0) + many_ranks.left_out(frame, show_all)


def as_markdown(
    run_id: str, results: Results, *, limit: int = 0, verdict: str = "", against: str = ""
) -> str:
    """Render for a document: headings, tables, findings and notes."""
    base = f" against {escape(against)}" if against else ""
    parts = [f"# {escape(run_id)}{base}\n", *([escape(verdict.strip()) + "\n"] if verdict else [])]
    for analysis, result in results.values():
        parts.append(f"## {escape(analysis.title)}\n")
        parts += [
            markdown_text(result.tables[spec.name], spec.columns, title=spec.title, limit=limit)
            for spec in analysis.tables
            if spec.name in result.tables
        ]
        parts += [f"- {escape(_in_a_line(finding))}\n" for finding in result.findings]
        parts += [f"> {escape(note)}\n" for note in result.notes]
    return "\n".join(parts)


def verdict_line(result: Result) -> str:
    """Return the integrity verdict in one line, or why there is none."""
    if "verdict" not in result.tables:
        return f"{INTEGRITY}: unknown: {clean('; '.join(result.notes))}\n"
    row = result.tables["verdict"].iloc[0]
    return f"{INTEGRITY}: {clean(str(row['verdict']))}: {clean(str(row['reason']))}\n"


def notes(results: Results) -> list[str]:
    """Return the notes of the analyses, one line each."""
    return [f"{clean(name)}: {clean(note)}" for name, (_, result) in results.items() for note in result.notes]


def only_table(results: Results, table: str) -> Results:
    """Keep only the tables of a name.

    Raises:
        UnusableInputError: No result has such a table.
    """
    chosen = {
        name: (analysis, _with_only(result, table))
        for name, (analysis, result) in results.items()
        if table in result.tables
    }
    if not chosen:
        known = sorted({name for _, result in results.values() for name in result.tables})
        raise UnusableInputError(
            f"no table {clean(table)!r}{_why_without(results, table)}",
            hint=f"available: {', '.join(known) or 'none'}",
        )
    return chosen


def _why_without(results: Results, table: str) -> str:
    """Return why the analyses with such a table did not produce it, as the end of an error message."""
    declaring = {
        name: (analysis, result)
        for name, (analysis, result) in results.items()
        if any(spec.name == table for spec in analysis.tables)
    }
    reasons = "; ".join(notes(declaring))
    if reasons:
        return f" for this run: {reasons}"
    return f" for this run, though {', '.join(declaring)} can produce it" if declaring else ""


def _with_only(result: Result, table: str) -> Result:
    from dataclasses import replace

    return replace(result, tables={table: result.tables[table]})


def _in_a_line(finding: Finding) -> str:
    return f"{finding.severity}: {clean(finding.title)}: {clean(finding.advice)} [{finding.code}]"
