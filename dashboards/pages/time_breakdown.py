"""Charts of device time: active, data movement and idle, per device and per step."""

from __future__ import annotations

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.analysis import Result
from tracekit.schema import C

from ..components import links
from ..components.charts import bar_chart, chart
from ..components.text import block_title, sentence
from ..figures import shares
from ..site import Context

DEFINED = (
    "Active: a kernel runs. Data movement: a copy or memset runs and no kernel does. Idle: nothing runs. "
    "They sum exactly to the window (TorchBench's breakdown)."
)
_OPS = 12
_NAMED = "named"


def show_breakdown(context: Context) -> list[Component]:
    """Show the charts; without a device, the ops with the highest host self time."""
    result = context.result("gpu_breakdown")
    heading = block_title("Time breakdown")
    steps = chart_steps_together(context, result)
    if steps:
        return [heading, *steps, *chart_each_step(context, result)]
    frame = links.rows_in_view(result, "whole", context.view)
    if frame is None:
        return [heading, *_host(context, result)]
    return [heading, _devices(context, frame, "the whole capture (no steps are marked)")]


def chart_steps_together(context: Context, result: Result) -> list[Component]:
    """Chart all profiled steps, one bar per device; nothing without steps."""
    frame = links.rows_in_view(result, "profiled_steps", context.view)
    return [] if frame is None else [_devices(context, frame, "the profiled steps")]


def _devices(context: Context, frame: pd.DataFrame, of: str) -> Component:
    names = links.device_names(frame)
    shown, cut = shares.extremes(frame.assign(**{_NAMED: names}))
    figure = shares.by_device(shown, shown[_NAMED].tolist())
    return chart(context, "devices", figure, caption=f"Share of {of}. {DEFINED}{cut}")


def chart_each_step(context: Context, result: Result, *, height: int = 250) -> list[Component]:
    """Chart each step of one device; nothing with fewer than two steps.

    Args:
        context: The current context.
        result: Result of `gpu_breakdown`.
        height: Height of the chart, in pixels.
    """
    frame = links.rows_in_view(result, "per_step", context.view)
    if frame is None:
        return []
    device_rows = first_device_rows(frame)
    steps = device_rows[C.STEP].tolist()
    if len(steps) < 2:
        return []
    figure = shares.by_step(device_rows, steps)
    figure["layout"]["height"] = height
    name = links.device_names(frame)[0]
    more = "" if len(device_rows) == len(frame) else " Choose another device at the top of the page."
    caption = f"Each profiled step on {name}, from its start to the end of the device work it launched.{more}"
    return [chart(context, "steps", figure, caption=caption)]


def first_device_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the first rank and device."""
    first = frame.iloc[0]
    return frame[(frame[C.RANK] == first[C.RANK]) & (frame[C.DEVICE] == first[C.DEVICE])]


def _host(context: Context, result: Result) -> list[Component]:
    ops = links.rows_in_view(result, "host", context.view)
    if ops is None:
        words = " ".join(map(sentence, result.notes)) or "The run has neither device activity nor host ops."
        return [html.P(words, className="tk-dim")]
    top = ops.head(_OPS)
    which = f"The {len(top)} of {len(ops):,} ops with the highest host self time."
    caption = f"No device activity in this capture. {which}"
    return bar_chart(context, "host", top[C.NAME], top["self_ns"], title="self time", caption=caption)
