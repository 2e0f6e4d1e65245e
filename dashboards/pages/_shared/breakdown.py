"""Device time breakdown, total and per step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dash import html

from tracekit.schema import C

from ...figures import bars, shares
from ...parts import looked
from ...parts.charts import chart
from ...parts.prose import sentence

if TYPE_CHECKING:
    import pandas as pd
    from dash.development.base_component import Component

    from tracekit.analysis import Result

    from ...context import Context

DEFINED = (
    "Active: a kernel runs. Data movement: a copy or memset runs and no kernel does. Idle: nothing runs. "
    "They sum exactly to the window (TorchBench's breakdown)."
)
_OPS = 12
_NAMED = "named"


def breakdown(context: Context) -> list[Component]:
    """Show the charts; without a device, the ops with the highest host self time."""
    result = context.result("gpu_breakdown")
    title = html.H2("Time breakdown", className="tk-block-title")
    steps = in_steps(context, result)
    if steps:
        return [title, *steps, *per_step(context, result)]
    frame = looked.rows(result, "whole", context.view)
    if frame is None:
        return [title, *_host(context, result)]
    return [title, _devices(context, frame, "the whole capture (no steps are marked)")]


def in_steps(context: Context, result: Result) -> list[Component]:
    """Chart all profiled steps, one bar per device; nothing without steps."""
    frame = looked.rows(result, "profiled_steps", context.view)
    return [] if frame is None else [_devices(context, frame, "the profiled steps")]


def _devices(context: Context, frame: pd.DataFrame, of: str) -> Component:
    names = looked.places(frame)
    shown, some = shares.extremes(frame.assign(**{_NAMED: names}))
    figure = shares.by_device(shown, shown[_NAMED].tolist())
    return chart(context, "devices", figure, caption=f"Share of {of}. {DEFINED}{some}")


def per_step(context: Context, result: Result, *, height: int = 250) -> list[Component]:
    """Chart each step of one device; nothing with fewer than two steps."""
    frame = looked.rows(result, "per_step", context.view)
    if frame is None:
        return []
    one = of_one(frame)
    steps = one[C.STEP].tolist()
    if len(steps) < 2:
        return []
    figure = shares.by_step(one, steps)
    figure["layout"]["height"] = height
    name = looked.places(frame)[0]
    more = "" if len(one) == len(frame) else " Choose another device at the top of the page."
    caption = f"Each profiled step on {name}, from its start to the end of the device work it launched.{more}"
    return [chart(context, "steps", figure, caption=caption)]


def of_one(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the first rank and device."""
    first = frame.iloc[0]
    return frame[(frame[C.RANK] == first[C.RANK]) & (frame[C.DEVICE] == first[C.DEVICE])]


def _host(context: Context, result: Result) -> list[Component]:
    ops = looked.rows(result, "host", context.view)
    if ops is None:
        words = " ".join(map(sentence, result.notes)) or "The run has neither device activity nor host ops."
        return [html.P(words, className="tk-dim")]
    top = ops.head(_OPS)
    figure = bars.bars(top[C.NAME].tolist(), top["self_ns"].tolist(), "ns", title="self time")
    caption = (
        f"No device activity in this capture. The {len(top)} of {len(ops):,} ops with the highest "
        "host self time."
    )
    return [chart(context, "host", figure, caption=caption)]
