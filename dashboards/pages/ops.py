"""Operators: which cost time on the host, on the device, and memory; by op or by op and shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dash import html

from tracekit.render import human
from tracekit.schema import C

from ..answers.answer_page import answer_page
from ..answers.reading import answer, chosen_of, largest, named, nothing, some, switch
from ..figures.axis import whole
from ..figures.bars import bars
from ..figures.points import Dots, points
from ..page import Section
from ..parts.charts import chart

if TYPE_CHECKING:
    import pandas as pd
    from dash.development.base_component import Component

    from ..answers.reading import Reading

SHOWN = 15
COMPARED = 300
_BY = [("ops", "By op"), ("shapes", "By op and shapes")]
_MEASURES = [
    ("device_self_ns", "Device self"),
    ("device_total_ns", "Device total"),
    ("host_self_ns", "Host self"),
    ("host_total_ns", "Host total"),
    ("allocated_bytes", "Device memory"),
]
_HOST_FIRST = [_MEASURES[2], _MEASURES[3], *_MEASURES[:2], _MEASURES[4]]


def _answer(reading: Reading) -> list[Component]:
    ops = reading.frame("ops")
    if ops.empty:
        return []
    host = largest(ops)
    said = [
        named(host[C.NAME]),
        " takes the most host time of its own: ",
        some(host["host_self_ns"], "ns"),
        " in ",
        some(host["calls"], "count"),
        " calls, ",
        some(host["host_self_share"], "share"),
        " of the host time of all ops.",
    ]
    if ops["device_self_ns"].notna().any():
        device = largest(ops, "device_self_ns")
        said = [
            named(device[C.NAME]),
            " launches the most device time: ",
            some(device["device_self_ns"], "ns"),
            ", ",
            some(device["device_share"], "share"),
            " of what ops launched. ",
            *said,
        ]
    return [answer(*said)]


def _figures(reading: Reading) -> list[Component]:
    context = reading.context
    by = chosen_of(context, "by", _BY)
    frame = reading.frame(by)
    on_device = bool(frame["device_self_ns"].notna().any())
    ordered = _MEASURES if on_device else _HOST_FIRST
    measures = [(name, title) for name, title in ordered if (frame[name].fillna(0) != 0).any()]
    if not measures:
        return [switch(context, "by", "Operators by", _BY), nothing("No op of this run has a time.")]
    measure = chosen_of(context, "measure", measures)
    switches = html.Div(
        [
            switch(context, "by", "Operators by", _BY),
            switch(context, "measure", "Measure", measures),
        ],
        className="tk-switches",
    )
    kept = frame[frame[measure].notna() & (frame[measure] != 0)]
    return [switches, html.Div([_top(reading, kept, measure), *_both(reading, frame)], className="tk-pair")]


def _top(reading: Reading, frame: pd.DataFrame, measure: str) -> Component:
    first = frame.sort_values(measure, ascending=False, kind="stable").head(SHOWN)
    unit = "bytes" if measure.endswith("bytes") else "ns"
    title = dict(_MEASURES)[measure]
    figure = bars(_labels(first), [int(value) for value in first[measure]], unit, title=title)
    which = f"the {len(first)} largest of {len(frame):,}" if len(first) < len(frame) else "all that have any"
    caption = f"{title}: {which}, over all threads and ranks."
    return chart(reading.context, "top", figure, caption=caption)


def _labels(frame: pd.DataFrame) -> list[str]:
    if C.INPUT_SHAPES not in frame.columns:
        return [str(name) for name in frame[C.NAME]]
    pairs = zip(frame[C.NAME], frame[C.INPUT_SHAPES], strict=True)
    return [f"{name} {shapes}".rstrip() for name, shapes in pairs]


def _both(reading: Reading, frame: pd.DataFrame) -> list[Component]:
    """Host against device time of each op: below the diagonal the device has less to do than the host."""
    held = frame[(frame["device_total_ns"].fillna(0) > 0) & (frame["host_total_ns"] > 0)]
    held = held.sort_values("device_total_ns", ascending=False, kind="stable").head(COMPARED)
    if held.empty:
        return []
    host, device = held["host_total_ns"].tolist(), held["device_total_ns"].tolist()
    hover = [
        f"{whole(name)}<br>host total {human(one, 'ns')}<br>device total {human(int(other), 'ns')}"
        for name, one, other in zip(_labels(held), host, device, strict=True)
    ]
    dots = Dots("ops", [one / 1e6 for one in host], [int(one) / 1e6 for one in device], hover)
    figure = points([dots], x_title="host total (ms)", y_title="device total (ms)")
    caption = "Host and device time of ops. Ops far to the lower right keep the host busier than the device."
    return [chart(reading.context, "both", figure, caption=caption)]


PAGE = answer_page("ops", section=Section.HOST, order=200, answer=_answer, figures=_figures, height=480)
