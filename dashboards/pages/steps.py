"""Steps page: step times, their breakdown and variation; charts of device time per device and per step."""

from __future__ import annotations

import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component

from tracekit import analysis
from tracekit.schema import C

from ..analysis_pages.pages import result_blocks
from ..analysis_pages.results import PageResults, format_rows, keep_largest, show_advice
from ..blocks import block
from ..components import charts, links
from ..components.charts import Tile, chart
from ..components.finding import TIMELINE, show_definition
from ..components.text import block_title, human, sentence
from ..figures import lines, shares
from ..site import Context, Page, Section
from . import key_numbers
from .host_breakdown import chart_names
from .key_numbers import device_window, tile_blocks, tiles_with_baseline

NAME, ANALYSIS = "steps", "gpu_breakdown"
DEFINED = f"{shares.DEFINITION} They sum exactly to the window (TorchBench's breakdown)."
_MAX_LINKS = 5
_SPREAD = (("Shortest", "min_ns"), ("Longest", "max_ns"), ("95th percentile", "p95_ns"))


def _layout(_: Context) -> list[Component]:
    return [
        tile_blocks(NAME, "numbers"),
        block(NAME, "times", height=360),
        block(NAME, "made_of", height=360),
        block(NAME, "advice", height=60),
        block(NAME, "tables", height=420),
        show_definition(analysis.get(NAME)),
    ]


def _numbers(results: PageResults) -> list[Component]:
    return tiles_with_baseline(results, _tiles) or results.show_notes()


def _tiles(results: PageResults) -> list[Tile]:
    """Tiles of the step time, and of minimum, maximum and p95 of the same measure."""
    summary, tiles = key_numbers.own_steps(results), key_numbers.step_times(results)
    if len(summary) and summary["steps"].max() > 1:
        note = "profiled steps without warm-up outliers"
        for label, name in _SPREAD:
            tiles += charts.make_tiles(summary[name], label=label, unit="ns", note=note)
    return tiles


def _times(results: PageResults) -> list[Component]:
    frame = results.frame("steps")
    if len(frame) < 2:
        return []
    if frame[C.STEP].nunique() == 1:
        names, caption = format_rows(frame, "rank {rank}"), "The single profiled step on each rank."
        shown = results.bars("times", names, frame[lines.OWN], title="step time", caption=caption)
        return [block_title("Step time by rank"), *shown]
    caption = "Per rank, the part of the step's window after all earlier windows."
    if frame[C.RANK].nunique() == 1:
        caption = (
            "After earlier steps: the part of the step's window after all earlier windows, i.e. the "
            "incremental time per step. On the host: duration of the step marker."
        )
        if frame[lines.MEASURES["device busy"]].notna().any():
            caption += " Device busy: union of the work it launched."
    figure = chart(results.context, "times", lines.durations(frame), caption=caption)
    longest = keep_largest(frame, lines.OWN, _MAX_LINKS)
    template = "step {step}" + " on rank {rank}" * (frame[C.RANK].nunique() > 1)
    texts = [
        f"{text}, {human(int(length), 'ns')}"
        for text, length in zip(format_rows(longest, template), longest[lines.OWN], strict=True)
    ]
    return [
        block_title("Step times"),
        figure,
        link_windows(results.context, longest, "Longest steps on the timeline: ", texts),
    ]


def link_windows(context: Context, steps: pd.DataFrame, lead: str, texts: list[str]) -> Component:
    """Link to the windows of steps on the timeline.

    Args:
        context: The current context.
        steps: Rows of steps, with their starts and windows.
        lead: What precedes the links.
        texts: Text of each link.
    """
    shown: list[Component | str] = []
    for start, length, text in zip(steps[C.START_NS], steps["window_ns"], texts, strict=True):
        href = context.view.elsewhere(TIMELINE, start_ns=int(start), end_ns=int(start) + int(length))
        shown += [dcc.Link(text, href=href), " · "]
    return html.P([lead, *shown[:-1]], className="tk-dim")


def _breakdown(results: PageResults) -> list[Component]:
    shown = chart_each_step(results, height=320) or _chart_devices(results)
    return [block_title("Step breakdown"), *shown] if shown else []


def _tables(results: PageResults) -> list[Component]:
    """Show the tables, and the steps of all ranks side by side."""
    shown = results.grids({spec.name: "" for spec in analysis.get(NAME).tables})
    several = results.frame("steps")[C.RANK].nunique() > 1
    ranks = results.grids({"steps": ""}, "ranks") if several else []
    return [*shown, *ranks, *(results.show_notes() if shown else [])]


def show_breakdown(results: PageResults) -> list[Component]:
    """Show the charts; without a device, what the driving thread spent its time on."""
    heading = block_title("Time breakdown")
    shown = _chart_devices(results)
    return [heading, *shown, *chart_each_step(results)] if shown else [heading, *_host(results)]


def _chart_devices(results: PageResults) -> list[Component]:
    """Chart the window of the verdict, one bar per device; nothing without a device."""
    frame, window = device_window(results)
    if frame.empty:
        return []
    figure, cut = shares.by_device(frame, links.device_names(frame))
    caption = f"Share of {window}. {DEFINED}{cut}"
    return [chart(results.context, "devices", figure, caption=caption)]


def chart_each_step(results: PageResults, *, height: int = 250) -> list[Component]:
    """Chart each step of one device; nothing with fewer than two steps. `height` is in pixels."""
    frame = results.frame("per_step", ANALYSIS)
    places = frame[[C.RANK, C.DEVICE]]
    device_rows = frame[(places == places.head(1).squeeze()).all(axis="columns")]
    steps = device_rows[C.STEP].tolist()
    if len(steps) < 2:
        return []
    figure = shares.by_step(device_rows, steps)
    figure["layout"]["height"] = height
    name = links.device_names(frame)[0]
    more = "" if len(device_rows) == len(frame) else " Choose another device at the top of the page."
    caption = f"Each profiled step on {name}, from its start to the end of the device work it launched.{more}"
    return [chart(results.context, "steps", figure, caption=caption)]


NARROW_LABEL = 32
"""Characters of labels in the narrow column of the overview."""


def _host(results: PageResults) -> list[Component]:
    notes = " ".join(map(sentence, results.context.result(ANALYSIS).notes))
    nothing = notes or "The run has neither device activity nor host ops."
    return chart_names(results, label_width=NARROW_LABEL) or [html.P(nothing, className="tk-dim")]


PAGE = Page(
    name=NAME,
    title="Steps",
    question="How long do steps take, what do they consist of, and how much do they vary?",
    section=Section.TIME,
    order=110,
    layout=_layout,
    blocks=result_blocks(
        (NAME,), numbers=_numbers, times=_times, made_of=_breakdown, advice=show_advice, tables=_tables
    ),
    covers=(NAME,),
)
