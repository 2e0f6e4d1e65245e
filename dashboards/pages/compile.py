"""Compile page: source lines of kernels, who made the kernels, compiled regions and cost of guards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from dash import html
from dash.development.base_component import Component

from tracekit.schema import SEPARATOR, C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import (
    PageResults,
    Row,
    format_rows,
    keep_largest,
    show_answer,
    values_by_rank,
)
from ..components.charts import chart
from ..figures.bars import stack_bars
from ..site import Section

MAX_BARS = 12
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


def _answer(results: PageResults) -> list[Component]:
    counted: list[Component] = []
    if len(results.frame("compilation")):  # counted by torch itself
        row = results.largest("compilation")
        text = "{backend!r} compiled in {compile_ns}: " + _list_counts(row, _COUNTED)
        counted = [show_answer(*row.fill(f"{text}{{late}} compiled after the warm-up."))]
    if results.frame("summary").empty:
        if counted or results.frame("kernels").empty:
            return counted
        text = "Nothing was compiled: {share} of kernel time is {origin!r}."
        return [show_answer(*results.largest("kernels", "sum_ns").fill(text))]
    row = results.largest("summary")
    counts = {
        column: words
        for column, words in _COUNTS.items()
        if row[column] is not None and not (counted and column in {"breaks", "recompiled"})
    }
    guards = "{lookup_ns} in guards, with the device idle for {lookup_idle_ns}."
    regions = show_answer(*row.fill(f"Rank {{rank!s}}: {_list_counts(row, counts)}{guards}"))
    return [*counted, regions, *_dearest_line(results)]


def _dearest_line(results: PageResults) -> list[Component]:
    """Name the lines whose kernel takes the most time, if lines are known."""
    frame = results.frame("lines")
    row = results.largest("lines", "sum_ns") if len(frame) else None
    if row is None or not row[C.SOURCE_LINES]:
        return []
    lines = _shorten_lines(str(row[C.SOURCE_LINES]))
    return [show_answer("Most time of compiled kernels: ", lines, *row.fill(" as {name}, {share}."))]


def _list_counts(row: Row, counts: Mapping[str, tuple[str, str]]) -> str:
    return "".join(f"{{{column}}} {words[row[column] != 1]}, " for column, words in counts.items())


def _figures(results: PageResults) -> list[Component]:
    ranks, parts = values_by_rank(results.frame("kernels"), "origin", "sum_ns")
    caption = "Kernel time by origin."
    pair: list[Component] = []
    for table, what in (("regions", "Compiled regions"), ("graphs", "Inductor graphs")):
        frame, by_host = keep_largest(results.frame(table), "host_ns", MAX_BARS), f"{what} by host time."
        names = frame[C.NAME].str.removeprefix("## Call CompiledFxGraph ").str.removesuffix(" ##")
        pair += results.bars(table, names, frame["host_ns"], title="host time", caption=by_host)
    return [
        *_producers(results),
        *_lines(results),
        *results.bars("origins", ranks, parts, title="total time", caption=caption),
        *([html.Div(pair, className="tk-pair")] if pair else []),
    ]


def _producers(results: PageResults) -> list[Component]:
    """Draw the time of each part in compiled code and outside of it."""
    frame = results.frame("producers")
    if frame.empty:
        return []
    inside, total = frame["in_compiled_ns"], frame["sum_ns"]
    parts = {"called by compiled code": inside.tolist(), "called eagerly": (total - inside).tolist()}
    figure = stack_bars(format_rows(frame, "{part}, {share:.1%}"), parts, "ns", title="time")
    what = "Kernel time" if len(results.frame("kernels")) else "Time of ops, without nested ops,"
    return [chart(results.context, "producers", figure, caption=f"{what} by what made the kernels.")]


def _lines(results: PageResults) -> list[Component]:
    """Draw the time of the lines of the program; a kernel of several lines is in the bar of all of them."""
    frame = results.frame("lines")
    with_source = frame[frame[C.SOURCE_LINES] != ""]
    sums = with_source.groupby(C.SOURCE_LINES, sort=False)["sum_ns"].sum()
    most = sums.sort_values(ascending=False, kind="stable").head(MAX_BARS)
    more = f" The {MAX_BARS} largest of {len(sums):,} are shown." if len(sums) > MAX_BARS else ""
    caption = f"Kernel time of compiled code by the lines that were compiled to one kernel.{more}"
    names = [_shorten_lines(str(lines)) for lines in most.index]
    return results.bars("lines", names, most, title="time", caption=caption)


def _shorten_lines(lines: str) -> str:
    """Shorten lines to the names of their files, each named once."""
    names: list[str] = []
    last = ""
    for line in lines.split(SEPARATOR):
        file, _, number = line.rpartition(":")
        names.append(number if file == last else f"{PurePath(file).name}:{number}")
        last = file
    return SEPARATOR.join(names)


PAGE = answer_page("compile", section=Section.MORE, order=900, answer=_answer, figures=_figures, height=260)
