"""Serving page: step time against tokens by phase, unusually slow steps, and the host between steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from dash.development.base_component import Component

from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, Row, format_rows, keep_largest, show_answer, show_nothing
from ..components.charts import chart
from ..components.text import block_title, human
from ..figures.axis import scale_factor
from ..figures.lines import Dots, points
from ..site import Section
from .steps import link_windows

_SLOWEST, _ACTIVITIES, _CELLS = 5, 15, 100
"""Links, bars, and points of a decade that are drawn apart."""
_STEP, _TOKENS = "step_ns", "tokens"


def _answer(results: PageResults) -> list[Component]:
    summary = results.rows("summary")
    first = [row for row in summary if row[C.RANK] == summary[0][C.RANK]] if summary else []
    several = f" on rank {first[0][C.RANK]}" if len({row[C.RANK] for row in summary}) > 1 else ""
    phases = [part for row in first[:-1] for part in _phase(row, several)]
    return [show_answer(*phases, *_between(results, first[-1]))] if first else []


def _phase(row: Row, place: str) -> list[Any]:
    name = str(row[C.PHASE] or "unknown phase").capitalize()
    steps = f"{row['count']:,} step{'s' * (row['count'] != 1)}{place}"
    if row["median_ns"] is None:
        return [f"{name}: {steps}, of unknown time. "]
    text = f"{'median ' * (row['count'] > 1)}{{median_ns}}"
    text += "" if row["tokens_per_s"] is None else ", {tokens_per_s}"
    text += "" if row["busy_share"] is None else ", device busy {busy_share} of its window"
    return [f"{name}: {steps}, ", *row.fill(f"{text}. ")]


def _between(results: PageResults, total: Row) -> list[Any]:
    steps = results.frame("steps")
    gaps = steps[(steps[C.RANK] == total[C.RANK]) & steps["between_ns"].notna()]
    if gaps.empty or not total["sum_ns"]:
        return []
    parts = ["Between the steps the host takes ", human(int(gaps["between_ns"].sum()), "ns")]
    parts += [" (", human(float(gaps["between_ns"].sum() / total["sum_ns"]), "share"), " of the time)"]
    if gaps["between_idle_ns"].notna().all():
        parts += ["; the device is idle for ", human(int(gaps["between_idle_ns"].sum()), "ns"), " of it"]
    return [*parts, "."]


def _figures(results: PageResults) -> list[Component]:
    steps = results.frame("steps")
    steps = steps.assign(**{_TOKENS: steps[C.CONTEXT_TOKENS] + steps[C.GENERATION_TOKENS]})
    return [*_scatter(results, steps), *_outliers(results, steps), *_host(results)]


def _scatter(results: PageResults, steps: pd.DataFrame) -> list[Component]:
    placed = steps[(steps[_TOKENS].fillna(0) > 0) & (steps[_STEP].fillna(0) > 0)]
    if len(placed) < 2:
        return [] if len(steps) < 2 else [show_nothing("Tokens or times of the steps are unknown.")]
    scale, unit = scale_factor([int(placed[_STEP].max())], "ns")
    phases = _merge_equal(placed).groupby(C.PHASE, observed=True)
    kinds = []
    for phase, rows in sorted(phases, key=lambda phase_rows: -len(phase_rows[1])):
        tokens, times = (rows[name].astype(float) for name in (_TOKENS, _STEP))
        kinds.append(
            Dots(str(phase), tokens.tolist(), (times * scale).tolist(), _hover(rows), [0.0] * len(rows))
        )
    figure = points(kinds, x_title="tokens of the step", y_title=f"step time ({unit})")
    caption = "Context and generation tokens of each step, on logarithmic axes; equal steps are one point."
    return [block_title("Step time by tokens"), chart(results.context, "tokens", figure, caption=caption)]


def _merge_equal(steps: pd.DataFrame) -> pd.DataFrame:
    """One step of those of a phase that coincide in the figure, the longest, with their number."""
    x, y = (np.rint(np.log10(steps[name].to_numpy(np.float64)) * _CELLS) for name in (_TOKENS, _STEP))
    ordered = steps.assign(x=x, y=y).sort_values(_STEP)
    grouped = ordered.groupby([C.PHASE, "x", "y"], observed=True)
    return ordered.assign(same=grouped[C.STEP].transform("size")).loc[grouped.tail(1).index]


def _hover(steps: pd.DataFrame) -> list[str]:
    columns = (C.STEP, C.REQUESTS, C.CONTEXT_TOKENS, C.GENERATION_TOKENS, _STEP, "same")
    return [
        f"step {step}{f' and {same - 1:,} like it' if same > 1 else ''}: {human(int(time), 'ns')}<br>"
        f"{size} requests<br>{read:,} context and {written:,} generation tokens"
        for step, size, read, written, time, same in steps[list(columns)].itertuples(index=False, name=None)
    ]


def _outliers(results: PageResults, steps: pd.DataFrame) -> list[Component]:
    """Link to the slow steps that exceed those of similar tokens most."""
    slow = steps[steps["slow"].fillna(value=False).astype(bool)]
    top = keep_largest(slow, "excess_ns", _SLOWEST)
    if top.empty:
        return []
    template = "step {step}" + " on rank {rank}" * (steps[C.RANK].nunique() > 1) + " ({phase})"
    texts = [
        f"{text}, {human(int(excess), 'ns')} longer"
        for text, excess in zip(format_rows(top, template), top["excess_ns"], strict=True)
    ]
    many = f"{len(slow):,} steps take" if len(slow) > 1 else "1 step takes"
    lead = f"{many} over 20% longer than steps of similar tokens; the longest on the timeline: "
    return [link_windows(results.context, top, lead, texts)]


def _host(results: PageResults) -> list[Component]:
    frame = results.frame("between")
    if frame.empty:
        return []
    has_idle = frame["device_idle_ns"].notna().all()
    column = "device_idle_ns" if has_idle else "sum_ns"
    sums = frame.groupby("activity", sort=False)[column].sum().nlargest(_ACTIVITIES)
    if not int(sums.sum()):
        return [show_nothing("The device is not idle while the host works between steps.")]
    sums = sums[sums > 0]
    title, when = ("idle device time", " while no device of the rank works") if has_idle else ("time", "")
    names = [str(name).rpartition("/")[2] for name in sums.index]
    caption = f"What the host does between steps{when}; summed over ranks."
    figures = results.bars("between", names, sums, title=title, caption=caption)
    return [block_title("Host between steps"), *figures]


PAGE = answer_page("serving", section=Section.TIME, order=115, answer=_answer, figures=_figures, height=520)
