"""Small kernels page: zero_grad, kernels shorter than their launch, and launch cost."""

from __future__ import annotations

from functools import partial

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit import analysis
from tracekit.schema import C

from ..blocks import block
from ..components import links
from ..components.charts import bar_chart, chart
from ..components.finding import show_definition, show_finding
from ..components.text import show_note
from ..figures import bars
from ..site import Context, Page, Section
from ..tables.table import show_table
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


def _numbers(name: str, context: Context) -> list[Component]:
    return tiles_with_baseline(context, lambda result: analysis_tiles(name, result(name), context.view))


def _body(name: str, context: Context) -> list[Component]:
    result, part = context.result(name), analysis.get(name)
    ranked = sorted(result.findings, key=lambda part: -(part.saving_ns_per_step or 0))
    shown = [show_finding(context, finding, analysis=name) for finding in ranked]
    drawn, draw = _CHARTS.get(name, ("", None))
    if draw and (rows := links.rows_in_view(result, drawn, context.view)) is not None:
        shown += draw(context, rows)
    for table_name in _TABLES[name]:
        frame = links.rows_in_view(result, table_name, context.view)
        if frame is not None:
            spec = links.table_spec(part, table_name)
            shown.append(show_table(context, name, spec, frame, title=spec.title))
    shown += [show_note(note) for note in result.notes]
    return shown or [html.P(_NOTHING[name], className="tk-dim")]


_NOTHING = {
    ZERO: "No range with zero_grad in its name was recorded.",
    SMALL: "No kernels were recorded.",
    LAUNCH: "No launches were recorded.",
}


def _ranges(context: Context, frame: pd.DataFrame) -> list[Component]:
    """Chart idle time between small kernels, by launching range."""
    ordered = frame.sort_values("gap_ns", ascending=False, kind="stable")
    names = links.with_device_names(ordered, ordered[C.NAME].tolist())
    title = "idle time between small kernels"
    caption = "Device idle time between small kernels, by annotation or op."
    top = ordered["gap_ns"].head(MAX_BARS)
    return bar_chart(context, "ranges", names[:MAX_BARS], top, title=title, caption=caption)


def _histogram(context: Context, frame: pd.DataFrame) -> list[Component]:
    """Chart durations of launch calls and launch delays, summed over devices."""
    both = frame.groupby(["from_ns", "to_ns"], as_index=False)[["calls", "delays"]].sum()
    lower, upper, calls, delays = (both[name].tolist() for name in both)
    counts = {"launch calls": calls, "delays until kernel start": delays}
    figure = bars.histogram(lower, upper, counts, bin_unit="ns", title="launches", x_title="time")
    caption = (
        "Durations of launch calls, and delays from the call to the kernel start. Delays of a few "
        "µs mean that the device was waiting for the host."
    )
    return [chart(context, "histogram", figure, caption=caption)]


_CHARTS = {SMALL: ("ranges", _ranges), LAUNCH: ("histogram", _histogram)}
"""Table to chart, and how."""


PAGE = Page(
    name=NAME,
    title="Small kernels and launches",
    question="Is the device slowed by small kernels or late launches?",
    section=Section.TIME,
    order=130,
    layout=_layout,
    blocks={
        **{f"{name}_numbers": partial(_numbers, name) for name in _TABLES},
        **{name: partial(_body, name) for name in _TABLES},
    },
    covers=(ZERO, SMALL, LAUNCH),
)
