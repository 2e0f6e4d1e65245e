"""Memory page: memory in use over time, ops at the peak, and growth per step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from dash import html

from tracekit.schema import HOST_DEVICE, C

from ..answers.pages import answer_page
from ..answers.results import answer, first_rows, named, nothing
from ..figures.bars import bars
from ..figures.copies import over_time
from ..figures.lines import lines
from ..parts.charts import chart
from ..site import Section

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ..answers.results import PageResults

LINES = 4
"""Maximum devices drawn at once."""
OPS = 12


def _where(results: PageResults, rank: int, device: int) -> str:
    """Format a memory location, with its rank if there are several."""
    place = "in host memory" if device == HOST_DEVICE else f"on device {device}"
    ranks = {of for table in ("summary", "timeline") for of in results.frame(table)[C.RANK]}
    return f"{place} of rank {rank}" if len(ranks) > 1 else place


def _places(results: PageResults, table: str) -> list[tuple[int, int]]:
    """Return the ranks and devices in a table, devices before the host."""
    frame = results.frame(table)
    pairs = {(int(rank), int(device)) for rank, device in zip(frame[C.RANK], frame[C.DEVICE], strict=True)}
    return sorted(pairs, key=lambda pair: (pair[1] == HOST_DEVICE, *pair))


def _answer(results: PageResults) -> list[Component]:
    summary = results.frame("summary")
    if summary.empty:
        return _unprofiled(results)
    on_device = summary[summary[C.DEVICE] != HOST_DEVICE]
    candidates = on_device if len(on_device) else summary
    top = results.largest("summary", "peak_allocated", rows=candidates)
    parts: list[Any] = [
        "Peak allocation: ",
        top.number("peak_allocated"),
        f" {_where(results, int(top[C.RANK]), int(top[C.DEVICE]))}",
    ]
    if top["peak_op"] and not str(top["peak_op"]).startswith("("):
        parts += [", reached in ", named(top["peak_op"])]
    if top["fragmentation"] is not None:
        parts += ["; another ", top.number("fragmentation"), " reserved but unused"]
    return [answer(*parts, ". ", *_growth(results, int(top[C.RANK]), int(top[C.DEVICE])))]


def _growth(results: PageResults, rank: int, device: int) -> list[Any]:
    leak = results.frame("leak")
    of_device = leak[(leak[C.RANK] == rank) & (leak[C.DEVICE] == device)]
    if of_device.empty or pd.isna(of_device["growth"].iloc[0]):
        return []
    first = results.largest("leak", rows=of_device)
    low, high = first["growth_low"], first["growth_high"]
    if low is not None and high is not None and low <= 0 <= high:
        return ["No measurable growth per step."]
    return [
        "The minimum in use grows per step by ",
        first.number("growth"),
        " (95% CI ",
        first.number("growth_low"),
        " to ",
        first.number("growth_high"),
        ").",
    ]


def _unprofiled(results: PageResults) -> list[Component]:
    peaks = results.frame("peaks")
    if peaks.empty:
        return []
    top = results.largest("peaks", "size")
    measure = (str(top["measure"]), ", measured by ", str(top[C.SOURCE]), " without the profiler")
    return [answer("Peak: ", top.number("size"), " ", *measure, ".")]


def _figures(results: PageResults) -> list[Component]:
    places = _places(results, "timeline")
    shown = [_line(results, rank, device) for rank, device in places[:LINES]]
    if len(places) > LINES:
        more = len(places) - LINES
        shown.append(nothing(f"{more} more devices: choose a rank or device at the top of the page."))
    pair: list[Component] = []
    for rank, device in _places(results, "by_op")[:1]:
        pair += [*_peak(results, rank, device), *_steps(results, rank, device)]
    return [*shown, *([html.Div(pair, className="tk-pair")] if pair else []), *_driver(results)]


def _of(frame: pd.DataFrame, rank: int, device: int) -> pd.DataFrame:
    return frame[(frame[C.RANK] == rank) & (frame[C.DEVICE] == device)]


def _line(results: PageResults, rank: int, device: int) -> Component:
    timeline = _of(results.frame("timeline"), rank, device)
    caption = (
        f"Memory in use {_where(results, rank, device)} over time "
        f"({_events(results, rank, device, len(timeline))}; peaks are exact)."
    )
    return chart(results.context, f"time-{rank}-{device}", over_time(timeline), caption=caption)


def _events(results: PageResults, rank: int, device: int, drawn: int) -> str:
    """Describe how many events are drawn."""
    summary = _of(results.frame("summary"), rank, device)
    every = int(summary["allocations"].sum() + summary["frees"].sum())
    return f"{drawn:,} of {every:,} events" if every > drawn else f"{drawn:,} events"


def _peak(results: PageResults, rank: int, device: int) -> list[Component]:
    ops = _of(results.frame("by_op"), rank, device)
    live = bool(ops["live_at_peak"].fillna(0).any())
    column = "live_at_peak" if live else "allocated"
    top = ops[ops[column].fillna(0) > 0].sort_values(column, ascending=False, kind="stable").head(OPS)
    if top.empty:
        return []
    what = "memory in use at the peak" if live else "total memory allocated"
    names = [str(name) or "(no op recorded)" for name in top["op"]]
    figure = bars(names, [int(value) for value in top[column]], "bytes", title=what)
    caption = f"{what.capitalize()} {_where(results, rank, device)}, by allocating op."
    return [chart(results.context, "peak", figure, caption=caption)]


def _steps(results: PageResults, rank: int, device: int) -> list[Component]:
    steps = _of(results.frame("steps"), rank, device)
    if len(steps) < 2:
        return []
    series = {name: [int(value) for value in steps[name]] for name in ("floor", "peak")}
    numbers = [int(step) for step in steps[C.STEP]]
    figure = lines(numbers, series, "bytes", title="allocated", x_title="step")
    caption = (
        f"Minimum (floor) and maximum (peak) allocated per step {_where(results, rank, device)}; "
        "a rising floor suggests a leak."
    )
    return [chart(results.context, "steps", figure, caption=caption)]


def _driver(results: PageResults) -> list[Component]:
    calls = results.frame("driver_calls")
    if calls.empty:
        return []
    columns = results.columns("driver_calls", C.RANK, "call", "count", "sum_ns", "later_count", "later_ns")
    return [first_rows(results.context, calls, columns, title="Driver memory calls", limit=12)]


PAGE = answer_page(
    "memory",
    section=Section.HOST,
    order=220,
    answer=_answer,
    figures=_figures,
    hidden=("timeline",),
    height=520,
)
