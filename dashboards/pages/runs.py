"""Runs: what the store holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dash_mantine_components as dmc
from dash import dcc

from ..blocks import block
from ..page import Needs, Page, Section

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ..context import Context


def _layout(_: Context) -> Component:
    return block("runs", "list")


def _list(context: Context) -> Component:
    rows = [
        dcc.Link(run.path.name, href=context.view.elsewhere("overview", run=run.path.name))
        for run in reversed(context.store.readable())
    ]
    return dmc.Stack(rows, gap="xs")


PAGE = Page(
    name="runs",
    title="Runs",
    question="What was recorded, and when?",
    section=Section.START,
    order=0,
    layout=_layout,
    blocks={"list": _list},
    needs=Needs.NOTHING,
)
