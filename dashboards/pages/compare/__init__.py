"""Compare page: verdict, metrics and analyses; every number comes from `tracekit.diff`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from tracekit.analysis import Column
from tracekit.diff import Diff
from tracekit.diff.model import Metric, Verdict
from tracekit.render import diff_sentences, human

from ...blocks import block
from ...components.charts import aria
from ...components.finding import show_finding
from ...components.links import show_command
from ...components.text import capitalize, format_change, section, show_note, small_text
from ...site import Context, Page, Section, Site
from ...tables.html import html_table
from ...tables.table import show_table
from . import aligned, breakdowns, selection
from .banner import show_doubts
from .selection import Comparison, compare_quickly, compare_with_analyses, read_comparison, show_sides

_TONES = {
    Verdict.REGRESSION: "red",
    Verdict.IMPROVEMENT: "green",
    Verdict.PASS: "green",
    Verdict.CANNOT_TELL: "yellow",
    Verdict.NOT_COMPARABLE: "red",
}
_METRICS = (
    Column("metric", "prose", "name of the metric"),
    Column("base", "count", "base, A"),
    Column("head", "count", "head, B"),
    Column("change", "count", "head over base, minus 1"),
    Column("interval", "count", "95% interval of the change, from the spread between runs"),
    Column("runs", "count", "runs of the base and of the head"),
    Column("detectable", "count", "smallest change detected with 80% power"),
    Column("verdict", "prose", "verdict"),
    Column("basis", "prose", "how it was measured"),
)
EXPORTS = {"html": "HTML", "csv": "CSV (causes)", "json": "JSON"}


def _summary(context: Context, diff: Diff) -> list[Component]:
    """Show the verdict with the largest causes, and the metrics."""
    details = diff_sentences.describe_steps(diff)
    query = urlencode({"run": context.view.run, "base": context.view.base, **context.view.options})
    links = [
        html.A(text, href=f"/export/compare.{kind}?{query}", className="tk-chip")
        for kind, text in EXPORTS.items()
    ]
    exports = html.Div([html.Span("Save as ", className="tk-chips-label"), *links], className="tk-chips")
    reproduce = [show_command(diff_sentences.diff_command(diff)), exports]
    verdict = dmc.Alert(
        [
            *breakdowns.show_largest(context, diff),
            *([dmc.Text(details, size="sm")] if details else []),
            html.Div(reproduce, className="tk-reproduce"),
        ],
        title=capitalize(diff_sentences.headline(diff)),
        color=_TONES.get(diff.verdict, "gray"),
        variant="light",
        className="tk-compare-verdict",
    )
    return [verdict, *_metrics(diff)]


def _metrics(diff: Diff) -> list[Component]:
    if not diff.metrics:
        return []
    records = [_metric(metric, diff) for metric in diff.metrics]
    filled = [column for column in _METRICS[1:] if any(record[column.name] for record in records)]
    reasons = dict.fromkeys(metric.reason for metric in diff.metrics if metric.reason)
    shown: list[Component] = [
        html_table([_METRICS[0], *filled], records, caption="Metrics of both sides"),
        *(small_text(capitalize(reason) + ".") for reason in reasons),
        *breakdowns.show_step_ranges(diff),
    ]
    return [section("Metrics", *shown)]


def _metric(metric: Metric, diff: Diff) -> dict[str, Any]:
    interval = " to ".join(map(format_change, metric.ci95 or ()))
    return {
        "metric": metric.name.replace("_", " "),
        "base": html.Span(human(metric.a, metric.unit), title=f"{metric.a:,} {metric.unit}"),
        "head": html.Span(human(metric.b, metric.unit), title=f"{metric.b:,} {metric.unit}"),
        "change": None if metric.ratio is None else html.Span(format_change(metric.ratio)),
        "interval": html.Span(interval or "none (n = 1)" * (min(diff.design.k) < 2)),
        "runs": html.Span(f"{diff.design.k[0]} and {diff.design.k[1]}"),
        "detectable": None if metric.mde is None else html.Span(human(metric.mde, "share")),
        "verdict": str(metric.verdict),
        "basis": metric.basis,
    }


NAME = "compare"


def _layout(context: Context) -> list[Component]:
    heights = {"banner": 130, "summary": 330, "wall": 640, "work": 760, "analyses": 240}
    shown = heights if read_comparison(context) is not None else dict.fromkeys(heights, 1)
    blocks = [block(NAME, name, height=height) for name, height in shown.items()]
    return [
        html.Div(id="compare-stage", className="tk-stage", role="status", **aria(live="polite")),
        block(NAME, "sides", height=170),
        *blocks[:2],
        *aligned.create_section(),
        *blocks[2:],
    ]


def _show_diff(
    show: Callable[[Context, Diff], list[Component]],
    compute: Callable[[Context, Comparison], Diff],
    context: Context,
) -> list[Component]:
    """Show the requested comparison, if there is one and it is not refused."""
    comparison = read_comparison(context)
    diff = compute(context, comparison) if comparison else None
    return show(context, diff) if diff and not diff.comparability.refused else []


def _analyses(context: Context, diff: Diff) -> list[Component]:
    shown: list[Component] = []
    for analysis, result in diff.analyses:
        shown.append(dmc.Title(analysis.title, order=3, size="h5"))
        shown += [show_finding(context, finding) for finding in result.findings]
        shown += map(show_note, result.notes)
        for spec in analysis.comparison:
            if spec.name in result.tables and len(result.tables[spec.name]):
                shown.append(dmc.Text(spec.title, size="sm", fw=600))
                shown.append(show_table(context, f"{NAME}-{analysis.name}", spec, result.tables[spec.name]))
    return [section("Analyses", *(shown or [dmc.Text("No analysis can compare these runs.", size="sm")]))]


def _connect(site: Site) -> None:
    breakdowns.connect(site)
    selection.connect(site)
    aligned.connect(site)


_BLOCKS: dict[str, Callable[[Context], list[Component]]] = {
    "sides": show_sides,
    "banner": show_doubts,
    "summary": partial(_show_diff, _summary, compare_quickly),
    "wall": partial(_show_diff, breakdowns.show_step_time, compare_with_analyses),
    "work": partial(_show_diff, breakdowns.show_work, compare_quickly),
    "analyses": partial(_show_diff, _analyses, compare_with_analyses),
}

PAGE = Page(
    name=NAME,
    title="Compare",
    question="How does this run differ from the baseline, and what causes the difference?",
    section=Section.COMPARE,
    order=500,
    layout=_layout,
    blocks=_BLOCKS,
    connect=_connect,
)
