"""Overview: whether a run can be trusted, where its time went, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dash_mantine_components as dmc

from ..blocks import block
from ..page import Page, Section

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ..context import Context


def _layout(_: Context) -> list[Component]:
    return [block("overview", "breakdown", height=200)]


def _breakdown(context: Context) -> Component:
    return dmc.Text(str(context.result("gpu_breakdown").tables["whole"].to_dict("records")))


PAGE = Page(
    name="overview",
    title="Overview",
    question="Can the run be trusted, where did its time go, and what is worth changing?",
    section=Section.START,
    order=10,
    layout=_layout,
    blocks={"breakdown": _breakdown},
)
