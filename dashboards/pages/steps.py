"""Steps page: step times, their breakdown and variation."""

from __future__ import annotations

import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component

from tracekit import analysis
from tracekit.analysis import Result
from tracekit.render import human
from tracekit.schema import C

from ..blocks import block
from ..components import charts, links
from ..components.charts import Tile, bar_chart, chart
from ..components.finding import TIMELINE, show_definition, show_finding
from ..components.text import block_title, show_note
from ..figures import lines
from ..site import Context, Page, Section, View
from ..tables.table import show_table
from . import key_numbers
from .key_numbers import tile_blocks, tiles_with_baseline
from .time_breakdown import chart_each_step, chart_steps_together

NAME = "steps"
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


def _numbers(context: Context) -> list[Component]:
    shown = tiles_with_baseline(context, lambda result: _tiles(result(NAME), context.view))
    return shown or [show_note(note) for note in context.result(NAME).notes]


def _tiles(result: Result, view: View) -> list[Tile]:
    return [*key_numbers.step_times(result, view), *_spread(result, view)]


def _spread(result: Result, view: View) -> list[Tile]:
    """Tiles of minimum, maximum and p95, for the same measure as the step time."""
    summary = key_numbers.own_steps(result, view)
    if summary is None or summary["steps"].max() < 2:
        return []
    note = "profiled steps without warm-up outliers"
    spread = (charts.make_tiles(summary[name], label=label, unit="ns", note=note) for label, name in _SPREAD)
    return [tile for tiles in spread for tile in tiles]


def _times(context: Context) -> list[Component]:
    frame = links.rows_in_view(context.result(NAME), "steps", context.view)
    if frame is None or len(frame) < 2:
        return []
    if frame[C.STEP].nunique() == 1:
        names = [f"rank {rank}" for rank in frame[C.RANK]]
        caption = "The single profiled step on each rank."
        shown = bar_chart(context, "times", names, frame[lines.OWN], title="step time", caption=caption)
        return [block_title("Step time by rank"), *shown]
    caption = "Per rank, the part of the step's window after all earlier windows."
    if frame[C.RANK].nunique() == 1:
        caption = (
            "After earlier steps: the part of the step's window after all earlier windows, i.e. the "
            "incremental time per step. On the host: duration of the step marker. Device busy: union of the "
            "work it launched."
        )
    figure = chart(context, "times", lines.durations(frame), caption=caption)
    return [block_title("Step times"), figure, *_slowest(context, frame)]


def _slowest(context: Context, frame: pd.DataFrame) -> list[Component]:
    """Link to the longest steps."""
    top = frame.sort_values(lines.OWN, ascending=False, kind="stable").head(_MAX_LINKS)
    several = frame[C.RANK].nunique() > 1
    links: list[Component | str] = []
    for _, row in top.iterrows():
        start, length = int(row[C.START_NS]), int(row["window_ns"])
        rank = f" on rank {row[C.RANK]}" if several else ""
        href = context.view.elsewhere(TIMELINE, start_ns=start, end_ns=start + length)
        text = f"step {row[C.STEP]}{rank}, {human(int(row[lines.OWN]), 'ns')}"
        links += [dcc.Link(text, href=href), " · "]
    return [html.P(["Longest steps on the timeline: ", *links[:-1]], className="tk-dim")]


def _breakdown(context: Context) -> list[Component]:
    result = context.result("gpu_breakdown")
    shown = chart_each_step(context, result, height=320) or chart_steps_together(context, result)
    return [block_title("Step breakdown"), *shown] if shown else []


def _advice(context: Context) -> list[Component]:
    cards = [show_finding(context, finding, analysis=NAME) for finding in context.result(NAME).findings]
    return [block_title("Findings"), *cards] if cards else []


def _tables(context: Context) -> list[Component]:
    steps_analysis, result = analysis.get(NAME), context.result(NAME)
    shown: list[Component] = []
    for spec in steps_analysis.tables:
        frame = links.rows_in_view(result, spec.name, context.view)
        if frame is not None:
            shown.append(show_table(context, NAME, spec, frame, title=spec.title))
    return [*shown, *_ranks(context), *([show_note(note) for note in result.notes] if shown else [])]


def _ranks(context: Context) -> list[Component]:
    """Show the steps of all ranks side by side."""
    frame = links.rows_in_view(context.result(NAME), "steps", context.view)
    if frame is None or frame[C.RANK].nunique() < 2:
        return []
    ranks = links.rows_in_view(context.result("ranks"), "steps", context.view)
    if ranks is None:
        return []
    spec = links.table_spec(analysis.get("ranks"), "steps")
    return [show_table(context, "ranks", spec, ranks, title=spec.title)]


PAGE = Page(
    name=NAME,
    title="Steps",
    question="How long do steps take, what do they consist of, and how much do they vary?",
    section=Section.TIME,
    order=110,
    layout=_layout,
    blocks={
        "numbers": _numbers,
        "times": _times,
        "made_of": _breakdown,
        "advice": _advice,
        "tables": _tables,
    },
    covers=(NAME,),
)
