"""Objects of tracekit in notebooks: a summary in HTML, a DataFrame, a figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd

from tracekit import analysis
from tracekit.analysis import Analysis, Column, Finding, Result, TableSpec
from tracekit.diff.model import Diff, Verdict
from tracekit.errors import UnusableInputError, unknown_name
from tracekit.experiments.trial import TryReport
from tracekit.export.views import unit
from tracekit.registry import import_extra
from tracekit.render import diff_sentences, diff_tables, trial
from tracekit.render.document import Table
from tracekit.render.page import fold_table, page
from tracekit.runs.run import Run
from tracekit.runs.step_times import unprofiled_step_time
from tracekit.runs.text import human
from tracekit.schema import TABLES

_MAX_ROWS = 10
_MAX_TABLES = 6
_TONES = {Verdict.REGRESSION: "bad", Verdict.IMPROVEMENT: "good", Verdict.PASS: "good"}
_PLOTTED = ("part", "delta_ns")
_DIFF_TABLES = ("metrics", "wall", "causes", "differences")


def html(shown: object) -> str:
    """Return a summary in HTML without scripts, in the reader's light or dark theme; all text is escaped."""
    content: dict[str, Any] = {"title": "", "tone": "", "facts": (), "lines": (), "tables": (), "notes": ()}
    return page("notebook.html.j2", content | _summarize(shown))


def _summarize(shown: object) -> dict[str, Any]:
    match shown:
        case Run():
            return _summarize_run(shown)
        case Result():
            return _summarize_result(shown)
        case Finding():
            return _summarize_finding(shown)
        case Diff():
            return _summarize_diff(shown)
        case TryReport():
            table = Table.of("changes", "Changes", shown.outcomes, *trial.COLUMNS)
            return {"title": trial.headline(shown), "tables": [fold_table(table)]}
    raise TypeError(f"{type(shown).__name__} has no summary")


def _summarize_run(run: Run) -> dict[str, Any]:
    meta = run.meta
    workload, gpus = meta.workload or {}, meta.environment.get("gpus") or []
    recorded = [name for name in TABLES if run.rows(name)]
    took = unprofiled_step_time(meta.timings)
    facts = [
        ("label", meta.label),
        ("workload", " ".join(str(workload[key]) for key in ("name", "mode", "device") if workload.get(key))),
        ("created", meta.created_at),
        ("device", ", ".join(dict.fromkeys(str(gpu.get("name")) for gpu in gpus))),
        ("step", f"{human(took.mean_ns, 'ns')} without the profiler" if took else ""),
        ("rows", ", ".join(f"{run.rows(name):,} {name.replace('_', ' ')}" for name in recorded)),
    ]
    return {
        "title": f"run {run.id}",
        "facts": [(name, str(text)) for name, text in facts if text],
        "notes": [f"{item.level}: {item.message}" for item in meta.diagnostics[:_MAX_TABLES]],
    }


def _summarize_result(result: Result) -> dict[str, Any]:
    definition = analysis_of(result)
    specs = _specs(result, definition)
    tables = [
        fold_table(_table(specs[name], frame), limit=_MAX_ROWS, is_open=place == 0)
        for place, (name, frame) in enumerate([*result.tables.items()][:_MAX_TABLES])
    ]
    more = len(result.tables) - len(tables)
    left = [f"{more} more tables: {', '.join([*result.tables][_MAX_TABLES:])}"] if more else []
    findings = [
        f"{item.severity.upper()}: {item.title} → {item.advice}"
        for item in sorted(result.findings, key=lambda item: -(item.saving_ns_per_step or 0))
    ]
    return {
        "title": definition.question if definition else "Result",
        "lines": findings,
        "tables": tables,
        "notes": [*left, *result.notes],
    }


def _summarize_finding(finding: Finding) -> dict[str, Any]:
    saving = finding.saving_ns_per_step
    facts = [
        ("advice", finding.advice),
        (
            "saving",
            "" if saving is None else f"{finding.saves} {human(saving, 'ns')} per step, {finding.basis}",
        ),
        ("calculated", finding.how),
        ("confidence", f"{100 * finding.confidence:.0f}%"),
        ("rule", finding.code),
    ]
    return {
        "title": f"{finding.severity.upper()}: {finding.title}",
        "tone": "bad" if finding.severity == "high" else "",
        "facts": [fact for fact in facts if fact[1]],
    }


def _summarize_diff(diff: Diff) -> dict[str, Any]:
    tables = [table for table in _tables_of(diff) if table.rows and table.name in _DIFF_TABLES]
    return {
        "title": diff_sentences.headline(diff),
        "tone": _TONES.get(diff.verdict, ""),
        "facts": [
            ("base", diff_sentences.describe_side(diff.base)),
            ("head", diff_sentences.describe_side(diff.head)),
        ],
        "tables": [fold_table(table, limit=_MAX_ROWS, is_open=table.name != "causes") for table in tables],
        "notes": [*filter(None, (*diff.warnings, diff_sentences.next_step(diff)))],
    }


def _tables_of(diff: Diff) -> list[Table]:
    """Return the tables of a comparison; of runs that cannot be compared what differs."""
    return diff_tables.all_tables(diff) if diff.compared else [diff_tables.differences(diff)]


def analysis_of(result: Result) -> Analysis | None:
    """Return the analysis whose tables a result has; None for a comparison, or one that is not installed."""
    if not result.tables:
        return None
    for known in analysis.available():
        columns = {spec.name: [column.name for column in spec.columns] for spec in known.tables}
        if all([*frame.columns] == columns.get(name) for name, frame in result.tables.items()):
            return known
    return None


def _specs(result: Result, definition: Analysis | None) -> dict[str, TableSpec]:
    """Return the specifications of a result's tables; of an unknown analysis by the names of columns."""
    if definition:
        return {spec.name: spec for spec in definition.tables}
    return {
        name: TableSpec(name, name, tuple(Column(str(column), unit(str(column)), "") for column in frame))
        for name, frame in result.tables.items()
    }


def _table(spec: TableSpec, frame: pd.DataFrame) -> Table:
    from tracekit.render.cells import records

    rows = records(frame.head(_MAX_ROWS), spec.columns)
    left = len(frame) - len(rows)
    title = spec.title + (f" ({len(rows)} of {len(frame):,} rows)" if left > 0 else "")
    return Table(spec.name, title, spec.columns, rows)


def to_pandas(shown: object, table: str) -> pd.DataFrame:
    """Return a table of an object; see `tracekit.runs.display.Displayed.to_pandas`."""
    import pandas as pd

    match shown:
        case Run():
            return shown.table(table or "steps")
        case Result():
            if not shown.tables and not table:
                return pd.DataFrame()
            return shown.tables[table or next(iter(shown.tables))]
        case Finding():
            return pd.DataFrame([asdict(shown)])
        case Diff():
            tables = {item.name: item for item in _tables_of(shown)}
            name = table or ("causes" if shown.compared else "differences")
            if name not in tables:
                raise unknown_name("table of the comparison", name, tables)
            return pd.DataFrame(tables[name].rows, columns=[column.name for column in tables[name].columns])
        case TryReport():
            return pd.DataFrame(shown.content()["outcomes"])
    raise TypeError(f"{type(shown).__name__} has no table")


def plot(shown: object, *, dark: bool) -> Any:
    """Return a Plotly figure; see `tracekit.runs.display.Displayed.plot`.

    Raises:
        MissingDependencyError: The packages of the dashboard are not installed.
        UnusableInputError: There is nothing to draw.
    """
    draw = import_extra("tracekit.dashboards.notebook", "figures need").draw
    match shown:
        case Run():
            result = analysis.analyze(shown, "steps")
            return draw(analysis.get("steps").tables, result.tables, dark=dark)
        case Result():
            return draw(tuple(_specs(shown, analysis_of(shown)).values()), shown.tables, dark=dark)
        case Diff() if shown.wall is not None:
            return _plot_table(draw, diff_tables.wall(shown), dark=dark)
    raise UnusableInputError(
        f"a {type(shown).__name__} has no figure",
        hint="plot the result of its analysis: tracekit.analyze(run, name)",
    )


def _plot_table(draw: Any, table: Table, *, dark: bool) -> Any:
    import pandas as pd

    columns = tuple(column for column in table.columns if column.name in _PLOTTED)
    frame = pd.DataFrame(table.rows, columns=[column.name for column in columns])
    specs: tuple[TableSpec, ...] = (TableSpec(table.name, table.title, columns),)
    frames: Mapping[str, pd.DataFrame] = {table.name: frame}
    return draw(specs, frames, dark=dark)
