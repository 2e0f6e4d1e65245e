"""A finding as a card: how much it matters, what to do, how that is known, and where to see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dash import dcc, html

from tracekit.analysis import Severity
from tracekit.kernel_names import brief
from tracekit.render import human
from tracekit.render.cells import clean
from tracekit.savings import Budget, budget

from .evidence import ordered, spots
from .prose import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dash.development.base_component import Component

    from tracekit.analysis import Finding

    from ..context import Context
    from .evidence import Spot

    Known = Mapping[tuple[str, int], Spot]

NAMED = 5
"""Rows of evidence that are listed; the others are counted."""
WORDS = {Severity.HIGH: "High", Severity.WARN: "Medium", Severity.INFO: "For information"}


def finding(
    context: Context,
    one: Finding,
    *,
    share: float | None = None,
    analysis: str = "",
    known: Known | None = None,
) -> Component:
    """One piece of advice, with links to its evidence on the timeline.

    Args:
        context: What is looked at; evidence is of its run.
        one: The finding.
        share: Its saving over the mean step, where that is known.
        analysis: Name of the analysis that found it, for a link to its page.
        known: Its rows of evidence, if they were read already.
    """
    read = spots(context.run, [one]) if known is None else known
    where = ordered(one.evidence, read)
    return html.Article(
        [
            html.Div(
                [
                    html.Span(WORDS[one.severity], className="tk-severity"),
                    html.H3(clean(one.title), className="tk-finding-title"),
                    html.Div(_worth(context, one, share), className="tk-worth"),
                ],
                className="tk-finding-head",
            ),
            html.P(coded(sentence(one.advice)), className="tk-advice"),
            html.Details(
                [html.Summary(_sure(one)), *_proof(context, one, where, analysis)], className="tk-proof"
            ),
            *([dcc.Link("Show on the timeline", href=where[0].href(context.view))] if where else []),
        ],
        className=f"tk-finding tk-{one.severity}",
    )


def coded(text: str) -> list[Component | str]:
    """Prose whose parts in backticks are code.

    Example:
        >>> [type(part).__name__ for part in coded("set `a=1` now")]
        ['str', 'Code', 'str']
    """
    parts = clean(text).split("`")
    if len(parts) % 2 == 0:  # an odd backtick opens nothing
        return [clean(text)]
    return [html.Code(part) if at % 2 else part for at, part in enumerate(parts) if part]


def _worth(context: Context, one: Finding, share: float | None) -> list[Component]:
    if one.saving_ns_per_step is None:
        return [html.Span("no number can be given", className="tk-dim")]
    saving = html.Strong(f"saves {human(one.saving_ns_per_step, 'ns')}")
    unit = "step" if _budget(context).marked else "capture"
    part = f"a {unit}" if share is None else f"{human(share, 'share')} of the {unit}"
    return [saving, html.Span(part, className="tk-dim")]


def _budget(context: Context) -> Budget:
    found: Budget = context.results.get((context.run.path, Budget), lambda: budget(context.run))
    return found


def _sure(one: Finding) -> str:
    basis = f"{one.basis}, " if one.basis else ""
    return f"How this is known ({basis}confidence {100 * one.confidence:.0f}%)"


def _proof(context: Context, one: Finding, where: list[Spot], analysis: str) -> list[Component]:
    shown: list[Component] = [html.P(coded(sentence(one.how)))] if one.how else []
    if where:
        rows = [html.Li(_row(context, spot)) for spot in where[:NAMED]]
        more = len(where) - NAMED
        shown.append(html.Ul(rows, className="tk-evidence"))
        shown += [html.P(f"and {more:,} more rows", className="tk-dim")] if more > 0 else []
    rule: list[Component | str] = ["Rule ", html.Code(one.code)]
    if analysis:
        rule += [" of ", dcc.Link(analysis, href=context.view.elsewhere(analysis))]
    return [*shown, html.P(rule, className="tk-dim")]


def _row(context: Context, spot: Spot) -> list[Component | str]:
    return [
        dcc.Link(brief(clean(spot.name), 60), href=spot.href(context.view), title=clean(spot.name)[:2_000]),
        html.Span(f" {human(spot.dur_ns, 'ns')} at {human(spot.start_ns, 'ns')}", className="tk-dim"),
    ]
