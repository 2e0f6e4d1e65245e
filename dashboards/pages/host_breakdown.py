"""Host breakdown page: parts of the time of the thread that drives each rank, and what it did by name."""

from __future__ import annotations

from dash.development.base_component import Component

from tracekit.analysis.host_verdict import HostPart
from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, keep_largest, show_answer, values_by_rank
from ..figures.axis import LABEL
from ..site import Section

NAME = "host_breakdown"
MAX_BARS = 12


def _answer(results: PageResults) -> list[Component]:
    if results.frame("whole").empty:
        return []
    row = results.largest("whole", "time_ns")
    return [show_answer(*row.fill("Rank {rank!s}: {part!r} takes {time_ns}, {share} of the time."))]


def _figures(results: PageResults) -> list[Component]:
    ranks, values = values_by_rank(results.frame("whole"), "part", "time_ns")
    first = [str(HostPart.OPS), str(HostPart.OUTSIDE)]  # in the colors of the chart of names
    parts = {
        part.replace("_", " "): values[part]
        for part in sorted(values, key=lambda part: (*first, part).index(part))
    }
    caption = "Time of the driving thread of each rank by part."
    return [
        *results.bars("parts", ranks, parts, title="time", caption=caption),
        *chart_names(results),
    ]


def chart_names(results: PageResults, *, label_width: int = LABEL) -> list[Component]:
    """Chart the ops, ranges and functions with most time of the driving threads; nothing without rows."""
    frame = results.frame("by_name", NAME)
    sums = frame.groupby([C.NAME, "part"], sort=False)["time_ns"].sum().reset_index()
    largest = keep_largest(sums, "time_ns", MAX_BARS)
    is_outside = largest["part"] == str(HostPart.OUTSIDE)
    parts = {
        "ops, calls and ranges": largest["time_ns"].mask(is_outside, 0),
        str(HostPart.OUTSIDE): largest["time_ns"].where(is_outside, 0),
    }
    which = f"{len(largest)} largest of {len(sums):,} names" if len(largest) < len(sums) else "all names"
    caption = f"Self time of the driving threads by op, range or Python function: {which}."
    return results.bars(
        "names", largest[C.NAME], parts, title="self time", caption=caption, label_width=label_width
    )


PAGE = answer_page(NAME, section=Section.TIME, order=112, answer=_answer, figures=_figures, height=460)
