"""Compile page: compiled regions, cost of guards and graph breaks, and origin of kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from tracekit.schema import C

from ..answers.pages import answer_page
from ..answers.results import answer, named
from ..figures.bars import bars, composed
from ..page import Section
from ..parts.charts import chart

if TYPE_CHECKING:
    import pandas as pd
    from dash.development.base_component import Component

    from ..answers.results import PageResults, Row

SHOWN = 12
_COUNTS = {
    "regions": ("compiled region call", "compiled region calls"),
    "breaks": ("graph break (upper bound)", "graph breaks (upper bound)"),
    "recompiled": ("recompiled region", "recompiled regions"),
    "graph_calls": ("Inductor graph call", "Inductor graph calls"),
    "replays": ("CUDA graph launch", "CUDA graph launches"),
}


_COUNTED = {
    "backend_graphs": ("graph", "graphs"),
    "guards": ("guard", "guards"),
    "graph_breaks": ("graph break", "graph breaks"),
    "recompilations": ("recompilation", "recompilations"),
}
"""Torch's counters; they replace the upper bounds from regions."""
_BOUNDS = ("breaks", "recompiled")


def _answer(results: PageResults) -> list[Component]:
    summary, compilation = results.frame("summary"), results.frame("compilation")
    counted = [_counted(results.largest("compilation"))] if len(compilation) else []
    if summary.empty:
        return counted or _eager(results)
    row = results.largest("summary")
    parts_: list[Any] = [f"Rank {row[C.RANK]}: "]
    for column, words in _COUNTS.items():
        if row[column] is not None and not (counted and column in _BOUNDS):
            parts_ += _counted_words(row, column, words)
    guards = (row.number("lookup_ns"), " in guards, with the device idle for ")
    return [*counted, answer(*parts_, *guards, row.number("lookup_idle_ns"), ".")]


def _counted(row: Row) -> Component:
    """Summarize compilation from torch's counters."""
    parts_: list[Any] = [named(row["backend"]), " compiled in ", row.number("compile_ns"), ": "]
    for column, words in _COUNTED.items():
        parts_ += _counted_words(row, column, words)
    return answer(*parts_, row.number("late"), " compiled after the warm-up.")


def _counted_words(row: Row, column: str, words: tuple[str, str]) -> list[Any]:
    return [row.number(column), f" {words[row[column] != 1]}, "]


def _eager(results: PageResults) -> list[Component]:
    kernels = results.frame("kernels")
    if kernels.empty:
        return []
    top = results.largest("kernels", "sum_ns")
    origin = named(top["origin"])
    return [answer("Nothing was compiled: ", top.number("share"), " of kernel time is ", origin, ".")]


def _figures(results: PageResults) -> list[Component]:
    context, kernels = results.context, results.frame("kernels")
    shown: list[Component] = []
    if len(kernels):
        ranks = sorted(int(rank) for rank in kernels[C.RANK].unique())
        parts = {
            str(origin): [_sum(rows, rank) for rank in ranks]
            for origin, rows in kernels.groupby("origin", sort=False, observed=True)
        }
        figure = composed([f"rank {rank}" for rank in ranks], parts, "ns", title="Σ of durations")
        caption = "Kernel time by origin."
        shown.append(chart(context, "origins", figure, caption=caption))
    pair = [part for table in ("regions", "graphs") for part in _calls(results, table)]
    return [*shown, *([html.Div(pair, className="tk-pair")] if pair else [])]


def _sum(rows: pd.DataFrame, rank: int) -> int:
    of_rank = rows[rows[C.RANK] == rank]
    return int(of_rank["sum_ns"].iloc[0]) if len(of_rank) else 0


def _calls(results: PageResults, table: str) -> list[Component]:
    frame = results.frame(table).sort_values("host_ns", ascending=False, kind="stable").head(SHOWN)
    if frame.empty:
        return []
    what = {"regions": "Compiled regions", "graphs": "Inductor graphs"}[table]
    names = [str(name) for name in frame[C.NAME]]
    figure = bars(names, [int(value) for value in frame["host_ns"]], "ns", title="host time")
    return [chart(results.context, table, figure, caption=f"{what} by host time.")]


PAGE = answer_page("compile", section=Section.MORE, order=900, answer=_answer, figures=_figures, height=260)
