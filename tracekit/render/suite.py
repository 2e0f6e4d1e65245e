"""Report of `tracekit suite`: the tables and figures of published studies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracekit.analysis import Column
from tracekit.errors import MissingDependencyError
from tracekit.experiments.suite import Figure, Report, figures
from tracekit.experiments.suite_plan import Table as SuiteTable
from tracekit.render.cells import csv_text, header, json_text
from tracekit.render.document import Block, Raw, Table, TableBlock, write, write_markdown, write_text
from tracekit.render.page import fold_table, page

NO_ROWS = "Not measured in this suite."


def render(report: Report, output_format: str) -> str:
    """Render in one of the formats of data; CSV has a line per cell of all tables."""
    if output_format == "json":
        return _json(report)
    if output_format == "csv":
        return _csv(report)
    lines = [Raw(f"{line}\n", f"{line}\n") for line in (headline(report), *outcomes(report))]
    return write(output_format, [*lines, *map(_table_block, report.tables.values())])


def _table_block(table: SuiteTable) -> Block:
    lines = [table.definition, *absent(table), table.layout]
    if table.rows:
        block = TableBlock(Table(table.name, table.title, tuple(table.filled), table.values()))
        markdown, text = write_markdown(block), write_text(block)
    else:
        markdown, text = f"### {table.title}\n\n{NO_ROWS}\n", f"{table.title}\n{NO_ROWS}\n"
    return Raw(
        text + "".join(f"{line}\n" for line in lines), "\n".join([markdown, *(f"{line}\n" for line in lines)])
    )


def absent(table: SuiteTable) -> list[str]:
    """Return the hidden columns with reasons, and the full text of reasons shortened in cells."""
    empty = {why: ", ".join(map(header, columns)) for why, columns in table.empty().items()}
    lines = [f"Columns hidden (no data): {names} ({why})." for why, names in empty.items()]
    reasons = [
        f"“{short}”: {why}" for short, _, why in (text.partition(": ") for text in table.full_reasons())
    ]
    return [*lines, *([f"Cell values: {'; '.join(reasons)}."] if reasons else [])]


def undrawn(drawn: Sequence[Figure]) -> list[str]:
    """Return the omitted figures with reasons, grouped by reason."""
    by_reason: dict[str, list[Figure]] = {}
    for figure in drawn:
        if figure.content is None:
            by_reason.setdefault(figure.reason.partition(": ")[2] or figure.reason, []).append(figure)
    return [
        f"{len(omitted)} figures omitted: {why}."
        if len(omitted) > 1
        else f"{omitted[0].caption} Omitted: {why}."
        for why, omitted in by_reason.items()
    ]


def headline(report: Report) -> str:
    """Return suite, machine and time in one line."""
    machine = report.machine
    devices = ", ".join([str(machine.get("cpu")), *(machine.get("gpus") or ["no GPU"])])
    start = report.created_at[:16].replace("T", " ")
    return f"{report.id}: size {report.size} on {devices}, torch {machine.get('torch')}, started {start} UTC"


def outcomes(report: Report) -> list[str]:
    """Return the outcomes of the cells, and whether the suite is unfinished."""
    counts = ", ".join(f"{count} {name}" for name, count in report.outcomes.items())
    lines = [f"{sum(report.outcomes.values())} cells: {counts}."]
    if report.outcomes.get("pending"):
        lines.append("The suite is not finished; to resume, run the command that started it again.")
    return lines


def as_html(report: Report) -> str:
    """Render as one self-contained HTML page.

    Raises:
        MissingDependencyError: plotly is not installed.
    """
    drawn = figures(report)
    content = {
        "headline": headline(report),
        "summary": outcomes(report),
        "script": _script(),
        "no_rows": NO_ROWS,
        "tables": [
            _html_table(table, [figure for figure in drawn if figure.table == table.name])
            for table in report.tables.values()
        ],
    }
    return page("suite.html.j2", content)


def _html_table(table: SuiteTable, drawn: Sequence[Figure]) -> dict[str, Any]:
    rows = Table(table.name, table.title, tuple(table.filled), table.values()) if table.rows else None
    return {
        "table": fold_table(rows) if rows else {"title": table.title, "rows": []},
        "definition": table.definition,
        "absent": absent(table),
        "form": table.layout,
        "figures": [
            {"caption": figure.caption, "drawn": _figure_html(figure)} for figure in drawn if figure.content
        ],
        "undrawn": undrawn(drawn),
    }


def pictures(report: Report, folder: Path) -> list[Path]:
    """Write the figures as PNG files to a folder, created if missing; none if kaleido is not installed."""
    from importlib.util import find_spec

    if find_spec("kaleido") is None:
        return []
    from plotly import graph_objects

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for figure in figures(report):
        if figure.content is not None:
            path = folder / f"{figure.name}.png"
            graph_objects.Figure(figure.content).write_image(path)
            written.append(path)
    return written


def _script() -> str:
    """Return Plotly's script, which is embedded in the page."""
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "figures need the package 'plotly'", hint="pip install 'tracekit-torch[dashboard]'"
        ) from error
    return str(get_plotlyjs())


def _figure_html(figure: Figure) -> str:
    from plotly import graph_objects

    drawn = graph_objects.Figure(figure.content)
    drawn.update_layout(template="plotly_white", yaxis_automargin=True, margin_t=24)
    html: str = drawn.to_html(full_html=False, include_plotlyjs=False, div_id=f"figure-{figure.name}")
    return html


def _json(report: Report) -> str:
    return json_text(
        "suite",
        suite=report.id,
        size=report.size,
        created_at=report.created_at,
        machine=report.machine,
        outcomes=report.outcomes,
        tables={
            table.name: {
                "title": table.title,
                "definition": table.definition,
                "source": table.source,
                "rows": list(table.rows),
            }
            for table in report.tables.values()
        },
    )


def _csv(report: Report) -> str:
    columns = [Column(name, "", "") for name in ("table", "row", "column", "value", "reason")]
    cells = [
        {
            "table": table.name,
            "row": number,
            "column": column.name,
            "value": row[column.name],
            "reason": row["reasons"].get(column.name),
        }
        for table in report.tables.values()
        for number, row in enumerate(table.rows)
        for column in table.columns
    ]
    return csv_text(cells, columns)
