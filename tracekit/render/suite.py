"""A suite's report as text, data, or one HTML page with its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit import render
from tracekit.errors import MissingDependencyError
from tracekit.render.cells import clean
from tracekit.render.diff_tables import Table as Folding
from tracekit.render.headers import header
from tracekit.render.page import folding, page
from tracekit.suite.figures import figures

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tracekit.analysis import Column
    from tracekit.suite.figures import Figure
    from tracekit.suite.model import Table
    from tracekit.suite.report import Report

_TEMPLATE = "suite.html.j2"
NO_ROWS = "Not in the suite."


def as_text(report: Report, output_format: str) -> str:
    """The report in a format of a command.

    Args:
        report: A suite's.
        output_format: `table`, `json`, `csv` or `markdown`; CSV has one line per cell of all tables.
    """
    if output_format == "json":
        return _json(report)
    if output_format == "csv":
        return _csv(report)
    parts = [headline(report), *outcomes(report)]
    between = "\n\n" if output_format == "markdown" else "\n"  # a table there ends at an empty line
    parts += [
        between.join([_rows(one, output_format), one.definition, *absent(one), form(one)])
        for one in report.tables.values()
    ]
    return "\n\n".join(parts) + "\n"


def _rows(one: Table, output_format: str) -> str:
    if not one.rows:
        return f"### {one.title}\n\n{NO_ROWS}" if output_format == "markdown" else f"{one.title}\n{NO_ROWS}"
    text = render.rows(one.told(), one.filled, output_format, command="suite", title=one.title, limit=0)
    return text.rstrip("\n")


def absent(one: Table) -> list[str]:
    """What of a table is not there, and why: whole columns, and the reasons that cells shorten."""
    found = [f"Without values: {_named(columns)} ({why})." for why, columns in one.empty().items()]
    said = [f"“{short}”: {why}" for short, _, why in (text.partition(": ") for text in one.shortened())]
    return [*found, *([f"In cells, {'; '.join(said)}."] if said else [])]


def form(one: Table) -> str:
    """The study whose form a table has."""
    return f"Form: {one.source}."


def undrawn(drawn: Sequence[Figure]) -> list[str]:
    """The figures that are not drawn, and why; several of one reason in one line."""
    alike: dict[str, list[Figure]] = {}
    for one in drawn:
        if one.content is None:
            alike.setdefault(one.reason.partition(": ")[2] or one.reason, []).append(one)
    return [
        f"{len(of)} figures are not drawn: {why}." if len(of) > 1 else f"{of[0].caption} Not drawn: {why}."
        for why, of in alike.items()
    ]


def _named(columns: Sequence[Column]) -> str:
    return ", ".join(header(one) for one in columns)


def headline(report: Report) -> str:
    """What was measured where, in a line."""
    machine = report.machine
    on = ", ".join([str(machine.get("cpu")), *(machine.get("gpus") or ["no GPU"])])
    begun = report.created_at[:16].replace("T", " ")
    return f"{report.id}: size {report.size} on {on}, torch {machine.get('torch')}, begun {begun} UTC"


def outcomes(report: Report) -> list[str]:
    """How the cells ended, and what is missing."""
    found = ", ".join(f"{count} {name}" for name, count in report.outcomes.items())
    said = [f"{sum(report.outcomes.values())} cells: {found}."]
    if report.outcomes.get("pending"):
        said.append("The suite is not finished: the command that began it goes on with it.")
    return said


def as_html(report: Report) -> str:
    """One page that asks for nothing outside of it.

    Raises:
        MissingDependencyError: plotly is not installed.
    """
    drawn = figures(report)
    tables = [
        (folding(Folding(one.name, one.title, one.filled, one.told()), limit=0, unfolded=True), one)
        if one.rows
        else ({"title": clean(one.title), "rows": []}, one)
        for one in report.tables.values()
    ]
    content = {
        "headline": clean(headline(report)),
        "said": [clean(line) for line in outcomes(report)],
        "script": _script(),
        "no_rows": NO_ROWS,
        "tables": [
            {
                "table": shown,
                "definition": clean(one.definition),
                "absent": [clean(line) for line in absent(one)],
                "form": clean(form(one)),
                "figures": [_shown(figure) for figure in _of(one, drawn) if figure.content],
                "undrawn": [clean(line) for line in undrawn(_of(one, drawn))],
            }
            for shown, one in tables
        ],
    }
    return page(_TEMPLATE, content)


def pictures(report: Report, folder: Path) -> list[Path]:
    """The figures as PNG files; none where plotly's renderer kaleido is not installed.

    Args:
        report: A suite's.
        folder: Where they go; made if need be.
    """
    from importlib.util import find_spec

    if find_spec("kaleido") is None:
        return []
    from plotly import graph_objects

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for one in figures(report):
        if one.content is not None:
            path = folder / f"{one.name}.png"
            graph_objects.Figure(one.content).write_image(path)
            written.append(path)
    return written


def _script() -> str:
    """Plotly's own script, which the page carries with it."""
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "figures need plotly, which is not installed", hint="pip install 'tracekit-torch[dashboard]'"
        ) from error
    return str(get_plotlyjs())


def _of(one: Table, drawn: Sequence[Figure]) -> list[Figure]:
    return [figure for figure in drawn if figure.table == one.name]


def _shown(one: Figure) -> dict[str, str]:
    return {"caption": clean(one.caption), "drawn": _drawn(one)}


def _drawn(one: Figure) -> str:
    from plotly import graph_objects

    drawn = graph_objects.Figure(one.content)
    drawn.update_layout(template="plotly_white", yaxis_automargin=True, margin_t=24)
    html: str = drawn.to_html(full_html=False, include_plotlyjs=False, div_id=f"figure-{one.name}")
    return html


def _json(report: Report) -> str:
    tables: dict[str, Any] = {
        one.name: {
            "title": one.title,
            "definition": one.definition,
            "source": one.source,
            "rows": list(one.rows),
        }
        for one in report.tables.values()
    }
    content = {
        "suite": report.id,
        "size": report.size,
        "created_at": report.created_at,
        "machine": report.machine,
        "outcomes": report.outcomes,
        "tables": tables,
    }
    return render.envelope("suite", **content) + "\n"


def _csv(report: Report) -> str:
    from tracekit.analysis import Column

    names = ("table", "row", "column", "value", "reason")
    columns = [Column(name, "", "") for name in names]
    cells = [
        {
            "table": one.name,
            "row": number,
            "column": column.name,
            "value": row[column.name],
            "reason": row["reasons"].get(column.name),
        }
        for one in report.tables.values()
        for number, row in enumerate(one.rows)
        for column in one.columns
    ]
    return render.csv_text(cells, columns)
