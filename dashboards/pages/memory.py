"""Memory page: memory in use over time, life of each allocation, the peak's composition, growth per step."""

from __future__ import annotations

from typing import Any

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.schema import HOST_DEVICE, C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import HOST_TABLE, PageResults, keep_largest, show_answer, show_nothing
from ..components.charts import chart
from ..components.text import human
from ..figures.lines import lines
from ..figures.memory import EARLIER, draw_lives, over_time
from ..site import Section

MAX_LINES = 4
"""Maximum devices drawn at once."""
MAX_OPS = 12
LIVES = "lifetimes"
_GROUPS = [("category", "By category"), ("module", "By module"), ("op", "By op")]


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
        text = "Peak: {size} {measure!s}, measured by {source!s} without the profiler."
        measured = len(results.frame("peaks")) > 0
        return [show_answer(*results.largest("peaks", "size").fill(text))] if measured else []
    on_device = summary[summary[C.DEVICE] != HOST_DEVICE]
    candidates = on_device if len(on_device) else summary
    top = results.largest("summary", "peak_allocated", rows=candidates)
    place = int(top[C.RANK]), int(top[C.DEVICE])
    text = f"Peak allocation: {{peak_allocated}} {_where(results, *place)}"
    if top["peak_op"] and not str(top["peak_op"]).startswith("("):
        text += ", reached in {peak_op!r}"
    if top["fragmentation"] is not None:
        text += "; another {fragmentation} reserved but unused"
    return [show_answer(*top.fill(f"{text}. "), *_growth(results, *place))]


def _growth(results: PageResults, rank: int, device: int) -> list[Any]:
    leak = results.frame("leak")
    of_device = _rows_of(leak, rank, device)
    if of_device.empty or pd.isna(of_device["growth"].iloc[0]):
        return []
    first = results.largest("leak", rows=of_device)
    low, high = first["growth_low"], first["growth_high"]
    if low is not None and high is not None and low <= 0 <= high:
        return ["No measurable growth per step."]
    text = "The minimum in use grows per step by {growth} (95% CI {growth_low} to {growth_high})."
    return first.fill(text)


def _figures(results: PageResults) -> list[Component]:
    places = _places(results, "timeline")
    stacked, alone = _active(results, places), places
    if stacked and _rows_of(results.frame("timeline"), *places[0])["reserved"].isna().all():
        alone = places[1:]
    charts = [*stacked, *(_line(results, rank, device) for rank, device in alone[:MAX_LINES])]
    if len(places) > MAX_LINES:
        more = len(places) - MAX_LINES
        charts.append(show_nothing(f"{more} more devices: choose a rank or device at the top of the page."))
    pair: list[Component] = []
    for rank, device in _places(results, "by_op")[:1]:
        pair += [*([] if stacked else _peak(results, rank, device)), *_steps(results, rank, device)]
    columns = (C.RANK, "call", "count", "sum_ns", "later_count", "later_ns")
    driver = results.first_rows("driver_calls", columns, title="Driver memory calls", limit=12)
    return [*charts, *([html.Div(pair, className="tk-pair")] if pair else []), *driver]


def _rows_of(frame: pd.DataFrame, rank: int, device: int) -> pd.DataFrame:
    return frame[(frame[C.RANK] == rank) & (frame[C.DEVICE] == device)]


def _line(results: PageResults, rank: int, device: int) -> Component:
    timeline, summary = (_rows_of(results.frame(name), rank, device) for name in ("timeline", "summary"))
    drawn, count = len(timeline), int(summary["allocations"].sum() + summary["frees"].sum())
    events = f"{drawn:,} of {count:,} events" if count > drawn else f"{drawn:,} events"
    caption = f"Memory in use {_where(results, rank, device)} over time ({events}; peaks are exact)."
    return chart(results.context, f"time-{rank}-{device}", over_time(timeline), caption=caption)


def _active(results: PageResults, places: list[tuple[int, int]]) -> list[Component]:
    """Draw the life of the largest allocations on the first device, and what its peak consists of."""
    lives, over_time = (results.frame(name, LIVES) for name in ("lifetimes", "active"))
    device_lives = _rows_of(lives, *places[0]) if places else lives
    if device_lives.empty:
        return []
    rank, device = places[0]
    by = results.read_choice("group", _GROUPS)
    largest = device_lives[device_lives["in_active"]]
    figure = draw_lives(largest, _rows_of(over_time, rank, device), by, _layers(results, by))
    where = _where(results, rank, device)
    caption = (
        f"The {len(largest)} largest allocations {where} in the capture, each from allocation to free, "
        f"stacked and colored by {by}; hatched on top: all smaller ones. Their upper edge is what is in use."
    )
    columns = ("size", "life_ns", C.START_NS, "edge", "op", "category", C.MODULE)
    title = f"Largest allocations {where}"
    table = results.first_rows(
        "lifetimes", columns, rows=device_lives, name=LIVES, title=title, row="host_row", table=HOST_TABLE
    )
    return [
        results.show_switch("group", "Allocations by", _GROUPS),
        chart(results.context, "active", figure, caption=caption),
        *_composition(results, rank, device, by),
        *table,
    ]


def _layers(results: PageResults, by: str) -> dict[str, str]:
    """Return the columns of `active` that part the smaller allocations by category, by its name."""
    names = [column.name for column in results.spec("active", LIVES).columns]
    layer_names = names[names.index("others") + 1 :] if by == _GROUPS[0][0] else []
    return {EARLIER if name == layer_names[-1] else name.replace("_", " "): name for name in layer_names}


def _composition(results: PageResults, rank: int, device: int, by: str) -> list[Component]:
    """Chart what was in use at the peak; the bars sum to it."""
    peak = _rows_of(results.frame("peak", LIVES), rank, device)
    groups = peak[peak["by"] == by].set_index(C.NAME)["at_peak"]
    top, rest = groups.head(MAX_OPS), groups.iloc[MAX_OPS:]
    if len(rest):
        top = pd.concat([top, pd.Series({f"{len(rest):,} others": rest.sum()})])
    total = human(int(top.sum()), "bytes")
    caption = f"The {total} in use at the peak {_where(results, rank, device)}, by {by}. The bars sum to it."
    title = "memory in use at the peak"
    return results.bars("composition", top.index, top, "bytes", title=title, caption=caption)


def _peak(results: PageResults, rank: int, device: int) -> list[Component]:
    ops = _rows_of(results.frame("by_op"), rank, device)
    live = bool(ops["live_at_peak"].fillna(0).any())
    column = "live_at_peak" if live else "allocated"
    top = keep_largest(ops[ops[column].fillna(0) > 0], column, MAX_OPS)
    what = "memory in use at the peak" if live else "total memory allocated"
    names = [str(name) or "(no op recorded)" for name in top["op"]]
    caption = f"{what.capitalize()} {_where(results, rank, device)}, by allocating op."
    return results.bars("peak", names, top[column], "bytes", title=what, caption=caption)


def _steps(results: PageResults, rank: int, device: int) -> list[Component]:
    steps = _rows_of(results.frame("steps"), rank, device)
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


PAGE = answer_page(
    "memory",
    section=Section.HOST,
    order=220,
    answer=_answer,
    figures=_figures,
    analyses=("memory", LIVES),
    hidden=("timeline", "active"),
    height=520,
)
