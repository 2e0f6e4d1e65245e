"""Roofline page: compute and memory rates of ops relative to the device's peaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, Row, keep_largest, show_answer, show_nothing
from ..components.charts import chart
from ..figures.bars import bars, vertical_line
from ..figures.memory import roofs
from ..site import Context, Section

MAX_BARS, FULL = 15, 100
_MAX_DEVICES = 4
"""Maximum devices that have a sentence each."""


def _answer(results: PageResults) -> list[Component]:
    families = results.frame("families")
    rows = results.rows("summary")
    parts = [part for row in rows for part in _device(row)] if len(rows) <= _MAX_DEVICES else _devices(rows)
    with_flops = families[families["utilization"].notna()]
    if len(with_flops):
        top = results.largest("families", "device_ns", rows=with_flops)
        parts += top.fill("Longest op with known FLOPs: {op!r}, {device_ns}, at {utilization} of its roof.")
    if not parts and len(results.frame("host")):
        text = "On the host, {op!r} takes {host_ns} at {tflops}."
        parts = results.largest("host", "host_ns").fill(text)
    return [show_answer(*parts)] if parts else []


def _devices(rows: Sequence[Row]) -> list[Any]:
    """Say what the slowest and the fastest of many devices reached."""
    fast = sorted((row for row in rows if row["tflops"] is not None), key=lambda row: row["tflops"])
    if not fast:
        return []
    models = {str(row["device_name"]) for row in rows}
    model = f" ({models.pop()})" if len(models) == 1 else ""
    shown: list[Any] = [f"{len(rows)} devices{model} reached "]
    if all(row["mfu"] is not None for row in fast):
        least, most = (fast[place].number("mfu") for place in (0, -1))
        shown += ["a model FLOPs utilization (MFU) of ", least, " to ", most, " and "]
    least, most = (fast[place].number("tflops") for place in (0, -1))
    return [*shown, least, " to ", most, " over the capture. "]


def _device(row: Row) -> list[Any]:
    name = " ({device_name!s})" if row["device_name"] else ""
    mfu = "" if row["mfu"] is None else "a model FLOPs utilization (MFU) of {mfu} and "
    return row.fill(
        f"Device {{device!s}} of rank {{rank!s}}{name} reached {mfu}{{tflops}} over the capture. "
    )


def _figures(results: PageResults) -> list[Component]:
    context, ops = results.context, results.frame("ops")
    shown: list[Component] = []
    placed = ops[(ops["intensity"].fillna(0) > 0) & (ops["tflops"].fillna(0) > 0)]
    if len(placed):
        caption = "One point per op, shape and precision; area by time, symbol by bound."
        shown.append(chart(context, "roof", roofs(placed), caption=caption))
    elif len(ops):
        shown.append(show_nothing("No roofline: no op has known FLOPs."))
    families = results.frame("families").dropna(subset="utilization")
    with_flops = keep_largest(families, "device_ns", MAX_BARS)
    if len(with_flops):
        caption = "Device time of the same ops. Low utilization matters most for long ops."
        names, times = with_flops["op"], with_flops["device_ns"]
        spent = results.bars("spent", names, times, title="device time", caption=caption)
        shown.append(html.Div([_utilization_chart(context, with_flops), *spent], className="tk-pair"))
    slow = keep_largest(ops[ops["bound"] == "neither"], "device_ns")
    columns = ("op", "precision", C.INPUT_SHAPES, "calls", "device_ns", "utilization", "tflops", "gb_per_s")
    return [*shown, *results.first_rows("ops", columns, rows=slow, title="Ops far from both roofs")]


def _utilization_chart(context: Context, with_flops: pd.DataFrame) -> Component:
    used = with_flops["utilization"]
    figure = bars(with_flops["op"].tolist(), used.tolist(), "share", title="share of the roof reached")
    caption = "Share of the limiting roof that each op reaches; libraries typically reach 60% to 90%."
    over = int((used > 1).sum())
    if over:
        figure["layout"]["shapes"] = [vertical_line(FULL)]
        exceed = "op exceeds" if over == 1 else "ops exceed"
        reason = "usually because the data was in cache; see the note above."
        caption = f"{caption} {over} {exceed} the roof (line), {reason}"
    return chart(context, "used", figure, caption=caption)


PAGE = answer_page(
    "roofline", section=Section.DEVICE, order=140, answer=_answer, figures=_figures, height=520
)
