"""Roofline: how fast ops compute and move data, under what the device could do at best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from dash import html

from tracekit.schema import C

from ..answers.answer_page import answer_page
from ..answers.reading import answer, largest, named, nothing, short, some
from ..figures.bars import bars, upright
from ..figures.roofs import roofs
from ..page import Section
from ..parts.charts import chart

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ..answers.reading import Reading

SHOWN, FULL = 15, 100


def _answer(reading: Reading) -> list[Component]:
    summary, families = reading.frame("summary"), reading.frame("families")
    said = [part for row in summary.to_dict("records")[:4] for part in _device(row)]
    held = families[families["utilization"].notna()]
    if len(held):
        top = largest(held, "device_ns")
        said += [
            "Of the ops whose work is known, ",
            named(top["op"]),
            " takes the longest: ",
            some(top["device_ns"], "ns"),
            ", at ",
            some(top["utilization"], "share"),
            " of what its roof allows.",
        ]
    return [answer(*said)] if said else _host(reading)


def _device(row: dict[Any, Any]) -> list[Any]:
    name = f" ({row['device_name']})" if row["device_name"] else ""
    said: list[Any] = [f"Device {row[C.DEVICE]} of rank {row[C.RANK]}{name} reached "]
    if pd.notna(row["mfu"]):
        said += ["a model FLOPs utilization of ", some(row["mfu"], "share"), " and "]
    return [*said, some(row["tflops"], "TFLOP/s"), " over the capture. "]


def _host(reading: Reading) -> list[Component]:
    host = reading.frame("host")
    if host.empty:
        return []
    top = largest(host, "host_ns")
    speed = (" at ", some(top["tflops"], "TFLOP/s"), ".")
    return [answer("On the host, ", named(top["op"]), " takes ", some(top["host_ns"], "ns"), *speed)]


def _figures(reading: Reading) -> list[Component]:
    context, ops = reading.context, reading.frame("ops")
    shown: list[Component] = []
    placed = ops[(ops["intensity"].fillna(0) > 0) & (ops["tflops"].fillna(0) > 0)]
    if len(placed):
        caption = "Each point is an op of one shape and precision; area by time, symbol by what bounds it."
        shown.append(chart(context, "roof", roofs(placed), caption=caption))
    elif len(ops):
        shown.append(nothing("No op of this run has known FLOPs, so there is no point under a roof to draw."))
    families = reading.frame("families")
    held = families[families["utilization"].notna()]
    held = held.sort_values("device_ns", ascending=False, kind="stable").head(SHOWN)
    if len(held):
        shown.append(html.Div([_used(reading, held), _spent(reading, held)], className="tk-pair"))
    return [*shown, *_slow(reading, ops)]


def _used(reading: Reading, held: pd.DataFrame) -> Component:
    figure = bars(
        held["op"].tolist(), held["utilization"].tolist(), "share", title="share of the roof reached"
    )
    if held["utilization"].max() > 1:
        figure["layout"]["shapes"] = [upright(FULL)]
    return chart(reading.context, "used", figure, caption=_near(held))


def _near(held: pd.DataFrame) -> str:
    said = "How near each op comes to its roof, whichever binds it; libraries reach 60 to 90%."
    over = int((held["utilization"] > 1).sum())
    if not over:
        return said
    return (
        f"{said} The line is the roof: {over} of them {'is' if over == 1 else 'are'} faster than it allows, "
        "mostly because a cache and not the memory held the data; the note above says more."
    )


def _spent(reading: Reading, held: pd.DataFrame) -> Component:
    times = [int(value) for value in held["device_ns"]]
    figure = bars(held["op"].tolist(), times, "ns", title="device time")
    caption = "Device time of the same ops in the same order: a low utilization matters where it is long."
    return chart(reading.context, "spent", figure, caption=caption)


def _slow(reading: Reading, ops: pd.DataFrame) -> list[Component]:
    slow = ops[ops["bound"] == "neither"].sort_values("device_ns", ascending=False, kind="stable")
    if slow.empty:
        return []
    wanted = ("op", "precision", C.INPUT_SHAPES, "calls", "device_ns", "utilization", "tflops", "gb_per_s")
    columns = reading.columns("ops", *wanted)
    return [short(reading.context, slow, columns, title="Ops far from both roofs")]


PAGE = answer_page(
    "roofline", section=Section.DEVICE, order=140, answer=_answer, figures=_figures, height=520
)
