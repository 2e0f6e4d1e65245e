"""Idle gaps page: causes of device idle time, and synchronization points of the host."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit import analysis
from tracekit.analysis import Result
from tracekit.schema import C

from ..blocks import block
from ..components import links
from ..components.charts import Tile, chart
from ..components.finding import show_definition, show_finding
from ..components.text import block_title, show_note
from ..figures import gaps as figures
from ..site import Context, Page, Section
from ..tables.table import MAX_ROWS, show_table
from .key_numbers import IDLE_SHARE, analysis_tiles, device_share, tile_blocks, tiles_with_baseline

NAME, WAITS = "idle_gaps", "sync_points"
_OPS = 15
_PLACE = [C.RANK, C.DEVICE]
_LISTED = 2_000


def _layout(_: Context) -> list[Component]:
    halves = [html.Div(block(NAME, name, height=320), className="tk-half") for name in ("causes", "lengths")]
    return [
        tile_blocks(NAME, "numbers"),
        html.Div(halves, className="tk-halves"),
        block(NAME, "ops", height=420),
        block(NAME, "advice", height=120),
        block(NAME, "longest", height=480),
        block(NAME, "waits", height=300),
        *(show_definition(analysis.get(name), named=True) for name in (NAME, WAITS)),
    ]


def _numbers(context: Context) -> list[Component]:
    def tiles(result: Callable[[str], Result]) -> list[Tile]:
        idle = device_share(IDLE_SHARE, result("gpu_breakdown"), context.view)
        return [*idle, *analysis_tiles(NAME, result(NAME), context.view)]

    shown = tiles_with_baseline(context, tiles)
    return shown or [show_note(note) for note in context.result(NAME).notes]


def _in_steps(frame: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return idle time by cause of the profiled steps, else of the capture, and which of them."""
    if frame["steps_ns"].isna().any():
        return frame, "the capture"
    inside = frame.assign(**{figures.IDLE: frame["steps_ns"].astype("int64")})
    totals = inside.groupby(_PLACE)[figures.IDLE].transform("sum")
    inside["share"] = inside[figures.IDLE] / totals.where(totals > 0, 1)
    return inside[inside[figures.IDLE] > 0], "the profiled steps"


def _causes(context: Context) -> list[Component]:
    frame = links.rows_in_view(context.result(NAME), "by_cause", context.view)
    if frame is None:
        return []
    frame, window = _in_steps(frame)
    places = links.device_names(frame)
    what = "Idle time by cause" if len(set(places)) > 1 else "Idle time and share by cause"
    caption = f"{what}, of {window}. Blue: the work was already queued. Warm colors: the host launched late."
    figure = figures.by_cause(frame, places)
    return [block_title("By cause"), chart(context, "causes", figure, caption=caption)]


def _lengths(context: Context) -> list[Component]:
    frame = links.rows_in_view(context.result(NAME), "gaps", context.view)
    if frame is None:
        return []
    caption = f"Idle time of the capture by gap length: {len(frame):,} gaps of at least 1 µs."
    return [block_title("By gap length"), chart(context, "lengths", figures.lengths(frame), caption=caption)]


def _ops(context: Context) -> list[Component]:
    frame = links.rows_in_view(context.result(NAME), "by_op", context.view)
    if frame is None:
        return []
    top = frame.head(_OPS)
    names = links.with_device_names(top, [str(op) or "(no op)" for op in top["op"].tolist()])
    which = f"{len(top)} largest of {len(frame):,} pairs" if len(top) < len(frame) else "All pairs"
    caption = f"{which} of cause and op in the capture, with their share of its idle time; colors as above."
    return [block_title("By blocking op"), chart(context, "ops", figures.by_op(top, names), caption=caption)]


def _advice(context: Context) -> list[Component]:
    pairs = [(name, finding) for name in (NAME, WAITS) for finding in context.result(name).findings]
    pairs.sort(key=lambda pair: -(pair[1].saving_ns_per_step or 0))
    cards = [show_finding(context, finding, analysis=name) for name, finding in pairs]
    return [block_title("Findings"), *cards] if cards else []


def _longest(context: Context) -> list[Component]:
    result = context.result(NAME)
    frame = links.rows_in_view(result, "gaps", context.view)
    if frame is None:
        return []
    everything = len(frame) == len(result.tables["gaps"]) and len(frame) > MAX_ROWS
    shown = frame if everything or len(frame) <= _LISTED else frame.head(_LISTED)
    words = "Longest gaps" if len(shown) == len(frame) else f"{_LISTED:,} longest of {len(frame):,} gaps"
    return [show_table(context, NAME, links.table_spec(analysis.get(NAME), "gaps"), shown, title=words)]


def _waits(context: Context) -> list[Component]:
    result, specs = context.result(WAITS), analysis.get(WAITS)
    shown: list[Component] = []
    for name, words in (("waits", "Host waits"), ("calls", "Longest waits")):
        frame = links.rows_in_view(result, name, context.view)
        if frame is not None:
            shown.append(show_table(context, WAITS, links.table_spec(specs, name), frame, title=words))
    if shown:
        return shown
    further = [show_note(note) for note in result.notes if note not in context.result(NAME).notes]
    return [block_title("Host waits"), *further] if further else []


PAGE = Page(
    name=NAME,
    title="Idle gaps",
    question="Why were the devices idle, and which host op or call caused it?",
    section=Section.TIME,
    order=120,
    layout=_layout,
    blocks={
        "numbers": _numbers,
        "causes": _causes,
        "lengths": _lengths,
        "ops": _ops,
        "advice": _advice,
        "longest": _longest,
        "waits": _waits,
    },
    covers=(NAME, WAITS),
    exports=(NAME, WAITS, "gpu_breakdown"),
)
