"""Compare page: how two runs differ, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dash_mantine_components as dmc
from dash import html

from ..blocks import block
from ..grids.table import table
from ..page import Page, Section
from ..parts.aria import aria
from ..parts.notes import finding, note
from ._compare import export, ledgers, progress
from ._compare.asked import compared, requested, with_analyses
from ._compare.sides import sides
from ._compare.summary import summary

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from tracekit.analysis import Analysis, Result

    from ..context import Context
    from ..site import Site

NAME = "compare"


def _layout(context: Context) -> list[Component]:
    found: list[Component] = [
        html.Div(id="compare-stage", className="tk-stage", role="status", **aria(live="polite")),
        block(NAME, "sides", height=150),
    ]
    shown = requested(context) is not None
    heights = {"summary": 420, "wall": 640, "work": 760, "analyses": 240} if shown else {}
    return found + [block(NAME, name, height=heights.get(name, 1)) for name in _BLOCKS if name != "sides"]


def _summary(context: Context) -> list[Component]:
    one = requested(context)
    return summary(context, compared(context, one.without_analyses)) if one else []


def _work(context: Context) -> list[Component]:
    one = requested(context)
    return ledgers.work(context, compared(context, one.without_analyses)) if one else []


def _wall(context: Context) -> list[Component]:
    one = requested(context)
    return ledgers.wall(context, with_analyses(context, one)) if one else []


def _analyses(context: Context) -> list[Component]:
    one = requested(context)
    if one is None:
        return []
    diff = with_analyses(context, one)
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
    export.connect(site)
    progress.connect(site)


_BLOCKS = {"sides": sides, "summary": _summary, "wall": _wall, "work": _work, "analyses": _analyses}

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
