"""Idle gaps page: causes of device idle time, and synchronization points of the host."""

from __future__ import annotations

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit import analysis
from tracekit.schema import C

from ..analysis_pages.pages import result_blocks
from ..analysis_pages.results import PageResults, show_advice
from ..blocks import block
from ..components import links
from ..components.charts import chart
from ..components.finding import show_definition
from ..components.text import block_title, show_note
from ..figures import gaps as figures
from ..site import Context, Page, Section
from ..tables.table import MAX_ROWS, show_table
from .key_numbers import IDLE_SHARE, analysis_tiles, device_share, tile_blocks, tiles_with_baseline

NAME, WAITS = "idle_gaps", "sync_points"
_OPS = 15
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


def _numbers(results: PageResults) -> list[Component]:
    shown = tiles_with_baseline(results, lambda of: [*device_share(IDLE_SHARE, of), *analysis_tiles(of)])
    return shown or PageResults(results.context, (NAME,)).show_notes()


def _in_steps(frame: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return idle time by cause of the profiled steps, else of the capture, and which of them."""
    if frame["steps_ns"].isna().any():
        return frame, "the capture"
    inside = frame.assign(**{figures.IDLE: frame["steps_ns"].astype("int64")})
    totals = inside.groupby([C.RANK, C.DEVICE])[figures.IDLE].transform("sum")
    inside["share"] = inside[figures.IDLE] / totals.where(totals > 0, 1)
    return inside[inside[figures.IDLE] > 0], "the profiled steps"


def _causes(results: PageResults) -> list[Component]:
    frame = results.frame("by_cause")
    if frame.empty:
        return []
    frame, window = _in_steps(frame)
    places = links.device_names(frame)
    what = "Idle time by cause" if len(set(places)) > 1 else "Idle time and share by cause"
    caption = f"{what}, of {window}. Blue: the work was already queued. Warm colors: the host launched late."
    figure = figures.by_cause(frame, places)
    return [block_title("By cause"), chart(results.context, "causes", figure, caption=caption)]


def _lengths(results: PageResults) -> list[Component]:
    frame = results.frame("gaps")
    if frame.empty:
        return []
    caption = f"Idle time of the capture by gap length: {len(frame):,} gaps of at least 1 µs."
    figure = chart(results.context, "lengths", figures.lengths(frame), caption=caption)
    return [block_title("By gap length"), figure]


def _ops(results: PageResults) -> list[Component]:
    frame = results.frame("by_op")
    if frame.empty:
        return []
    top = frame.head(_OPS)
    names = links.with_device_names(top, [str(op) or "(no op)" for op in top["op"].tolist()])
    which = f"{len(top)} largest of {len(frame):,} pairs" if len(top) < len(frame) else "All pairs"
    caption = f"{which} of cause and op in the capture, with their share of its idle time; colors as above."
    figure = chart(results.context, "ops", figures.by_op(top, names), caption=caption)
    return [block_title("By blocking op"), figure]


def _longest(results: PageResults) -> list[Component]:
    frame, context = results.frame("gaps"), results.context
    if frame.empty:
        return []
    everything = len(frame) == len(context.result(NAME).tables["gaps"]) and len(frame) > MAX_ROWS
    shown = frame if everything or len(frame) <= _LISTED else frame.head(_LISTED)
    words = "Longest gaps" if len(shown) == len(frame) else f"{_LISTED:,} longest of {len(frame):,} gaps"
    return [show_table(context, NAME, results.spec("gaps"), shown, title=words)]


def _waits(results: PageResults) -> list[Component]:
    shown = results.grids({"waits": "Host waits", "calls": "Longest waits"}, WAITS)
    of_gaps, of_waits = (results.context.result(name).notes for name in (NAME, WAITS))
    notes = [show_note(note) for note in of_waits if note not in of_gaps]
    return shown or ([block_title("Host waits"), *notes] if notes else [])


PAGE = Page(
    name=NAME,
    title="Idle gaps",
    question="Why were the devices idle, and which host op or call caused it?",
    section=Section.TIME,
    order=120,
    layout=_layout,
    blocks=result_blocks(
        (NAME, WAITS),
        numbers=_numbers,
        causes=_causes,
        lengths=_lengths,
        ops=_ops,
        advice=show_advice,
        longest=_longest,
        waits=_waits,
    ),
    covers=(NAME, WAITS),
    exports=(NAME, WAITS, "gpu_breakdown"),
)
