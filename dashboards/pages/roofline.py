"""Roofline page: compute and memory rates of ops relative to the device's peaks."""

from __future__ import annotations

from typing import Any

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, Row, first_rows, show_answer, show_nothing
from ..components.charts import bar_chart, chart
from ..figures.bars import bars, vertical_line
from ..figures.copies import roofs
from ..site import Context, Section

MAX_BARS, FULL = 15, 100


def _answer(results: PageResults) -> list[Component]:
    families = results.frame("families")
    parts = [part for row in results.rows("summary")[:4] for part in _device(row)]
    with_flops = families[families["utilization"].notna()]
    if len(with_flops):
        top = results.largest("families", "device_ns", rows=with_flops)
        parts += top.fill("Longest op with known FLOPs: {op!r}, {device_ns}, at {utilization} of its roof.")
    return [show_answer(*parts)] if parts else _host(results)


def _device(row: Row) -> list[Any]:
    name = " ({device_name!s})" if row["device_name"] else ""
    mfu = "" if row["mfu"] is None else "a model FLOPs utilization (MFU) of {mfu} and "
    return row.fill(
        f"Device {{device!s}} of rank {{rank!s}}{name} reached {mfu}{{tflops}} over the capture. "
    )


def _host(results: PageResults) -> list[Component]:
    if results.frame("host").empty:
        return []
    text = "On the host, {op!r} takes {host_ns} at {tflops}."
    return [show_answer(*results.largest("host", "host_ns").fill(text))]


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
    with_flops = families.sort_values("device_ns", ascending=False, kind="stable").head(MAX_BARS)
    if len(with_flops):
        caption = "Device time of the same ops. Low utilization matters most for long ops."
        names, times = with_flops["op"], with_flops["device_ns"]
        spent = bar_chart(context, "spent", names, times, title="device time", caption=caption)
        shown.append(html.Div([_utilization_chart(context, with_flops), *spent], className="tk-pair"))
    return [*shown, *_slow(results, ops)]


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


def _slow(results: PageResults, ops: pd.DataFrame) -> list[Component]:
    slow = ops[ops["bound"] == "neither"].sort_values("device_ns", ascending=False, kind="stable")
    if slow.empty:
        return []
    wanted = ("op", "precision", C.INPUT_SHAPES, "calls", "device_ns", "utilization", "tflops", "gb_per_s")
    columns = results.columns("ops", *wanted)
    return [first_rows(results.context, slow, columns, title="Ops far from both roofs")]


PAGE = answer_page(
    "roofline", section=Section.DEVICE, order=140, answer=_answer, figures=_figures, height=520
)
