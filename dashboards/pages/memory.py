"""Memory: how much was in use over time, what made the peak, and whether it grows from step to step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from dash import html

from tracekit.schema import HOST_DEVICE, C

from ..answers.answer_page import answer_page
from ..answers.reading import answer, largest, named, nothing, short, some
from ..figures.bars import bars
from ..figures.lines import lines
from ..figures.memory import over_time
from ..page import Section
from ..parts.charts import chart

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ..answers.reading import Reading

LINES = 4
"""Devices drawn at once; the pickers choose among more."""
OPS = 12


def _where(reading: Reading, rank: int, device: int) -> str:
    """A place of memory in words, its rank where there are several."""
    place = "in the host's memory" if device == HOST_DEVICE else f"on device {device}"
    ranks = {of for table in ("summary", "timeline") for of in reading.frame(table)[C.RANK]}
    return f"{place} of rank {rank}" if len(ranks) > 1 else place


def _places(reading: Reading, table: str) -> list[tuple[int, int]]:
    """Rank and device of a table's rows, devices before the host."""
    frame = reading.frame(table)
    pairs = {(int(rank), int(device)) for rank, device in zip(frame[C.RANK], frame[C.DEVICE], strict=True)}
    return sorted(pairs, key=lambda pair: (pair[1] == HOST_DEVICE, *pair))


def _answer(reading: Reading) -> list[Component]:
    summary = reading.frame("summary")
    if summary.empty:
        return _unprofiled(reading)
    on_device = summary[summary[C.DEVICE] != HOST_DEVICE]
    held = on_device if len(on_device) else summary
    top = largest(held, "peak_allocated")
    said: list[Any] = [
        "At the peak ",
        some(top["peak_allocated"], "bytes"),
        f" were allocated {_where(reading, int(top[C.RANK]), int(top[C.DEVICE]))}",
    ]
    if top["peak_op"] and not str(top["peak_op"]).startswith("("):
        said += [", by ", named(top["peak_op"])]
    if pd.notna(top["fragmentation"]):
        said += ["; ", some(top["fragmentation"], "bytes"), " more were reserved and unused"]
    return [answer(*said, ". ", *_growth(reading, int(top[C.RANK]), int(top[C.DEVICE])))]


def _growth(reading: Reading, rank: int, device: int) -> list[Any]:
    leak = reading.frame("leak")
    mine = leak[(leak[C.RANK] == rank) & (leak[C.DEVICE] == device)]
    if mine.empty or pd.isna(mine["growth"].iloc[0]):
        return []
    first = largest(mine)
    low, high = first["growth_low"], first["growth_high"]
    if low is not None and high is not None and low <= 0 <= high:
        return ["From step to step it does not grow measurably."]
    return [
        "From step to step the least in use grows by ",
        some(first["growth"], "bytes"),
        " (95% interval ",
        some(low, "bytes"),
        " to ",
        some(high, "bytes"),
        ").",
    ]


def _unprofiled(reading: Reading) -> list[Component]:
    peaks = reading.frame("peaks")
    if peaks.empty:
        return []
    top = largest(peaks, "size")
    measure = (str(top["measure"]), ", measured by ", str(top[C.SOURCE]), " without a profiler")
    return [answer("At the peak ", some(top["size"], "bytes"), " of ", *measure, ".")]


def _figures(reading: Reading) -> list[Component]:
    places = _places(reading, "timeline")
    shown = [_line(reading, rank, device) for rank, device in places[:LINES]]
    if len(places) > LINES:
        more = len(places) - LINES
        shown.append(nothing(f"{more} more: choose a rank or a device at the top of the page."))
    pair: list[Component] = []
    for rank, device in _places(reading, "by_op")[:1]:
        pair += [*_peak(reading, rank, device), *_steps(reading, rank, device)]
    return [*shown, *([html.Div(pair, className="tk-pair")] if pair else []), *_driver(reading)]


def _of(frame: pd.DataFrame, rank: int, device: int) -> pd.DataFrame:
    return frame[(frame[C.RANK] == rank) & (frame[C.DEVICE] == device)]


def _line(reading: Reading, rank: int, device: int) -> Component:
    timeline = _of(reading.frame("timeline"), rank, device)
    caption = (
        f"Bytes {_where(reading, rank, device)} over time, {_events(reading, rank, device, len(timeline))}; "
        "extremes are exact."
    )
    return chart(reading.context, f"time-{rank}-{device}", over_time(timeline), caption=caption)


def _events(reading: Reading, rank: int, device: int, drawn: int) -> str:
    """How many events are drawn, and of how many."""
    summary = _of(reading.frame("summary"), rank, device)
    every = int(summary["allocations"].sum() + summary["frees"].sum())
    return f"{drawn:,} of {every:,} events" if every > drawn else f"from {drawn:,} events"


def _peak(reading: Reading, rank: int, device: int) -> list[Component]:
    ops = _of(reading.frame("by_op"), rank, device)
    live = bool(ops["live_at_peak"].fillna(0).any())
    column = "live_at_peak" if live else "allocated"
    top = ops[ops[column].fillna(0) > 0].sort_values(column, ascending=False, kind="stable").head(OPS)
    if top.empty:
        return []
    what = "in use at the peak" if live else "allocated in all"
    names = [str(name) or "(no op recorded)" for name in top["op"]]
    figure = bars(names, [int(value) for value in top[column]], "bytes", title=what)
    caption = f"Bytes {what} {_where(reading, rank, device)}, by the op that allocated them."
    return [chart(reading.context, "peak", figure, caption=caption)]


def _steps(reading: Reading, rank: int, device: int) -> list[Component]:
    steps = _of(reading.frame("steps"), rank, device)
    if len(steps) < 2:
        return []
    series = {name: [int(value) for value in steps[name]] for name in ("floor", "peak")}
    numbers = [int(step) for step in steps[C.STEP]]
    figure = lines(numbers, series, "bytes", title="allocated", x_title="step")
    caption = (
        f"Least and most allocated in each step {_where(reading, rank, device)}: a rising floor is a leak."
    )
    return [chart(reading.context, "steps", figure, caption=caption)]


def _driver(reading: Reading) -> list[Component]:
    calls = reading.frame("driver_calls")
    if calls.empty:
        return []
    columns = reading.columns("driver_calls", C.RANK, "call", "count", "sum_ns", "later_count", "later_ns")
    return [short(reading.context, calls, columns, title="Calls to the driver for memory", limit=12)]


PAGE = answer_page(
    "memory",
    section=Section.HOST,
    order=220,
    answer=_answer,
    figures=_figures,
    hidden=("timeline",),
    height=520,
)
