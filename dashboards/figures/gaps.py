"""Idle time by cause, op and gap length; waits for collectives by rank; launch configurations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis.idle_causes import IdleCause
from tracekit.analysis.idle_causes import label as label_of
from tracekit.schema import C

from ..components.text import human
from .axis import (
    STACKED,
    TOTAL,
    color_of_cause,
    format_values,
    hover_name,
    row_axis,
    scale_factor,
    scale_values,
    shorten_label,
)
from .lines import Dots, Limit, heatmap, points

COLORS: dict[str, str] = {cause: color_of_cause(cause) for cause in IdleCause}
"""Color of each cause: warm if the host was late, blue if work was queued."""
IDLE, COUNT = "idle_ns", "gaps"
_INNER = [step * 10**power for power in range(3, 11) for step in (1, 2, 5)]


def by_cause(frame: pd.DataFrame, names: Sequence[str]) -> dict[str, Any]:
    """Draw `idle_gaps.by_cause`: one bar per device split by cause; for a single device, one bar per cause.

    `names` are the device of each row.
    """
    rows = list(dict.fromkeys(names))
    if len(rows) == 1:
        ordered = frame.sort_values(IDLE, ascending=False, kind="stable")
        figure = by_op(ordered, [label_of(name) for name in ordered["cause"]])
        figure["layout"] |= {"showlegend": False, "margin": {"l": 8, "r": 16, "t": 4, "b": 36}}
        return figure
    return by_op(frame, names, rows=rows)


def by_op(frame: pd.DataFrame, names: Sequence[str], *, rows: list[str] | None = None) -> dict[str, Any]:
    """Draw one bar per op in the color of its cause, longest first.

    Args:
        frame: The first rows of `idle_gaps.by_op`.
        names: Label of each row.
        rows: Labels of the bars, each of several rows; default: one bar per row.
    """
    lengths, unit = scale_values(frame[IDLE].tolist(), "ns")
    positions = [rows.index(name) for name in names] if rows else list(range(len(names)))
    causes, shares = frame["cause"].tolist(), format_values(frame["share"].tolist(), "share")
    times, counts = format_values(frame[IDLE].tolist(), "ns"), format_values(frame[COUNT].tolist(), "count")
    hover = [
        f"{hover_name(name)}<br>{label_of(why_idle)}: {time} in {count} gaps"
        f"<br>{share} of the device's idle time"
        for name, why_idle, time, count, share in zip(names, causes, times, counts, shares, strict=True)
    ]
    traces = []
    for cause in _order_causes(causes):
        indices = [index for index, name in enumerate(causes) if name == cause]
        traces.append(
            _trace(cause)
            | {
                "orientation": "h",
                "x": [lengths[index] for index in indices],
                "y": [positions[index] for index in indices],
                "text": None if rows else [shares[index] for index in indices],
                "textposition": "auto",
                "textangle": 0,
                "constraintext": "none",
                "hovertext": [hover[index] for index in indices],
            }
        )
    bar_names = rows or names
    layout = {
        "height": 104 + 26 * len(bar_names),
        **STACKED,
        "margin": {"l": 8, "r": 16, "t": 28, "b": 36},
        "xaxis": {"title": {"text": f"idle time ({unit})"}, "rangemode": "tozero"},
        "yaxis": row_axis(bar_names, width=64),
    }
    return {"data": traces, "layout": layout}


def lengths(frame: pd.DataFrame) -> dict[str, Any]:
    """Draw idle time by gap length, split by cause, from `idle_gaps.gaps`."""
    length = frame[C.DUR_NS].to_numpy(np.int64)
    inner = [edge for edge in _INNER if edge <= length.max()] or _INNER[:1]
    below = sum(edge <= length.min() for edge in inner)
    edges = np.array(inner[max(0, below - 1) :], np.int64)  # lower bounds of bins that cover all gaps
    bins = np.maximum(np.searchsorted(edges, length, side="right") - 1, 0)
    sums = {}
    for name in _order_causes(frame["cause"].unique().tolist()):
        of_cause = (frame["cause"] == name).to_numpy()
        time = np.zeros(len(edges), np.int64)
        np.add.at(time, bins[of_cause], length[of_cause])
        sums[name] = (time, np.bincount(bins[of_cause], minlength=len(edges)))
    scale, unit = scale_factor([int(time.max()) for time, _ in sums.values()], "ns")
    texts = [human(int(edge), "ns") for edge in edges]
    names = [f"{low} to {high}" for low, high in pairwise(texts)] + [f"≥ {texts[-1]}"]
    traces = [
        _trace(name)
        | {
            "x": list(range(len(edges))),
            "y": [int(value) * scale for value in time],
            "hovertext": [
                f"{bounds}<br>{label_of(name)}: {human(int(total), 'ns')} in {int(number):,} gaps"
                for bounds, total, number in zip(names, time, count, strict=True)
            ],
        }
        for name, (time, count) in sums.items()
    ]
    layout = {
        **STACKED,
        "bargap": 0.08,
        "xaxis": {
            "title": {"text": "gap length (lower bound)"},
            "tickvals": list(range(len(edges))),
            "ticktext": [text.replace(".00", "") for text in texts],
        },
        "yaxis": {"title": {"text": f"idle time ({unit})"}, "rangemode": "tozero"},
    }
    return {"data": traces, "layout": layout}


def _order_causes(causes: Sequence[str]) -> list[str]:
    """Return the causes that occur, in legend order; unknown ones last."""
    present = dict.fromkeys(causes)
    return [name for name in COLORS if name in present] + [name for name in present if name not in COLORS]


def _trace(name: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": shorten_label(label_of(name), 30),
        "marker": {"color": COLORS.get(name, TOTAL)},
        "hoverinfo": "text",
    }


MAX_COLUMNS = 60
"""Maximum collectives shown separately; with more, waits are summed by step or by kind."""


def matrix(skew: pd.DataFrame) -> tuple[dict[str, Any], str]:
    """Return a heatmap of wait time by the rank that arrived last, and a description of its columns.

    The rows of `ranks`' `skew` must have a last rank.
    """
    keys, by = _columns(skew)
    columns = list(dict.fromkeys(keys))
    ranks = sorted({int(rank) for rank in skew["last_rank"]})
    sums: dict[tuple[int, str], int] = {}
    for rank, key, wait in zip(skew["last_rank"], keys, skew["wait_ns"], strict=True):
        sums[int(rank), key] = sums.get((int(rank), key), 0) + int(wait)
    values = [[sums.get((rank, column)) for column in columns] for rank in ranks]
    names = [f"rank {rank}" for rank in ranks]
    return heatmap(names, columns, values, "ns", title="wait", column_title=by.removeprefix("by ")), by


def _columns(skew: pd.DataFrame) -> tuple[list[str], str]:
    ordered = skew.sort_index()
    if len(ordered) <= MAX_COLUMNS:
        pairs = zip(ordered["collective"], ordered["number"], strict=True)
        return [f"{kind} {number}" for kind, number in pairs], "by collective"
    if ordered[C.STEP].notna().any() and ordered[C.STEP].nunique() > 1:
        missing = ordered[C.STEP].isna()
        names = [
            "no step" if none else f"step {step}" for step, none in zip(ordered[C.STEP], missing, strict=True)
        ]
        return names, "by step"
    return [str(kind) for kind in ordered["collective"]], "by collective type"


FULL = "at least one full wave"
LESS = "less than one wave"
UNKNOWN = "waves unknown"


def launch_map(configs: pd.DataFrame) -> dict[str, Any]:
    """Draw blocks over threads per block, by number of waves.

    `configs` are rows of `launch_config`'s `configs`, with `grid` and `block` as text.
    """
    threads = configs[C.BLOCK_X] * configs[C.BLOCK_Y] * configs[C.BLOCK_Z]
    frame = configs.assign(wide=threads)
    frame = frame[(frame["wide"] > 0) & (frame["blocks"] > 0)]
    least = int(frame["wide"].min()).bit_length() - 1 if len(frame) else 5
    powers = [float(1 << exponent) for exponent in range(min(5, least), 11)]
    return points(
        _dots_by_waves(frame, "wide", "blocks"),
        x_title="threads per block",
        y_title="blocks per launch",
        x_ticks=(powers, [f"{power:g}" for power in powers]),
    )


def waves(configs: pd.DataFrame) -> dict[str, Any]:
    """Draw occupancy over waves; without recorded occupancy, resident blocks per SM over waves.

    `configs` are as for `launch_map`.
    """
    launches = configs[configs["waves"].fillna(0) > 0]
    recorded = bool((launches["occupancy"].fillna(0) > 0).any())
    height = launches["occupancy"] * 100 if recorded else launches["resident_blocks"]
    frame = launches.assign(height=height)
    frame = frame[frame["height"].fillna(0) > 0]
    ends = [float(frame["height"].min()), float(frame["height"].max())] if len(frame) else [1.0, 100.0]
    return points(
        _dots_by_waves(frame, "waves", "height"),
        [Limit("one wave", [1, 1], ends)],
        x_title="waves",
        y_title="occupancy (%)" if recorded else "resident blocks per SM",
    )


def _dots_by_waves(frame: pd.DataFrame, x: str, y: str) -> list[Dots]:
    """Return a series of points for launches with and without a full wave, and of unknown waves."""
    made = frame["waves"].astype(float)
    of_kind = {FULL: made >= 1, LESS: made < 1, UNKNOWN: made.isna()}
    columns = ("op", "family", "grid", "block", "total_ns", "waves")
    dots = []
    for kind, mask in of_kind.items():
        if mask.any():
            rows, weight = frame[mask], frame["share"][mask].fillna(0)
            relative = (weight / (float(weight.max()) or 1.0)).tolist()
            hover = list(map(_hover, *(rows[column] for column in columns)))
            across, up = (rows[column].astype(float).tolist() for column in (x, y))
            dots.append(Dots(kind, across, up, hover, relative))
    return dots


def _hover(op: str, family: str, grid: str, block: str, total_ns: int, waves: float) -> str:
    texts = [
        hover_name(str(op) or "(no op recorded)"),
        hover_name(str(family)),
        f"grid {grid}, block {block}",
        human(int(total_ns), "ns"),
    ]
    return "<br>".join(texts if pd.isna(waves) else [*texts, f"{waves:,.2f} waves"])
