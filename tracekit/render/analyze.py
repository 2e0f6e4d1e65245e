"""Report of `tracekit analyze`: the tables, findings and notes of analyses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from tracekit.analysis import Analysis, Column, Finding, Result, TableSpec
from tracekit.errors import UnusableInputError, clean, did_you_mean
from tracekit.render.cells import Record, csv_text, escape, first_rows, header, json_text, markdown_text
from tracekit.render.document import Block, Raw, write
from tracekit.render.findings import finding_text
from tracekit.render.layout import DEFAULT_LIMIT, SHOW_ALL, table_text
from tracekit.schema import C

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Section:
    """What is shown of an analysis and its result; a table is a frame or, if it is short, records."""

    title: str
    question: str
    specs: tuple[TableSpec, ...]
    tables: dict[str, Any]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, analysis: Analysis, result: Result, *, short: bool = False) -> Section:
        """Return the section of a result, with records of tables that are shown whole if `short`."""
        tables: dict[str, Any] = dict(result.tables)
        for spec in analysis.tables if short else ():
            if len(tables.get(spec.name, range(DEFAULT_LIMIT + 1))) <= DEFAULT_LIMIT:
                tables[spec.name] = first_rows(tables[spec.name], spec.columns, 0)[0]
        notes = tuple(map(str, result.notes))
        return cls(analysis.title, analysis.question, analysis.tables, tables, result.findings, notes)


Results: TypeAlias = Mapping[str, Section]
"""Sections by analysis."""


@dataclass(frozen=True)
class Shown:
    """What `tracekit analyze` shows; `integrity` is the verdict on the run in one line, or empty."""

    results: dict[str, Section]
    integrity: str
    complete: bool


def render(
    run_id: str,
    results: Results,
    output_format: str,
    *,
    limit: int | None = None,
    integrity: str = "",
    against: str = "",
) -> str:
    """Render in one of the formats of data.

    Args:
        run_id: The run.
        results: The results by analysis.
        output_format: `table`, `json`, `csv` or `markdown`. JSON is `{"schema": "tracekit.analyze/1", "run":
            ..., "results": {analysis: ...}}`; CSV has each table after a line `# analysis.table`.
        limit: Maximum rows per table, 0 for all; by default 30 in a table and all elsewhere.
        integrity: Integrity verdict of the run in one line; empty to omit it.
        against: Id of the run that the results compare with.
    """
    match output_format:
        case "json":
            content = {
                name: result_content(section, section.specs, limit or 0) for name, section in results.items()
            }
            base = {"against": against} if against else {}
            return json_text("analyze", run=run_id, **base, results=content)
        case "csv":
            return _csv(results, limit or 0)
    if limit is None:
        limit = DEFAULT_LIMIT if output_format == "table" else 0
    return write(output_format, [*_blocks(run_id, results, limit, integrity, against)])


def _blocks(run_id: str, results: Results, limit: int, integrity: str, against: str) -> Iterator[Block]:
    base = f" against {against}" if against else ""
    yield Raw(f"run {clean(run_id + base)}\n{integrity}", f"# {escape(run_id + base)}\n")
    yield Raw(markdown=f"{escape(integrity.strip())}\n" if integrity else "")
    for name, section in results.items():
        title = clean(section.title)
        yield Raw(f"── {title}: {clean(section.question)}\n", f"## {escape(title)}\n")
        for spec, rows in _tables(section, section.specs):
            yield Raw(
                partial(_table, rows, spec, name, limit),
                partial(markdown_text, rows, spec.columns, title=spec.title, limit=limit),
            )
        for finding in section.findings:
            line = f"{finding.severity}: {finding.title}: {finding.advice} [{finding.code}]"
            yield Raw(f"{finding_text(name, finding)}\n", f"- {escape(line)}\n")
        for note in section.notes:
            yield Raw(f"note: {clean(note)}\n", f"> {escape(note)}\n")


def _tables(result: Result | Section, specs: Sequence[TableSpec]) -> list[tuple[TableSpec, Any]]:
    return [(spec, result.tables[spec.name]) for spec in specs if spec.name in result.tables]


def result_content(result: Result | Section, specs: Sequence[TableSpec], limit: int = 0) -> dict[str, Any]:
    """Return tables, findings and notes as JSON values.

    Args:
        result: The result of an analysis, or of its comparison.
        specs: The tables that it can have.
        limit: Maximum rows per table, 0 for all.
    """
    tables = _tables(result, specs)
    return {
        "tables": {spec.name: first_rows(rows, spec.columns, limit)[0] for spec, rows in tables},
        "findings": [*map(asdict, result.findings)],
        "notes": list(result.notes),
    }


def _csv(results: Results, limit: int) -> str:
    tables = [
        (f"{name}.{spec.name}", csv_text(first_rows(rows, spec.columns, limit)[0], spec.columns))
        for name, section in results.items()
        for spec, rows in _tables(section, section.specs)
    ]
    if len(tables) == 1:
        return tables[0][1]
    return "\n".join(f"# {title}\n{text}" for title, text in tables)


def _table(frame: pd.DataFrame, spec: TableSpec, analysis: str, limit: int) -> str:
    """Render a table; one with a row per rank as min, median and max if it exceeds the limit."""
    title = f"{spec.title} [{analysis}.{spec.name}]"
    show_all = f"{SHOW_ALL}, --table {spec.name} only this table"
    summary = summarize_ranks(frame, spec.columns, limit) if limit and len(frame) > limit else None
    if summary is None:
        return table_text(frame, spec.columns, title=title, limit=limit, show_all=show_all)
    rows, columns = summary
    ranks = f"{len(frame):,} rows of {frame[C.RANK].nunique():,} ranks"
    text = table_text(rows, columns, title=title, limit=0)
    return f"{text}min, median and max of {ranks}; {show_all}\n"


MAX_GROUPS = 6
_PLACES = (C.RANK, C.DEVICE)
_SUMMARY_COLUMNS = (
    Column("of", "", "column of the table"),
    Column("min", "", "minimum over all ranks", unit_in=C.UNIT),
    Column("min_rank", "", "rank with the minimum, the lowest of several"),
    Column("median", "", "lower median", unit_in=C.UNIT),
    Column("max", "", "maximum over all ranks", unit_in=C.UNIT),
    Column("max_rank", "", "rank with the maximum, the lowest of several"),
    Column(C.UNIT, "", "unit of the values"),
)


def summarize_ranks(
    frame: pd.DataFrame, columns: Sequence[Column], limit: int
) -> tuple[list[Record], list[Column]] | None:
    """Summarize a table with a row per rank, or per rank and a few labels; None for other tables.

    Args:
        frame: The table.
        columns: Its columns.
        limit: Maximum rows.

    Returns:
        Rows and columns to show instead; a row per column with a unit, up to the limit.
    """
    # row numbers differ between ranks
    candidates = [
        column for column in columns if column.name not in _PLACES and not column.name.endswith("_row")
    ]
    measures = [column for column in candidates if _measures(frame, column)]
    labels = [column.name for column in candidates if not column.unit and column not in measures]
    places = [name for name in _PLACES if name in frame]
    if C.ROW_ID in frame:  # each row is an event, even if it is its rank's only one
        return None
    if C.RANK not in places or not measures or frame.duplicated([*places, *labels]).any():
        return None
    groups = list(frame.groupby(labels, sort=True, observed=True, dropna=False)) if labels else [((), frame)]
    if len(groups) > MAX_GROUPS:
        return None
    max_measures = max(1, limit // len(groups))
    rows = [
        {**dict(zip(labels, key, strict=True)), **row}
        for key, group in groups
        for row in _summarize_columns(group, measures[:max_measures])
    ]
    return rows, [*(column for column in columns if column.name in labels), *_SUMMARY_COLUMNS]


def _measures(frame: pd.DataFrame, column: Column) -> bool:
    """Tell whether a column has values to compare: any with a unit, or floats without one."""
    from pandas.api.types import is_float_dtype

    if column.unit:
        return column.unit not in {"prose", "id"}
    return is_float_dtype(frame[column.name].dtype) and bool(frame[column.name].notna().any())


def _summarize_columns(group: pd.DataFrame, measures: Sequence[Column]) -> Iterator[Record]:
    for column in measures:
        rows = group[group[column.name].notna()].sort_values([column.name, C.RANK], kind="stable")
        if rows.empty:
            continue
        values, ranks = rows[column.name], rows[C.RANK]
        max_rank = ranks[values == values.iloc[-1]].min()
        yield {
            "of": header(column),
            "min": values.iloc[0],
            "min_rank": ranks.iloc[0],
            "median": values.iloc[(len(rows) - 1) // 2],
            "max": values.iloc[-1],
            "max_rank": max_rank,
            C.UNIT: column.unit,
        }


def notes(results: Results) -> list[str]:
    """Return the notes of the analyses, one line each."""
    return [f"{clean(name)}: {clean(note)}" for name, section in results.items() for note in section.notes]


def only_table(results: Results, table: str) -> Results:
    """Keep only the tables of a name.

    Raises:
        UnusableInputError: No result has such a table.
    """
    chosen = {
        name: replace(section, tables={table: section.tables[table]})
        for name, section in results.items()
        if table in section.tables
    }
    if not chosen:
        names = sorted({name for section in results.values() for name in section.tables})
        raise UnusableInputError(
            f"no table {clean(table)!r}{_why_without(results, table)}",
            hint=did_you_mean(table, names) or f"available: {', '.join(names) or 'none'}",
        )
    return chosen


def _why_without(results: Results, table: str) -> str:
    """Return why the analyses with such a table did not produce it, as the end of an error message."""
    declaring = {
        name: section
        for name, section in results.items()
        if any(spec.name == table for spec in section.specs)
    }
    reasons = "; ".join(notes(declaring))
    if reasons:
        return f" for this run: {reasons}"
    return f" for this run, though {', '.join(declaring)} can produce it" if declaring else ""
