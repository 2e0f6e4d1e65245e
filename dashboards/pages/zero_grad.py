"""Small kernels page: zero_grad, kernels shorter than their launch, and launch cost."""

from __future__ import annotations

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit import analysis
from tracekit.schema import C

from ..analysis_pages.pages import result_blocks
from ..analysis_pages.results import PageResults, keep_largest
from ..blocks import block
from ..components import links
from ..components.charts import chart
from ..components.finding import show_definition
from ..figures import bars
from ..site import Context, Page, Section
from .key_numbers import analysis_tiles, tile_blocks, tiles_with_baseline

NAME, ZERO, SMALL, LAUNCH = "zero_grad", "zero_grad_gaps", "small_kernels", "launch_latency"
MAX_BARS = 12
_TABLES = {
    ZERO: ("summary", "ranges"),
    SMALL: ("kinds", "ranges", "ops"),
    LAUNCH: ("summary", "queue", "slowest"),
}


def _layout(_: Context) -> list[Component]:
    placed: list[Component] = []
    for name in _TABLES:
        part = analysis.get(name)
        placed += [
            html.H2(part.title, className="tk-part-title"),
            html.P(part.question, className="tk-dim"),
            tile_blocks(NAME, f"{name}_numbers", label=f"Key numbers: {part.title}"),
            block(NAME, name, height=300),
            show_definition(part, named=True),
        ]
    return placed


def _numbers(results: PageResults) -> list[Component]:
    return tiles_with_baseline(results, analysis_tiles)


def _body(results: PageResults) -> list[Component]:
    (name,) = results.names
    shown = results.show_findings(linked=True)
    drawn, draw = _CHARTS.get(name, ("", None))
    if draw and len(rows := results.frame(drawn)):
        shown += draw(results, rows)
    shown += [*results.grids(dict.fromkeys(_TABLES[name], "")), *results.show_notes()]
    return shown or [html.P(_NOTHING[name], className="tk-dim")]


_NOTHING = {
    ZERO: "No range with zero_grad in its name was recorded.",
    SMALL: "No kernels were recorded.",
    LAUNCH: "No launches were recorded.",
}


def _ranges(results: PageResults, frame: pd.DataFrame) -> list[Component]:
    """Chart idle time between small kernels, by launching range."""
    ordered = keep_largest(frame, "gap_ns")
    names = links.with_device_names(ordered, ordered[C.NAME].tolist())[:MAX_BARS]
    title = "idle time between small kernels"
    caption = "Device idle time between small kernels, by annotation or op."
    lengths = ordered["gap_ns"].head(MAX_BARS)
    return results.bars("ranges", names, lengths, title=title, caption=caption, label_width=64)


def _histogram(results: PageResults, frame: pd.DataFrame) -> list[Component]:
    """Chart durations of launch calls and launch delays, summed over devices."""
    both = frame.groupby(["from_ns", "to_ns"], as_index=False)[["calls", "delays"]].sum()
    lower, upper, calls, delays = (both[name].tolist() for name in both)
    counts = {"launch calls": calls, "delays until kernel start": delays}
    figure = bars.histogram(lower, upper, counts, bin_unit="ns", title="launches", x_title="time")
    caption = (
        "Durations of launch calls, and delays from the call to the kernel start. Delays of a few "
        "µs mean that the device was waiting for the host."
    )
    return [chart(results.context, "histogram", figure, caption=caption)]


_CHARTS = {SMALL: ("ranges", _ranges), LAUNCH: ("histogram", _histogram)}  # table to chart, and how


PAGE = Page(
    name=NAME,
    title="Small kernels and launches",
    question="Is the device slowed by small kernels or late launches?",
    section=Section.TIME,
    order=130,
    layout=_layout,
    blocks={
        place: compute
        for name in _TABLES
        for place, compute in result_blocks((name,), **{f"{name}_numbers": _numbers, name: _body}).items()
    },
    covers=(ZERO, SMALL, LAUNCH),
)
