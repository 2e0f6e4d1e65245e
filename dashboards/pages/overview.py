"""Overview page: integrity, key numbers, time breakdown and findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dash import html

from tracekit.render.cells import clean

from ..blocks import block
from ..page import Page, Section
from ..parts.aria import aria
from ._overview import advice, ran, verdict
from ._overview.advising import FIRST, run_fast_analyses
from ._shared import numbers
from ._shared.baseline import compared, tiles_with_baseline
from ._shared.breakdown import breakdown

if TYPE_CHECKING:
    from collections.abc import Callable

    from dash.development.base_component import Component

    from tracekit.analysis import Result

    from ..context import Context
    from ..parts.tiles import Tile
    from ..view import View

NAME = "overview"
_TILES: dict[str, tuple[tuple[str, Callable[[Result, View], list[Tile]]], ...]] = {
    "device_tiles": (("steps", numbers.step_times), ("gpu_breakdown", numbers.device_time)),
    "work_tiles": (("overlap", numbers.copies), ("memory", numbers.memory)),
}
"""Blocks of tiles: analyses with the functions that create the tiles."""


def _layout(_: Context) -> list[Component]:
    return [
        block(NAME, "ran", height=22),
        block(NAME, "integrity", height=40),
        block(NAME, "baseline", height=0),
        html.Div(
            [block(NAME, name, height=84) for name in _TILES],
            className="tk-tiles",
            role="group",
            **aria(label="Key numbers"),
        ),
        html.Div(
            [
                html.Div(block(NAME, "findings", height=360), className="tk-wide"),
                html.Div(block(NAME, "breakdown", height=360), className="tk-narrow"),
            ],
            className="tk-columns",
        ),
    ]


def _ran(context: Context) -> Component:
    return ran.shown(context.run.meta)


def _integrity(context: Context) -> Component:
    return verdict.shown(context, context.result("integrity"))


def _baseline(context: Context) -> list[Component]:
    found = compared(context)
    if found is None or not found.refused:
        return []
    differences = "; ".join(
        f"{one.field.replace('_', ' ')} ({one.base} vs. {one.head})" for one in found.refused
    )
    what = html.Strong("Changes not shown: the baseline is not comparable with this run. ")
    return [
        html.Section([what, f"Differences: {clean(differences)}."], className="tk-verdict tk-verdict-usable")
    ]


def _tiles(name: str) -> Callable[[Context], list[Component]]:
    def fill(context: Context) -> list[Component]:
        run_fast_analyses(context.results, context.run, before=_TILES[name][0][0])
        return tiles_with_baseline(context, lambda result: _read(name, result, context))

    return fill


def _read(name: str, result: Callable[[str], Result], context: Context) -> list[Tile]:
    return [tile for analysis, read in _TILES[name] for tile in read(result(analysis), context.view)]


PAGE = Page(
    name=NAME,
    title="Overview",
    question="Can the run be trusted, where did the time go, and what should be changed?",
    section=Section.START,
    order=10,
    layout=_layout,
    blocks={
        "ran": _ran,
        "integrity": _integrity,
        "baseline": _baseline,
        **{name: _tiles(name) for name in _TILES},
        "breakdown": breakdown,
        "findings": advice.findings,
    },
    exports=FIRST,
    advice=advice.ranked,
    prefetch=tuple(name for name, _ in _TILES["device_tiles"]),
    connect=advice.connect,
)
