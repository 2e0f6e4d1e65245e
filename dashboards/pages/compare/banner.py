"""What makes a comparison doubtful, above it: differences, few steps, incomplete captures; Compare anyway."""

from __future__ import annotations

from contextlib import suppress

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from tracekit.analysis import Column
from tracekit.diff import Diff
from tracekit.diff.engine import IMPLIED
from tracekit.diff.model import Status
from tracekit.errors import TracekitError, clean
from tracekit.render import human

from ...components.text import sentence
from ...site import Context
from ...tables.html import html_table
from .selection import Comparison, compare_quickly, field_name, read_comparison, read_ignored

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
    content: list[Component] = [html.Ul([html.Li(text) for text in doubts], className="tk-doubts")]
    if refused:
        implied = {name for field in refused for name in IMPLIED.get(field, ())}
        blocking = (name for name in refused if name not in implied)
        href = _href_ignoring(context, (*read_ignored(context.view), *blocking))
        anyway = dcc.Link("Compare anyway", href=href, className="tk-button tk-primary")
        content.append(html.Div(anyway, className="tk-anyway"))
    if diff.comparability.differences:
        content.append(_details(context, diff))
    title, color = "Read this comparison with care", "yellow"
    if refused:
        title, color = "These runs differ in what decides a comparison", "orange"
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
        return dcc.Link("Undo", href=_href_ignoring(context, others), title=f"Compare {name} again")
    by = next((other for other in ignored if name in IMPLIED.get(other, ())), None)
    if by:
        return html.Span(f"ignored with {by}")
    return dcc.Link(
        "Ignore difference", href=_href_ignoring(context, (*ignored, name)), title=f"Ignore {name}"
    )


def _href_ignoring(context: Context, names: tuple[str, ...]) -> str:
    options = context.view.options | {"varying": ",".join(names)}
    return context.view.href(options={name: value for name, value in options.items() if value})
