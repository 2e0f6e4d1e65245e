"""Compare page: verdict, metrics and analyses; every number comes from `tracekit.diff`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from tracekit.analysis import Analysis, Column, Result
from tracekit.diff import Diff
from tracekit.diff.model import Metric, Verdict
from tracekit.render import diff_words, human

from ...answers.results import rows
from ...blocks import block
from ...grids.table import table
from ...parts.charts import aria
from ...parts.finding import capitalized, finding, note
from ...parts.links import copyable
from ...site import Context, Page, Section, Site
from . import aligned, ledgers, selection
from .banner import banner
from .selection import compared, requested, sides, with_analyses

if TYPE_CHECKING:
    from .selection import Comparison


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


def summary(context: Context, diff: Diff) -> list[Component]:
    """Show the verdict with the largest causes, and the metrics; nothing if the runs are not compared."""
    if diff.comparability.refused:
        return []
    return [_verdict(context, diff), *_metrics(diff)]


def _verdict(context: Context, diff: Diff) -> Component:
    details = diff_words.compared(diff)
    return dmc.Alert(
        [
            *ledgers.worst(context, diff),
            *([dmc.Text(details, size="sm")] if details else []),
            html.Div(
                [copyable(diff_words.command(diff)), exports(context)],
                className="tk-reproduce",
            ),
        ],
        title=capitalized(diff_words.headline(diff)),
        color=_TONES.get(diff.verdict, "gray"),
        variant="light",
        className="tk-compare-verdict",
    )


def exports(context: Context) -> Component:
    """Show links to export the comparison."""
    view = context.view
    parameters = {"run": view.run, "base": view.base, **view.options}
    return html.Div(
        [
            html.Span("Save as ", className="tk-chips-label"),
            *(
                html.A(text, href=f"/export/compare.{kind}?{urlencode(parameters)}", className="tk-chip")
                for kind, text in EXPORTS.items()
            ),
        ],
        className="tk-chips",
    )


def _metrics(diff: Diff) -> list[Component]:
    if not diff.metrics:
        return []
    records = [_metric(one, diff) for one in diff.metrics]
    known = [_METRICS[0], *(one for one in _METRICS[1:] if any(each[one.name] for each in records))]
    reasons = dict.fromkeys(one.reason for one in diff.metrics if one.reason)
    shown: list[Component] = [
        dmc.Title("Metrics", order=2, size="h4"),
        rows(known, records, caption="Metrics of both sides"),
        *(dmc.Text(capitalized(reason) + ".", size="xs", c="dimmed") for reason in reasons),
        *ledgers.step_ranges(diff),
    ]
    return [html.Section(shown, className="tk-section")]


def _metric(one: Metric, diff: Diff) -> dict[str, Any]:
    change = None if one.ratio is None else html.Span(f"{100 * (one.ratio - 1):+.1f}%")
    low_high = one.ci95 and [f"{100 * (end - 1):+.1f}%" for end in one.ci95]
    return {
        "metric": one.name.replace("_", " "),
        "base": html.Span(human(one.a, one.unit), title=f"{one.a:,} {one.unit}"),
        "head": html.Span(human(one.b, one.unit), title=f"{one.b:,} {one.unit}"),
        "change": change,
        "interval": html.Span(
            " to ".join(low_high) if low_high else "none (n = 1)" * (min(diff.design.k) < 2)
        ),
        "runs": html.Span(f"{diff.design.k[0]} and {diff.design.k[1]}"),
        "detectable": None if one.mde is None else html.Span(human(one.mde, "share")),
        "verdict": str(one.verdict),
        "basis": one.basis,
    }


NAME = "compare"


def _layout(context: Context) -> list[Component]:
    found: list[Component] = [
        html.Div(id="compare-stage", className="tk-stage", role="status", **aria(live="polite")),
        block(NAME, "sides", height=170),
    ]
    shown = requested(context) is not None
    heights = {"banner": 130, "summary": 330, "wall": 640, "work": 760, "analyses": 240} if shown else {}
    found += [block(NAME, name, height=heights.get(name, 1)) for name in ("banner", "summary")]
    found += aligned.place()
    return found + [block(NAME, name, height=heights.get(name, 1)) for name in ("wall", "work", "analyses")]


def _of_diff(
    show: Callable[[Context, Diff], list[Component]],
    compute: Callable[[Context, Comparison], Diff],
    context: Context,
) -> list[Component]:
    """Show the requested comparison, if there is one."""
    one = requested(context)
    return show(context, compute(context, one)) if one else []


def _analyses(context: Context, diff: Diff) -> list[Component]:
    if diff.comparability.refused:
        return []
    sections: list[Component] = [dmc.Title("Analyses", order=2, size="h4")]
    for analysis, result in diff.analyses:
        sections += _analysis(context, analysis, result)
    if not diff.analyses:
        sections.append(dmc.Text("No analysis can compare these runs.", size="sm"))
    return [html.Section(sections, className="tk-section")]


def _analysis(context: Context, analysis: Analysis, result: Result) -> list[Component]:
    shown: list[Component] = [dmc.Title(analysis.title, order=3, size="h5")]
    shown += [finding(context, one) for one in result.findings]
    shown += [note(text) for text in result.notes]
    for spec in analysis.comparison:
        if spec.name in result.tables and len(result.tables[spec.name]):
            shown.append(dmc.Text(spec.title, size="sm", fw=600))
            shown.append(table(context, f"{NAME}-{analysis.name}", spec, result.tables[spec.name]))
    return shown


def _connect(site: Site) -> None:
    ledgers.connect(site)
    selection.connect(site)
    aligned.connect(site)


_BLOCKS: dict[str, Callable[[Context], list[Component]]] = {
    "sides": sides,
    "banner": banner,
    "summary": partial(_of_diff, summary, compared),
    "wall": partial(_of_diff, ledgers.wall, with_analyses),
    "work": partial(_of_diff, ledgers.work, compared),
    "analyses": partial(_of_diff, _analyses, with_analyses),
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
