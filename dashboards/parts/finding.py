"""Finding card: severity, advice, evidence and timeline link."""

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
"""Rows of evidence to list; the rest is counted."""
WORDS = {Severity.HIGH: "High", Severity.WARN: "Medium", Severity.INFO: "Info"}


def finding(
    context: Context,
    one: Finding,
    *,
    share: float | None = None,
    analysis: str = "",
    known: Known | None = None,
) -> Component:
    """Show a finding, with links to its evidence on the timeline.

    Args:
        context: The current context; evidence refers to its run.
        one: The finding.
        share: Its saving as a share of the mean step, if known.
        analysis: Name of its analysis, for a link to that page.
        known: Rows of evidence that have already been read.
    """
    read = spots(context.run, [one]) if known is None else known
    where = ordered(one.evidence, read)
    return html.Article(
        [
            html.Div(
                [
                    html.Span(WORDS[one.severity], className="tk-severity"),
                    html.H3(clean(one.title), className="tk-finding-title"),
                    html.Div(_savings(context, one, share), className="tk-savings"),
                ],
                className="tk-finding-head",
            ),
            html.P(coded(sentence(one.advice)), className="tk-advice"),
            html.Details(
                [html.Summary(_evidence_title(one)), *_evidence(context, one, where, analysis)],
                className="tk-finding-evidence",
            ),
            *([dcc.Link("Show on the timeline", href=where[0].href(context.view))] if where else []),
        ],
        className=f"tk-finding tk-{one.severity}",
    )


def coded(text: str) -> list[Component | str]:
    """Convert prose; text in backticks becomes code.

    Example:
        >>> [type(part).__name__ for part in coded("set `a=1` now")]
        ['str', 'Code', 'str']
    """
    parts = clean(text).split("`")
    if len(parts) % 2 == 0:  # unbalanced backtick
        return [clean(text)]
    return [html.Code(part) if at % 2 else part for at, part in enumerate(parts) if part]


def _savings(context: Context, one: Finding, share: float | None) -> list[Component]:
    if one.saving_ns_per_step is None:
        return [html.Span("savings not estimated", className="tk-dim")]
    saving = html.Strong(f"saves {human(one.saving_ns_per_step, 'ns')}")
    unit = "step" if _budget(context).marked else "capture"
    part = f"per {unit}" if share is None else f"{human(share, 'share')} of the {unit}"
    return [saving, html.Span(part, className="tk-dim")]


def _budget(context: Context) -> Budget:
    found: Budget = context.results.get((context.run.path, Budget), lambda: budget(context.run))
    return found


def _evidence_title(one: Finding) -> str:
    basis = f"{one.basis}, " if one.basis else ""
    return f"Evidence ({basis}confidence {100 * one.confidence:.0f}%)"


def _evidence(context: Context, one: Finding, where: list[Spot], analysis: str) -> list[Component]:
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
