"""Compiled code: what was compiled, what guards and graph breaks cost, and where kernels come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from dash import html

from tracekit.schema import C

from ..answers.answer_page import answer_page
from ..answers.reading import answer, largest, named, some
from ..figures.bars import bars
from ..figures.composed import composed
from ..page import Section
from ..parts.charts import chart

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ..answers.reading import Reading

SHOWN = 12
_COUNTS = {
    "regions": ("call of compiled regions", "calls of compiled regions"),
    "breaks": ("graph break at most", "graph breaks at most"),
    "recompiled": ("region compiled again", "regions compiled again"),
    "graph_calls": ("call of Inductor's graphs", "calls of Inductor's graphs"),
    "replays": ("launch of CUDA graphs", "launches of CUDA graphs"),
}


_COUNTED = {
    "backend_graphs": ("graph", "graphs"),
    "guards": ("guard", "guards"),
    "graph_breaks": ("graph break", "graph breaks"),
    "recompilations": ("recompilation", "recompilations"),
}
"""What torch counted, in place of what regions can only bound."""
_BOUNDS = ("breaks", "recompiled")


def _answer(reading: Reading) -> list[Component]:
    summary, compilation = reading.frame("summary"), reading.frame("compilation")
    counted = [_counted(largest(compilation))] if len(compilation) else []
    if summary.empty:
        return counted or _eager(reading)
    row = largest(summary)
    said: list[Any] = [f"Rank {row[C.RANK]}: "]
    for column, words in _COUNTS.items():
        if pd.notna(row[column]) and not (counted and column in _BOUNDS):
            said += _some(row[column], words)
    guards = (some(row["lookup_ns"], "ns"), " in guards, of which devices stood idle ")
    return [*counted, answer(*said, *guards, some(row["lookup_idle_ns"], "ns"), ".")]


def _counted(row: dict[str, Any]) -> Component:
    """What compiling took and gave, as torch counted it."""
    said: list[Any] = [named(row["backend"]), " compiled in ", some(row["compile_ns"], "ns"), ": "]
    for column, words in _COUNTED.items():
        said += _some(row[column], words)
    return answer(*said, some(row["late"], "count"), " compiled after the warm-up.")


def _some(count: int, words: tuple[str, str]) -> list[Any]:
    return [some(count, "count"), f" {words[0] if count == 1 else words[1]}, "]


def _eager(reading: Reading) -> list[Component]:
    kernels = reading.frame("kernels")
    if kernels.empty:
        return []
    top = largest(kernels, "sum_ns")
    origin = named(top["origin"])
    return [
        answer(
            "Nothing was compiled: ", some(top["share"], "share"), " of the kernels' time is ", origin, "."
        )
    ]


def _figures(reading: Reading) -> list[Component]:
    context, kernels = reading.context, reading.frame("kernels")
    shown: list[Component] = []
    if len(kernels):
        ranks = sorted(int(rank) for rank in kernels[C.RANK].unique())
        parts = {
            str(origin): [_sum(rows, rank) for rank in ranks]
            for origin, rows in kernels.groupby("origin", sort=False, observed=True)
        }
        figure = composed([f"rank {rank}" for rank in ranks], parts, "ns", title="Σ of durations")
        caption = "Time of kernels by where they come from."
        shown.append(chart(context, "origins", figure, caption=caption))
    pair = [part for table in ("regions", "graphs") for part in _calls(reading, table)]
    return [*shown, *([html.Div(pair, className="tk-pair")] if pair else [])]


def _sum(rows: pd.DataFrame, rank: int) -> int:
    mine = rows[rows[C.RANK] == rank]
    return int(mine["sum_ns"].iloc[0]) if len(mine) else 0


def _calls(reading: Reading, table: str) -> list[Component]:
    frame = reading.frame(table).sort_values("host_ns", ascending=False, kind="stable").head(SHOWN)
    if frame.empty:
        return []
    what = {"regions": "Compiled regions", "graphs": "Graphs of Inductor"}[table]
    names = [str(name) for name in frame[C.NAME]]
    figure = bars(names, [int(value) for value in frame["host_ns"]], "ns", title="host time")
    return [chart(reading.context, table, figure, caption=f"{what} by their time on the host.")]


PAGE = answer_page("compile", section=Section.MORE, order=900, answer=_answer, figures=_figures, height=260)
