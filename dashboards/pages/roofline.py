"""Roofline page: compute and memory rates of ops relative to the device's peaks."""

from __future__ import annotations

from typing import Any

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.schema import C

from ..answers.pages import answer_page
from ..answers.results import PageResults, Row, answer, first_rows, named, nothing
from ..figures.bars import bars, upright
from ..figures.copies import roofs
from ..parts.charts import chart
from ..site import Section

SHOWN, FULL = 15, 100


def _answer(results: PageResults) -> list[Component]:
    families = results.frame("families")
    parts = [part for row in results.rows("summary")[:4] for part in _device(row)]
    known = families[families["utilization"].notna()]
    if len(known):
        top = results.largest("families", "device_ns", rows=known)
        parts += [
            "Longest op with known FLOPs: ",
            named(top["op"]),
            ", ",
            top.number("device_ns"),
            ", at ",
            top.number("utilization"),
            " of its roof.",
        ]
    return [answer(*parts)] if parts else _host(results)


def _device(row: Row) -> list[Any]:
    name = f" ({row['device_name']})" if row["device_name"] else ""
    parts: list[Any] = [f"Device {row[C.DEVICE]} of rank {row[C.RANK]}{name} reached "]
    if row["mfu"] is not None:
        parts += ["a model FLOPs utilization (MFU) of ", row.number("mfu"), " and "]
    return [*parts, row.number("tflops"), " over the capture. "]


def _host(results: PageResults) -> list[Component]:
    host = results.frame("host")
    if host.empty:
        return []
    top = results.largest("host", "host_ns")
    speed = (" at ", top.number("tflops"), ".")
    return [answer("On the host, ", named(top["op"]), " takes ", top.number("host_ns"), *speed)]


def _figures(results: PageResults) -> list[Component]:
    context, ops = results.context, results.frame("ops")
    shown: list[Component] = []
    placed = ops[(ops["intensity"].fillna(0) > 0) & (ops["tflops"].fillna(0) > 0)]
    if len(placed):
        caption = "One point per op, shape and precision; area by time, symbol by bound."
        shown.append(chart(context, "roof", roofs(placed), caption=caption))
    elif len(ops):
        shown.append(nothing("No roofline: no op has known FLOPs."))
    families = results.frame("families")
    known = families[families["utilization"].notna()]
    known = known.sort_values("device_ns", ascending=False, kind="stable").head(SHOWN)
    if len(known):
        shown.append(
            html.Div([_utilization_chart(results, known), _time_chart(results, known)], className="tk-pair")
        )
    return [*shown, *_slow(results, ops)]


def _utilization_chart(results: PageResults, known: pd.DataFrame) -> Component:
    figure = bars(
        known["op"].tolist(), known["utilization"].tolist(), "share", title="share of the roof reached"
    )
    if known["utilization"].max() > 1:
        figure["layout"]["shapes"] = [upright(FULL)]
    return chart(results.context, "used", figure, caption=_caption(known))


def _caption(known: pd.DataFrame) -> str:
    parts = "Share of the limiting roof that each op reaches; libraries typically reach 60% to 90%."
    over = int((known["utilization"] > 1).sum())
    if not over:
        return parts
    return (
        f"{parts} {over} {'op exceeds' if over == 1 else 'ops exceed'} the roof (line), usually because the "
        "data was in cache; see the note above."
    )


def _time_chart(results: PageResults, known: pd.DataFrame) -> Component:
    times = [int(value) for value in known["device_ns"]]
    figure = bars(known["op"].tolist(), times, "ns", title="device time")
    caption = "Device time of the same ops. Low utilization matters most for long ops."
    return chart(results.context, "spent", figure, caption=caption)


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
