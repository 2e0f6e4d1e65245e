"""Output formats of `tracekit suite report` and `tracekit sweep`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tracekit import render
from tracekit.analysis import Column
from tracekit.errors import MissingDependencyError, clean
from tracekit.experiments import sweep_model
from tracekit.experiments.suite import Figure, Report, figures
from tracekit.experiments.suite_plan import Table
from tracekit.experiments.sweep_model import Cell, Plan, Record
from tracekit.experiments.sweep_table import COLUMNS, DEVICE_COLUMNS, NO_GPU, SETTINGS, Row
from tracekit.render.cells import header
from tracekit.render.diff_tables import Table as Folding
from tracekit.render.page import folding, page
from tracekit.workloads.options import WorkloadOptions, list_options

_TEMPLATE = "suite.html.j2"
NO_ROWS = "Not measured in this suite."


def as_text(report: Report, output_format: str) -> str:
    """Render the report in an output format.

    Args:
        report: The report of a suite.
        output_format: `table`, `json`, `csv` or `markdown`; CSV has a line per cell of all tables.
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
    text = render.rows(one.values(), one.filled, output_format, command="suite", title=one.title, limit=0)
    return text.rstrip("\n")


def absent(one: Table) -> list[str]:
    """Return the hidden columns with reasons, and the full text of reasons shortened in cells."""
    empty = {why: ", ".join(map(header, columns)) for why, columns in one.empty().items()}
    found = [f"Columns hidden (no data): {names} ({why})." for why, names in empty.items()]
    reasons = [f"“{short}”: {why}" for short, _, why in (text.partition(": ") for text in one.full_reasons())]
    return [*found, *([f"Cell values: {'; '.join(reasons)}."] if reasons else [])]


def form(one: Table) -> str:
    """Return the reference for the layout of a table."""
    return f"Layout follows {one.source}."


def undrawn(drawn: Sequence[Figure]) -> list[str]:
    """Return the omitted figures with reasons, grouped by reason."""
    by_reason: dict[str, list[Figure]] = {}
    for one in drawn:
        if one.content is None:
            by_reason.setdefault(one.reason.partition(": ")[2] or one.reason, []).append(one)
    return [
        f"{len(of)} figures omitted: {why}." if len(of) > 1 else f"{of[0].caption} Omitted: {why}."
        for why, of in by_reason.items()
    ]


def headline(report: Report) -> str:
    """Return suite, machine and time in one line."""
    machine = report.machine
    on = ", ".join([str(machine.get("cpu")), *(machine.get("gpus") or ["no GPU"])])
    begun = report.created_at[:16].replace("T", " ")
    return f"{report.id}: size {report.size} on {on}, torch {machine.get('torch')}, started {begun} UTC"


def outcomes(report: Report) -> list[str]:
    """Return the outcomes of the cells, and whether the suite is unfinished."""
    found = ", ".join(f"{count} {name}" for name, count in report.outcomes.items())
    lines = [f"{sum(report.outcomes.values())} cells: {found}."]
    if report.outcomes.get("pending"):
        lines.append("The suite is not finished; to resume, run the command that started it again.")
    return lines


def as_html(report: Report) -> str:
    """Render as one self-contained HTML page.

    Raises:
        MissingDependencyError: plotly is not installed.
    """
    drawn = figures(report)
    tables = [
        (folding(Folding(one.name, one.title, one.filled, one.values()), limit=0, unfolded=True), one)
        if one.rows
        else ({"title": clean(one.title), "rows": []}, one)
        for one in report.tables.values()
    ]
    content = {
        "headline": clean(headline(report)),
        "summary": [clean(line) for line in outcomes(report)],
        "script": _script(),
        "no_rows": NO_ROWS,
        "tables": [
            {
                "table": shown,
                "definition": clean(one.definition),
                "absent": [clean(line) for line in absent(one)],
                "form": clean(form(one)),
                "figures": [
                    {"caption": clean(figure.caption), "drawn": _drawn(figure)}
                    for figure in _of(one, drawn)
                    if figure.content
                ],
                "undrawn": [clean(line) for line in undrawn(_of(one, drawn))],
            }
            for shown, one in tables
        ],
    }
    return page(_TEMPLATE, content)


def pictures(report: Report, folder: Path) -> list[Path]:
    """Write the figures as PNG files; none if kaleido is not installed.

    Args:
        report: The report of a suite.
        folder: Output folder, created if missing.
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
    """Return Plotly's script, which is embedded in the page."""
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "figures need the package 'plotly'", hint="pip install 'tracekit-torch[dashboard]'"
        ) from error
    return str(get_plotlyjs())


def _of(one: Table, drawn: Sequence[Figure]) -> list[Figure]:
    return [figure for figure in drawn if figure.table == one.name]


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


PENDING = "pending"
_ALWAYS_COLUMNS = ("resolution", "batch_size")
_ALWAYS_NAMED = ("mode", "level", "dtype")
_MACHINE_ONLY = {"part", "seconds", "device_reason", "size", "device", "ran_on", "threads_used", "gpu"}


def sweep_text(
    name: str, plan: Plan, found: Sequence[Row], output_format: str, *, said: Sequence[str] = ()
) -> str:
    """Render the rows of a sweep in an output format.

    Args:
        name: Id of the sweep.
        plan: Plan of the sweep.
        found: Rows from `tracekit.experiments.sweep_table.rows`.
        output_format: `table`, `json`, `csv` or `markdown`.
        said: Notes, which JSON includes.
    """
    flat = [row.flat() for row in found]
    if output_format == "json":
        content = {
            "sweep": name,
            "name": plan.name,
            "repeats": plan.repeats,
            "rows": flat,
            "notes": list(said),
        }
        return render.envelope("sweep", **content) + "\n"
    if output_format == "csv":
        return render.csv_text(render.records(flat, COLUMNS), COLUMNS)
    columns = shown(found)
    title = f"{name}: {held(found)}"
    return render.rows(
        [values(row) for row in found], columns, output_format, command="sweep", title=title, limit=0
    )


def values(row: Row) -> dict[str, Any]:
    """Return a row for output to people; missing device values are replaced by the reason."""
    flat = row.flat()
    missing = [name for name in DEVICE_COLUMNS if row.device_reason and flat[name] is None]
    return flat | dict.fromkeys(missing, row.device_reason) | {"threads": row.settings.threads or "all"}


def shown(found: Sequence[Row]) -> list[Column]:
    """Return the columns to show: settings that vary, and values that exist."""
    flat = [row.flat() for row in found]

    def wanted(name: str) -> bool:
        values = [row[name] for row in flat]
        if name in _MACHINE_ONLY:
            return False
        if name in SETTINGS:
            return name in _ALWAYS_COLUMNS or len({repr(value) for value in values}) > 1
        return any(value not in {None, ""} for value in values)

    return [column for column in COLUMNS if wanted(column.name)]


def held(found: Sequence[Row]) -> str:
    """Describe the settings shared by all rows."""
    flat = [row.flat() for row in found]
    names = [name for name in SETTINGS if name not in {*_ALWAYS_COLUMNS, "size", "device"}]
    same = {name: flat[0][name] for name in names if len({repr(row[name]) for row in flat}) == 1}
    usual = {one.name: one.default for one in list_options(WorkloadOptions) if one.name not in _ALWAYS_NAMED}
    return ", ".join(_setting(name, value) for name, value in same.items() if value != usual.get(name, ""))


def notes(name: str, plan: Plan, found: Sequence[Row], done: Mapping[tuple[str, int], Record]) -> list[str]:
    """Return the notes below the table."""
    lines = [_searched(first, plan, done) for first in plan.cells] if plan.search else []
    outcomes = [row.outcome for row in found]
    counts = {kind: outcomes.count(kind) for kind in dict.fromkeys(outcomes)}
    lines.append(f"{name}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}")
    if any(row.device_reason == NO_GPU for row in found):
        lines.append(f"device memory and utilization: {NO_GPU}")
    return lines


def _searched(first: Cell, plan: Plan, done: Mapping[tuple[str, int], Record]) -> str:
    result, settings = sweep_model.search_result(first, plan, done), first.settings
    what = f"{settings.workload} {settings.mode} {settings.level}, resolution {settings.resolution}"
    if result.best is None:
        return f"{what}: no batch size measured: {result.why or 'search not finished'}"
    best = f"best batch size {result.best}, {result.samples_per_second:,.1f} samples/s"
    return f"{what}: {best}; {result.why or 'search not finished'}"


def _setting(name: str, value: Any) -> str:
    plain = name in {"workload", "mode", "level", "dtype"}
    return str(value) if plain else f"{name.replace('_', ' ')} {value}"
