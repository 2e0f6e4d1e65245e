"""What makes a comparison doubtful, above it: differences, few steps, incomplete captures; Compare anyway."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from tracekit.analysis import Column
from tracekit.diff import Diff
from tracekit.diff.engine import IMPLIED
from tracekit.diff.model import Difference, Status
from tracekit.errors import TracekitError, clean
from tracekit.render import human

from ...answers.results import rows
from ...parts.finding import sentence
from ...site import Context
from .selection import compared, requested, said, varying

if TYPE_CHECKING:
    from .selection import Comparison

FEW_STEPS = 5
"""Fewer compared steps are named as a doubt."""
LITTLE_MATCHED = 0.8
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


def banner(context: Context) -> list[Component]:
    """Show what makes the requested comparison doubtful; nothing without a doubt."""
    one = requested(context)
    if one is None:
        return []
    diff = compared(context, one)
    doubts = [*differing(diff), *measured(diff), *_incomplete(context, one)]
    if not doubts:
        return []
    refused = bool(diff.comparability.refused)
    content: list[Component] = [html.Ul([html.Li(text) for text in doubts], className="tk-doubts")]
    if refused:
        content.append(_anyway(context, diff))
    if diff.comparability.differences:
        content.append(_details(context, diff))
    title = "These runs differ in what decides a comparison" if refused else "Read this comparison with care"
    return [
        dmc.Alert(
            content,
            title=title,
            color="orange" if refused else "yellow",
            variant="light",
            className="tk-compare-verdict",
        )
    ]


def differing(diff: Diff) -> list[str]:
    """Describe the fields in which the runs differ; without those that another one implies."""
    found = diff.comparability.differences
    implied = {name for one in found for name in IMPLIED.get(one.field, ())}
    shown = [one for one in found if one.field not in implied]
    unknown = [said(one.field) for one in shown if one.status is Status.UNKNOWN]
    texts = [_different(one) for one in shown if one.status is not Status.UNKNOWN]
    return texts + ([f"Recorded on one side only: {', '.join(unknown)}."] if unknown else [])


def _different(one: Difference) -> str:
    ignored = " (ignored)" if one.status is Status.DECLARED else ""
    base, head = ("unknown" if value is None else clean(str(value)) for value in (one.base, one.head))
    return f"Different {said(one.field)}{ignored}: {base} in A, {head} in B."


def measured(diff: Diff) -> list[str]:
    """Describe what is doubtful in how the runs were measured and matched."""
    found = []
    one = diff.compared
    if one and one.marked and one.each < FEW_STEPS:
        steps = f"{one.each} step{'s' * (one.each != 1)} of each {'rank' if one.ranks > 1 else 'side'}"
        found.append(f"Few steps: {steps} {'were' if one.each > 1 else 'was'} compared.")
    if diff.metrics and min(diff.design.k) < 2:
        found.append("One run per side (n = 1): the spread between runs is unknown.")
    sides = (("A", diff.match.share_a), ("B", diff.match.share_b)) if diff.match else ()
    shares = {letter: share for letter, share in sides if share is not None}  # None: nothing ran
    if min(shares.values(), default=1.0) < LITTLE_MATCHED:
        texts = [f"{human(share, 'share')} of {letter}'s time" for letter, share in shares.items()]
        found.append(f"Matched work: {' and '.join(texts)} has a counterpart.")
    return found + [sentence(text) for text in diff.warnings]


def _incomplete(context: Context, one: Comparison) -> list[str]:
    """Return the reason for each run whose capture `integrity` calls incomplete or misleading."""
    found = []
    for letter, runs in zip("AB", (one.base, one.head), strict=True):
        for run in runs[-1:]:
            with suppress(TracekitError):  # without its verdict there is nothing to say
                verdict = context.results.of(run, "integrity").tables["verdict"].iloc[0]
                if verdict["verdict"] != "good":
                    found.append(f"Capture of {letter}: {sentence(clean(str(verdict['reason'])))}")
    return found


def _anyway(context: Context, diff: Diff) -> Component:
    href = _ignoring(context, (*varying(context.view), *needed(diff)))
    return html.Div(
        dcc.Link("Compare anyway", href=href, className="tk-button tk-primary"), className="tk-anyway"
    )


def needed(diff: Diff) -> tuple[str, ...]:
    """Return the fields to ignore for a comparison, without those that another one implies."""
    refused = [one.field for one in diff.comparability.refused]
    implied = {name for field in refused for name in IMPLIED.get(field, ())}
    return tuple(name for name in refused if name not in implied)


def _details(context: Context, diff: Diff) -> Component:
    found = diff.comparability.differences
    table = rows(
        _DIFFERENCES, [_difference(context, one) for one in found], caption="Differences between the runs"
    )
    several = f"{len(found)} field{'s' * (len(found) != 1)}"
    return html.Details([html.Summary(f"Fields that differ ({several})"), table], className="tk-more")


def _difference(context: Context, one: Difference) -> dict[str, Any]:
    return {
        "field": one.field,
        "effect": _EFFECTS[one.status],
        "base": None if one.base is None else str(one.base),
        "head": None if one.head is None else str(one.head),
        "action": _toggle(context, one.field),
    }


def _toggle(context: Context, name: str) -> Component:
    ignored = varying(context.view)
    if name in ignored:
        others = tuple(other for other in ignored if other != name)
        return dcc.Link("Undo", href=_ignoring(context, others), title=f"Compare {name} again")
    by = next((other for other in ignored if name in IMPLIED.get(other, ())), None)
    if by:
        return html.Span(f"ignored with {by}")
    return dcc.Link("Ignore difference", href=_ignoring(context, (*ignored, name)), title=f"Ignore {name}")


def _ignoring(context: Context, names: tuple[str, ...]) -> str:
    options = context.view.options | {"varying": ",".join(names)}
    return context.view.href(options={name: value for name, value in options.items() if value})
