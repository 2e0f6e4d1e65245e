"""Compare page: doubts, verdict, metrics and analyses; every number comes from `tracekit.diff`.

Doubtful are differences between the runs, few steps and incomplete captures. "Compare anyway" ignores
differences that block a comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from tracekit.analysis import Column
from tracekit.diff import Diff
from tracekit.diff.engine import IMPLIED
from tracekit.diff.model import Metric, Status, Verdict
from tracekit.errors import TracekitError, clean
from tracekit.render import diff_sentences

from ...blocks import block
from ...components.charts import aria
from ...components.finding import show_finding
from ...components.links import show_command
from ...components.several_runs import field_name
from ...components.text import (
    capitalize,
    format_change,
    human,
    section,
    sentence,
    show_note,
    small_text,
    with_code,
)
from ...site import Context, Page, Section, Site
from ...tables.html import html_table
from ...tables.table import show_table
from . import aligned, breakdowns, selection
from .selection import (
    ONLY_ONE,
    Comparison,
    compare_quickly,
    compare_with_analyses,
    href_anyway,
    href_ignoring,
    read_comparison,
    read_ignored,
    read_several,
    show_sides,
)

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


MIN_STEPS = 5
"""Fewer compared steps are named as a doubt."""
MIN_MATCHED_SHARE = 0.8
"""A smaller matched share of the work is named as a doubt."""
_EFFECTS = {
    Status.NOT_COMPARABLE: "✕ blocks comparison",
    Status.WARN: "! possible cause",
    Status.UNKNOWN: "? known for one side only",
    Status.DECLARED: "✓ ignored",
}
_DIFFERENCES = (
    Column("field", "", "field name, as for --varying"),
    Column("effect", "", "effect on the comparison"),
    Column("base", "prose", "value of the base, A"),
    Column("head", "prose", "value of the head, B"),
    Column("action", "", "ignore the difference, or undo that"),
)


def show_doubts(context: Context) -> list[Component]:
    """Show what makes the requested comparison doubtful; nothing without a doubt."""
    comparison = read_comparison(context)
    if comparison is None:
        return []
    diff = compare_quickly(context, comparison)
    doubts = [*describe_differences(diff), *describe_doubts(diff), *_incomplete(context, comparison)]
    if not doubts:
        return []
    refused = [difference.field for difference in diff.comparability.refused]
    content: list[Component] = [html.Ul([html.Li(with_code(text)) for text in doubts], className="tk-doubts")]
    if refused:
        href = href_anyway(context.view, [diff])
        anyway = dcc.Link("Compare anyway", href=href, className="tk-button tk-primary")
        content.append(html.Div(anyway, className="tk-anyway"))
    if diff.comparability.differences:
        content.append(_details(context, diff))
    title, color = "Read this comparison with care", "yellow"
    if refused:
        title, color = "These runs are not directly comparable", "orange"
    return [dmc.Alert(content, title=title, color=color, variant="light", className="tk-compare-verdict")]


def describe_differences(diff: Diff) -> list[str]:
    """Describe the fields in which the runs differ; without those that another one implies."""
    differences = diff.comparability.differences
    implied = {name for difference in differences for name in IMPLIED.get(difference.field, ())}
    texts, unknown = [], []
    for difference in differences:
        name = field_name(difference.field)
        if difference.field in implied:
            continue
        if difference.status is Status.UNKNOWN:
            unknown.append(name)
            continue
        ignored = " (ignored)" if difference.status is Status.DECLARED else ""
        values = (difference.base, difference.head)
        base, head = ("unknown" if value is None else clean(str(value)) for value in values)
        texts.append(f"Different {name}{ignored}: {base} in A, {head} in B.")
    return texts + ([f"Recorded on one side only: {', '.join(unknown)}."] if unknown else [])


def describe_doubts(diff: Diff) -> list[str]:
    """Describe what is doubtful in how the runs were measured and matched."""
    doubts = []
    compared = diff.compared
    if compared and compared.marked and compared.each < MIN_STEPS:
        unit = "rank" if compared.ranks > 1 else "side"
        steps = f"{compared.each} step{'s' * (compared.each != 1)} of each {unit}"
        doubts.append(f"Few steps: {steps} {'were' if compared.each > 1 else 'was'} compared.")
    if diff.metrics and min(diff.design.k) < 2:
        doubts.append("One run per side (n = 1): the spread between runs is unknown.")
    sides = (("A", diff.match.share_a), ("B", diff.match.share_b)) if diff.match else ()
    shares = {letter: share for letter, share in sides if share is not None}  # None: nothing ran
    if min(shares.values(), default=1.0) < MIN_MATCHED_SHARE:
        texts = [f"{human(share, 'share')} of {letter}'s time" for letter, share in shares.items()]
        doubts.append(f"Matched work: {' and '.join(texts)} has a counterpart.")
    return doubts + [sentence(text) for text in diff.warnings]


def _incomplete(context: Context, comparison: Comparison) -> list[str]:
    """Return the reason for each run whose capture `integrity` calls incomplete or misleading."""
    reasons = []
    for letter, runs in zip("AB", (comparison.base, comparison.head), strict=True):
        for run in runs[-1:]:
            with suppress(TracekitError):  # without its verdict there is nothing to say
                verdict = context.results.of(run, "integrity").tables["verdict"].iloc[0]
                if verdict["verdict"] != "good":
                    reasons.append(f"Capture of {letter}: {sentence(clean(str(verdict['reason'])))}")
    return reasons


def _details(context: Context, diff: Diff) -> Component:
    differences = diff.comparability.differences
    records = [
        {
            "field": difference.field,
            "effect": _EFFECTS[difference.status],
            "base": None if difference.base is None else str(difference.base),
            "head": None if difference.head is None else str(difference.head),
            "action": _ignore_link(context, difference.field),
        }
        for difference in differences
    ]
    table = html_table(_DIFFERENCES, records, caption="Differences between the runs")
    several = f"{len(differences)} field{'s' * (len(differences) != 1)}"
    return html.Details([html.Summary(f"Fields that differ ({several})"), table], className="tk-more")


def _ignore_link(context: Context, name: str) -> Component:
    ignored = read_ignored(context.view)
    if name in ignored:
        others = tuple(other for other in ignored if other != name)
        return dcc.Link("Undo", href=href_ignoring(context.view, others), title=f"Compare {name} again")
    by = next((other for other in ignored if name in IMPLIED.get(other, ())), None)
    if by:
        return html.Span(f"ignored with {by}")
    return dcc.Link(
        "Ignore difference", href=href_ignoring(context.view, (*ignored, name)), title=f"Ignore {name}"
    )


NAME = "compare"


def _layout(context: Context) -> list[Component]:
    heights = {"banner": 130, "summary": 330, "wall": 640, "work": 760, "analyses": 240}
    shown = heights if read_comparison(context) is not None else dict.fromkeys(heights, 1)
    blocks = [block(NAME, name, height=height) for name, height in shown.items()]
    several = read_several(context)
    further = several is not None and len(several.runs) > selection.PAIR
    return [
        html.Div(id="compare-stage", className="tk-stage", role="status", **aria(live="polite")),
        block(NAME, "sides", height=170),
        *(block(NAME, name, height=900 if further else 1) for name in ("runs", "each")),
        *blocks[:2],
        dcc.Store(id="aligned-source"),
        dcc.Store(id="aligned-shown"),
        html.Section(id="aligned", className="tka", **aria(label="Both runs on one time axis")),
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
    "runs": breakdowns.show_runs,
    "each": breakdowns.show_each,
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
    find_lack=lambda _, runs: "" if len(runs) > 1 else ONLY_ONE,
    connect=_connect,
)
