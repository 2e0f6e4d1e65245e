"""Host breakdown page: parts of the time of the thread that drives each rank, and what it did by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
from dash.development.base_component import Component

from tracekit.analysis.host_verdict import BOUNDS, HostPart
from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, keep_largest, show_answer, values_by_rank
from ..components.finding import COLORS
from ..figures.axis import LABEL
from ..site import Section

NAME = "host_breakdown"
MAX_BARS = 12


def _answer(results: PageResults) -> list[Component]:
    if results.frame("whole").empty:
        return []
    frame = results.frame("whole").assign(part=lambda rows: rows["part"].str.replace("_", " "))
    where = ", on rank {rank!s}" if frame[C.RANK].nunique() > 1 else ""
    row = results.largest("whole", "time_ns", rows=frame)
    return [show_answer(*row.fill(f"Largest part{where}: {{part!r}}, {{time_ns}}, {{share}} of the time."))]


def _figures(results: PageResults) -> list[Component]:
    ranks, values = values_by_rank(results.frame("whole"), "part", "time_ns")
    caption = "Time of the driving thread of each rank by part."
    return [
        *_stack(results, "parts", ranks, values, title="time", caption=caption),
        *chart_names(results),
    ]


def _stack(
    results: PageResults, name: str, labels: Iterable[Any], parts: Mapping[str, pd.Series[Any]], **words: Any
) -> list[Component]:
    """Draw parts of the time as stacked bars, in the colors that they have in the verdict of the run."""
    colors = [COLORS[BOUNDS[HostPart(part)]] for part in parts]
    spelled = {part.replace("_", " "): values for part, values in parts.items()}
    return results.bars(name, labels, spelled, colors=colors, **words)


def chart_names(results: PageResults, *, label_width: int = LABEL) -> list[Component]:
    """Chart the ops, ranges and functions with most time of the driving threads; nothing without rows."""
    frame = results.frame("by_name", NAME)
    sums = frame.groupby([C.NAME, "part"], sort=False)["time_ns"].sum().reset_index()
    largest = keep_largest(sums, "time_ns", MAX_BARS)
    kinds = [str(part) for part in HostPart if part in set(largest["part"])]
    parts = {part: largest["time_ns"].where(largest["part"] == part, 0) for part in kinds}
    which = f"{len(largest)} largest of {len(sums):,} names" if len(largest) < len(sums) else "all names"
    caption = f"Self time of the driving threads by op, range or Python function: {which}."
    named = {"title": "self time", "caption": caption, "label_width": label_width}
    return _stack(results, "names", largest[C.NAME], parts, **named)


PAGE = answer_page(NAME, section=Section.TIME, order=112, answer=_answer, figures=_figures, height=460)
