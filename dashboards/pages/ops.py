"""Operators page: host time, device time and memory by op, by op and shapes, or by family as a treemap."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component

from tracekit.analysis import NODE, PARENT
from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import (
    HOST_TABLE,
    PageResults,
    format_name,
    format_rows,
    keep_largest,
    show_answer,
    show_nothing,
)
from ..components.charts import chart, connect_clicks
from ..components.text import human
from ..figures.axis import hover_name
from ..figures.lines import Dots, points
from ..figures.shares import treemap
from ..site import MAX_PARAMETER_CHARS, Section

MAX_BARS = 15
MAX_POINTS = 300
_BY = [("ops", "By op"), ("shapes", "By op and shapes"), ("tree", "By family")]
_MEASURES = [
    ("device_self_ns", "Device self"),
    ("device_total_ns", "Device total"),
    ("host_self_ns", "Host self"),
    ("host_total_ns", "Host total"),
    ("allocated_bytes", "Device memory"),
]
_HOST_FIRST = [_MEASURES[2], _MEASURES[3], *_MEASURES[:2], _MEASURES[4]]


def _answer(results: PageResults) -> list[Component]:
    ops = results.frame("ops")
    if ops.empty:
        return []
    row, once = results.largest("ops"), not results.frame("one_offs").empty
    text = (
        f"{{name!r}} has the highest host self time{' without one-off calls' * once}: {{host_self_ns}} in "
        f"{{calls}} calls{' ({one_off_ns} of it in one-off calls)' * bool(row['one_off_ns'])}, "
        "{host_self_share} of the host self time of all ops."
    )
    parts = row.fill(text)
    if once:
        text = " The longest one-off call, of {name!r}, took {host_self_ns}; the others take {median_ns}."
        parts += results.largest("one_offs").fill(text)
    if ops["device_self_ns"].notna().any():
        text = (
            "{name!r} launched the most device time: {device_self_ns}, {device_share} of the device time "
            "launched by ops. "
        )
        parts = [*results.largest("ops", "device_self_ns").fill(text), *parts]
    return [show_answer(*parts)]


def _figures(results: PageResults) -> list[Component]:
    by = results.read_choice("by", _BY)
    frame, is_tree = results.frame(by), by == "tree"
    on_device = bool(frame["device_self_ns"].notna().any())
    of_times = _MEASURES if on_device else _HOST_FIRST
    ordered = [_MEASURES[0], _MEASURES[2]] if is_tree else of_times
    measures = [(name, title) for name, title in ordered if (frame[name].fillna(0) != 0).any()]
    switches = [results.show_switch("by", "Operators by", _BY)]
    if not measures:
        return [*switches, show_nothing("No op has a recorded time.")]
    measure = results.read_choice("measure", measures)
    switches.append(results.show_switch("measure", "Measure", measures))
    bar = html.Div(switches, className="tk-switches")
    if is_tree:
        return [bar, *_families(results, frame, measure, dict(measures)[measure])]
    if measure == "host_self_ns":
        frame = frame.assign(host_self_ns=frame["host_self_ns"] - frame["one_off_ns"])
    nonzero = frame[frame[measure].notna() & (frame[measure] != 0)]
    pair = [*_top(results, nonzero, measure), *_host_and_device(results, frame)]
    return [bar, html.Div(pair, className="tk-pair")]


def _families(results: PageResults, tree: pd.DataFrame, measure: str, title: str) -> list[Component]:
    """Draw the treemap, and list the kernels of the op that was clicked."""
    view, options = results.context.view, results.context.view.options
    figure = treemap(tree, measure, lambda op: view.href(options=options | {"op": op[:MAX_PARAMETER_CHARS]}))
    caption = (
        f"{title} time of the capture by family and op, over threads and ranks. Click an op for its kernels "
        "and longest call, a family to enlarge it. The table By family lists all of it."
    )
    return [
        chart(results.context, "families", figure, caption=caption),
        *_op_details(results, tree, options.get("op", "")),
    ]


def _op_details(results: PageResults, tree: pd.DataFrame, op: str) -> list[Component]:
    """Show the op of the address with its kernels, each linked to its longest interval on the timeline."""
    op_rows = tree[(tree["level"] == "op") & (tree[C.NAME].str.slice(0, MAX_PARAMETER_CHARS) == op)]
    if op_rows.empty:
        return []
    row = results.largest("tree", rows=op_rows)
    text = ": host self {host_self_ns} in {calls} calls"
    if row["device_self_ns"] is not None:
        text += "; device self {device_self_ns} in {launches} intervals"
    parts = [format_name(op), *row.fill(text)]
    if row["host_row"] is not None:
        href = results.context.view.elsewhere("timeline", row=f"{HOST_TABLE}:{row['host_row']}")
        parts += [". ", dcc.Link("Show its longest call on the timeline", href=href)]
    shown: list[Component] = [html.P([*parts, "."], id="op-selected")]
    columns = (C.NAME, "device_self_ns", "device_share", "launches")
    title, kernels = "Kernels of the op, longest interval linked", tree[tree[PARENT] == row[NODE]]
    return shown + results.first_rows("tree", columns, rows=kernels, title=title, row="longest_row")


def _top(results: PageResults, frame: pd.DataFrame, measure: str) -> list[Component]:
    first = keep_largest(frame, measure, MAX_BARS)
    unit = "bytes" if measure.endswith("bytes") else "ns"
    title = dict(_MEASURES)[measure]
    which = f"{len(first)} largest of {len(frame):,} ops" if len(first) < len(frame) else "all ops"
    usual = ", with one-off calls as long as the median of the others" * bool(
        measure == "host_self_ns" and frame["one_off_ns"].any()
    )
    caption = f"{title}: {which}, summed over threads and ranks{usual}."
    return results.bars("top", _labels(first), first[measure], unit, title=title, caption=caption)


def _labels(frame: pd.DataFrame) -> list[str]:
    if C.INPUT_SHAPES not in frame.columns:
        return [str(name) for name in frame[C.NAME]]
    return [text.rstrip() for text in format_rows(frame, "{name} {input_shapes}")]


def _host_and_device(results: PageResults, frame: pd.DataFrame) -> list[Component]:
    """Draw device over host time of each op; below the diagonal, the host is the bottleneck."""
    both = frame[(frame["device_total_ns"].fillna(0) > 0) & (frame["host_total_ns"] > 0)]
    both = keep_largest(both, "device_total_ns", MAX_POINTS)
    if both.empty:
        return []
    host, device = both["host_total_ns"].tolist(), both["device_total_ns"].tolist()
    hover = [
        f"{hover_name(name)}<br>host total {human(host_ns, 'ns')}<br>device total {human(int(other), 'ns')}"
        for name, host_ns, other in zip(_labels(both), host, device, strict=True)
    ]
    dots = Dots("ops", [host_ns / 1e6 for host_ns in host], [int(host_ns) / 1e6 for host_ns in device], hover)
    figure = points([dots], x_title="host total (ms)", y_title="device total (ms)")
    caption = "Host and device time of ops. Ops at the lower right take more host than device time."
    return [chart(results.context, "both", figure, caption=caption)]


PAGE = replace(
    answer_page("ops", section=Section.HOST, order=200, answer=_answer, figures=_figures, height=480),
    connect=lambda site: connect_clicks(site, "ops", "families"),
)
