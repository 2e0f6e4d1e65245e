"""Operators page: host time, device time and memory by op, by op and shapes, or by family as a treemap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component

from tracekit.analysis import NODE, PARENT
from tracekit.render import human
from tracekit.schema import C

from ..answers.pages import answer_page
from ..answers.results import HOST_TABLE, PageResults, answer, chosen_of, first_rows, named, nothing, switch
from ..figures.axis import whole
from ..figures.bars import bars
from ..figures.lines import Dots, points
from ..figures.treemap import treemap
from ..parts.charts import chart, connect_clicks
from ..site import LONGEST, Section

SHOWN = 15
COMPARED = 300
_BY = [("ops", "By op"), ("shapes", "By op and shapes"), ("tree", "By family")]
_AREAS = [("device_self_ns", "Device self"), ("host_self_ns", "Host self")]
_MEASURES = [
    ("device_self_ns", "Device self"),
    ("device_total_ns", "Device total"),
    ("host_self_ns", "Host self"),
    ("host_total_ns", "Host total"),
    ("allocated_bytes", "Device memory"),
]
_HOST_FIRST = [_MEASURES[2], _MEASURES[3], *_MEASURES[:2], _MEASURES[4]]


def _answer(results: PageResults) -> list[Component]:
    ops = results.frame("ops")
    if ops.empty:
        return []
    host = results.largest("ops")
    parts = [
        named(host[C.NAME]),
        " has the highest host self time: ",
        host.number("host_self_ns"),
        " in ",
        host.number("calls"),
        " calls, ",
        host.number("host_self_share"),
        " of the host self time of all ops.",
    ]
    if ops["device_self_ns"].notna().any():
        device = results.largest("ops", "device_self_ns")
        parts = [
            named(device[C.NAME]),
            " launched the most device time: ",
            device.number("device_self_ns"),
            ", ",
            device.number("device_share"),
            " of the device time launched by ops. ",
            *parts,
        ]
    return [answer(*parts)]


def _figures(results: PageResults) -> list[Component]:
    context = results.context
    by = chosen_of(context, "by", _BY)
    frame = results.frame(by)
    if by == "tree":
        return _families(results, frame)
    on_device = bool(frame["device_self_ns"].notna().any())
    ordered = _MEASURES if on_device else _HOST_FIRST
    measures = [(name, title) for name, title in ordered if (frame[name].fillna(0) != 0).any()]
    if not measures:
        return [switch(context, "by", "Operators by", _BY), nothing("No op has a recorded time.")]
    measure = chosen_of(context, "measure", measures)
    switches = html.Div(
        [
            switch(context, "by", "Operators by", _BY),
            switch(context, "measure", "Measure", measures),
        ],
        className="tk-switches",
    )
    nonzero = frame[frame[measure].notna() & (frame[measure] != 0)]
    return [
        switches,
        html.Div([_top(results, nonzero, measure), *_both(results, frame)], className="tk-pair"),
    ]


def _families(results: PageResults, tree: pd.DataFrame) -> list[Component]:
    """Draw the treemap, and list the kernels of the op that was clicked."""
    context = results.context
    measures = [(name, title) for name, title in _AREAS if (tree[name].fillna(0) != 0).any()]
    switches = [switch(context, "by", "Operators by", _BY)]
    if not measures:
        return [*switches, nothing("No op has a recorded time.")]
    measure = chosen_of(context, "measure", measures)
    switches.append(switch(context, "measure", "Measure", measures))
    options = context.view.options
    figure = treemap(tree, measure, lambda op: context.view.href(options=options | {"op": op[:LONGEST]}))
    title = dict(measures)[measure]
    caption = (
        f"{title} time of the capture by family and op, over threads and ranks. Click an op for its kernels "
        "and longest call, a family to enlarge it. The table By family lists all of it."
    )
    return [
        html.Div(switches, className="tk-switches"),
        chart(context, "families", figure, caption=caption),
        *_selected(results, tree, options.get("op", "")),
    ]


def _selected(results: PageResults, tree: pd.DataFrame, op: str) -> list[Component]:
    """Show the op of the address with its kernels, each linked to its longest interval on the timeline."""
    own = tree[(tree["level"] == "op") & (tree[C.NAME].str.slice(0, LONGEST) == op)]
    if own.empty:
        return []
    row = results.rows("tree", rows=own.head(1))[0]
    parts: list[Any] = [
        named(op),
        ": host self ",
        row.number("host_self_ns"),
        " in ",
        row.number("calls"),
        " calls",
    ]
    if row["device_self_ns"] is not None:
        parts += [
            "; device self ",
            row.number("device_self_ns"),
            " in ",
            row.number("launches"),
            " intervals",
        ]
    if row["host_row"] is not None:
        href = results.context.view.elsewhere("timeline", row=f"{HOST_TABLE}:{row['host_row']}")
        parts += [". ", dcc.Link("Show its longest call on the timeline", href=href)]
    kernels = tree[tree[PARENT] == row[NODE]]
    columns = results.columns("tree", C.NAME, "device_self_ns", "device_share", "launches")
    table = first_rows(
        results.context,
        kernels,
        columns,
        title="Kernels of the op, longest interval linked",
        row="longest_row",
    )
    return [html.P([*parts, "."], id="op-selected"), *([] if kernels.empty else [table])]


def _top(results: PageResults, frame: pd.DataFrame, measure: str) -> Component:
    first = frame.sort_values(measure, ascending=False, kind="stable").head(SHOWN)
    unit = "bytes" if measure.endswith("bytes") else "ns"
    title = dict(_MEASURES)[measure]
    figure = bars(_labels(first), [int(value) for value in first[measure]], unit, title=title)
    which = f"{len(first)} largest of {len(frame):,} ops" if len(first) < len(frame) else "all ops"
    caption = f"{title}: {which}, summed over threads and ranks."
    return chart(results.context, "top", figure, caption=caption)


def _labels(frame: pd.DataFrame) -> list[str]:
    if C.INPUT_SHAPES not in frame.columns:
        return [str(name) for name in frame[C.NAME]]
    pairs = zip(frame[C.NAME], frame[C.INPUT_SHAPES], strict=True)
    return [f"{name} {shapes}".rstrip() for name, shapes in pairs]


def _both(results: PageResults, frame: pd.DataFrame) -> list[Component]:
    """Draw device over host time of each op; below the diagonal, the host is the bottleneck."""
    both = frame[(frame["device_total_ns"].fillna(0) > 0) & (frame["host_total_ns"] > 0)]
    both = both.sort_values("device_total_ns", ascending=False, kind="stable").head(COMPARED)
    if both.empty:
        return []
    host, device = both["host_total_ns"].tolist(), both["device_total_ns"].tolist()
    hover = [
        f"{whole(name)}<br>host total {human(one, 'ns')}<br>device total {human(int(other), 'ns')}"
        for name, one, other in zip(_labels(both), host, device, strict=True)
    ]
    dots = Dots("ops", [one / 1e6 for one in host], [int(one) / 1e6 for one in device], hover)
    figure = points([dots], x_title="host total (ms)", y_title="device total (ms)")
    caption = "Host and device time of ops. Ops at the lower right take more host than device time."
    return [chart(results.context, "both", figure, caption=caption)]


PAGE = replace(
    answer_page("ops", section=Section.HOST, order=200, answer=_answer, figures=_figures, height=480),
    connect=lambda site: connect_clicks(site, "ops", "families"),
)
