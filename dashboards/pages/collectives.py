"""Collectives page: waiting over time by rank, who is waited for, and bandwidth by process group.

A collective is a kernel on each rank of a process group; they are matched over ranks, and all end together.
`wait_ns` is the time by which a rank's kernel is longer than the shortest one, that of the last to arrive;
`caused_ns` is the waiting of all others for that last one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.runs.intervals import overlap_lengths, union
from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, format_rows, keep_largest, show_answer, show_nothing
from ..components import links
from ..components.charts import chart
from ..components.text import human
from ..figures.axis import keep_extremes
from ..figures.lines import heatmap
from ..site import Section

_BINS = 60  # columns of the heatmap, of equal time
_DEVICE = [C.RANK, C.DEVICE]  # columns that identify a device of a job


def _answer(results: PageResults) -> list[Component]:
    """Name the rank that the others wait for most, or why none is named."""
    if results.frame("by_rank").empty:
        group = results.largest("by_group", C.DUR_NS)
        return [
            show_answer(*group.fill("Most time is {collective!s}: {dur_ns}. Waiting is unknown: no match."))
        ]
    rank = results.largest("by_rank", "caused_ns")
    if not rank["caused_ns"]:
        return [show_answer("Nothing waits in the matched collectives.")]
    # A single rank may have several devices, which are matched as ranks are.
    several = results.frame("by_rank")[C.RANK].nunique() > 1
    who = "rank {rank!s}" if several else "device {device!s}"
    text = (
        f"The others wait for {who} most: it arrives last in collectives with {{caused_share}} of all "
        "waiting, {caused_ns} summed over those that wait."
    )
    return [show_answer(*rank.fill(text))]


def _figures(results: PageResults) -> list[Component]:
    frame, calls = results.frame("by_rank"), results.frame("calls")
    if frame.empty:
        unknown = show_nothing("Waiting is unknown: no collective could be matched over ranks.")
        return [unknown, *_bandwidth(results)]
    shown, note = keep_extremes(frame, frame["caused_ns"], "waiting that it causes")
    caption = "Share of the time in which each rank waits in a collective for the last rank."
    return [
        chart(results.context, "waiting", _heatmap(calls[calls["wait_ns"].notna()]), caption=caption),
        *results.bars(
            "caused",
            links.device_names(shown, ranks=True),
            shown["caused_ns"],
            title="waiting of the others",
            caption=f"Waiting of the other ranks in collectives in which this rank arrived last.{note}",
        ),
        *_bandwidth(results),
    ]


def _heatmap(calls: pd.DataFrame) -> dict[str, object]:
    """Draw the share of each bin of time in which each device waits; `calls` have a known `wait_ns`."""
    # A kernel first waits and then transfers, so its waiting is at its start.
    start = calls[C.START_NS].to_numpy(np.int64)
    end = start + calls["wait_ns"].to_numpy(np.int64)
    # At least a nanosecond for each bin: shares are over their lengths.
    edges = np.linspace(start.min(), max(end.max(), start.min() + _BINS), _BINS + 1).astype(np.int64)
    lengths = np.diff(edges)
    rows: list[npt.NDArray[np.float64]] = []
    devices = calls[_DEVICE].drop_duplicates().sort_values(_DEVICE)
    for rank, device in devices.itertuples(index=False, name=None):
        selected = ((calls[C.RANK] == rank) & (calls[C.DEVICE] == device)).to_numpy(bool)
        waits = union(start[selected], end[selected])  # streams wait concurrently: no instant counts twice
        rows.append(overlap_lengths(waits, edges[:-1], edges[1:]) / lengths)
    return heatmap(
        links.device_names(devices, ranks=True),
        [human(int(edge - edges[0]), "ns") for edge in edges[:-1]],
        [list(map(float, row)) for row in rows],
        "share",
        title="waiting",
        column_title="time since the first collective",
    )


def _bandwidth(results: PageResults) -> list[Component]:
    """Draw the bus bandwidth of each kind of collective and process group where it is known, GB/s."""
    groups = keep_largest(results.frame("by_group").dropna(subset="bus_gb_per_s"), "bus_gb_per_s")
    figures = results.bars(
        "bandwidth",
        format_rows(groups, "{collective}, group {group}"),
        groups["bus_gb_per_s"],
        "GB/s",
        title="bus bandwidth",
        caption="Bus bandwidth by process group: comparable with the bandwidth of the link.",
    )
    return [html.Div(figure) for figure in figures]


PAGE = answer_page(
    "collectives", section=Section.COMPARE, order=325, answer=_answer, figures=_figures, height=520
)
