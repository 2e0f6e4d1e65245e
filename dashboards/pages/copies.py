"""Copies page: sizes, rates and memory types of copies, and copies that may be avoidable."""

from __future__ import annotations

from typing import Any

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.schema import C, CopyKind

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, first_rows, show_answer, show_nothing
from ..components.charts import chart
from ..figures.copies import rates, sizes
from ..site import Section

DIRECTIONS = {str(CopyKind.H2D): "h2d_copies", str(CopyKind.D2H): "d2h_copies"}
MAX_SCALAR_BYTES = 8
"""Maximum bytes of a scalar, as in the analyses' rule."""
_GROUP = (
    "op",
    "bytes_each",
    "memory",
    "copies",
    "copies_per_step",
    C.BYTES,
    "sum_ns",
    "gb_per_s",
    "blocked_ns",
)


def _answer(results: PageResults) -> list[Component]:
    table = results.frame(_device_table(results), "pinned_memory")
    if table.empty:
        return [show_nothing("No copies.")]
    directions = sorted(table["direction"].astype(str).unique(), key=_direction_order)
    parts = [part for direction in directions for part in _direction(results, table, direction)]
    return [show_answer(*parts)]


def _direction_order(direction: str) -> tuple[int, str]:
    return (list(DIRECTIONS).index(direction) if direction in DIRECTIONS else len(DIRECTIONS)), direction


def _device_table(results: PageResults) -> str:
    """Return the table of `pinned_memory` that can be filtered as the view requires."""
    view = results.context.view
    return "by_memory" if view.rank is None and view.device is None else "by_device"


def _direction(results: PageResults, table: pd.DataFrame, direction: str) -> list[Any]:
    rows = table[table["direction"] == direction]
    parts: list[Any] = []
    for memory, group in rows.groupby("memory", sort=False, observed=True):
        first = results.largest(_device_table(results), "sum_ns", rows=group, name="pinned_memory")
        where = " on rank {rank!s}, device {device!s}" if len(group) > 1 else ""
        text = f"{where}: {{copies}} copies, {{bytes}} in {{sum_ns}} at {{gb_per_s}}. "
        parts += [f"{direction} {memory}", *first.fill(text)]
    return parts


def _figures(results: PageResults) -> list[Component]:
    groups = {name: results.frame("groups", analysis) for name, analysis in DIRECTIONS.items()}
    groups = {name: table for name, table in groups.items() if not table.empty}
    if not groups:
        return []
    histograms = {name: results.frame("sizes", DIRECTIONS[name]) for name in groups}
    context, kinds, ceilings = results.context, _legend_names(groups), _ceilings(results)
    counted = f"Copies by size ({kinds}); each bin spans a factor of two from its label."
    rated = f"Rate over size, one point per group of equal copies ({kinds}); area by time. "
    rated += "" if ceilings else "Bandwidth limit of this link unknown."
    pair = [
        chart(context, "sizes", sizes(histograms), caption=counted),
        chart(context, "rates", rates(groups, ceilings), caption=rated),
    ]
    return [html.Div(pair, className="tk-pair"), _memory(results), *_suspects(results, groups)]


def _legend_names(groups: dict[str, pd.DataFrame]) -> str:
    """List the kinds of copies drawn, as in the legend."""
    memories = {
        direction: sorted(table["memory"].astype(str).unique()) for direction, table in groups.items()
    }
    return ", ".join(f"{direction} {memory}" for direction, names in memories.items() for memory in names)


def _ceilings(results: PageResults) -> dict[str, float]:
    table = results.frame("by_memory", "pinned_memory").dropna(subset=["ceiling_gb_per_s"])
    table = table[table["direction"].isin(list(DIRECTIONS))]
    return dict(zip(table["direction"].astype(str), table["ceiling_gb_per_s"].astype(float), strict=True))


def _memory(results: PageResults) -> Component:
    name = _device_table(results)
    wanted = ("direction", "memory", "copies", C.BYTES, "sum_ns", "gb_per_s", "median_gb_per_s")
    more = ("ceiling_gb_per_s", "exposed_ns", "blocked_ns")
    columns = results.columns(name, *wanted, *more, name="pinned_memory")
    frame = results.frame(name, "pinned_memory")
    return first_rows(results.context, frame, columns, title="Pinned vs. pageable memory", limit=16)


def _suspects(results: PageResults, groups: dict[str, pd.DataFrame]) -> list[Component]:
    """List groups of copies by criteria named in each heading, both directions side by side."""
    criteria = {
        direction: _group_by_criterion(table, _other_sizes(groups, direction))
        for direction, table in groups.items()
    }
    shown: list[Component] = []
    for what in next(iter(criteria.values())):
        pair = [
            _groups(results, direction, f"{direction}: {what}", tables[what])
            for direction, tables in criteria.items()
            if len(tables[what])
        ]
        shown += [html.Div(pair, className="tk-pair tk-side-by-side")] if pair else []
    return shown


def _group_by_criterion(table: pd.DataFrame, other: list[int]) -> dict[str, pd.DataFrame]:
    """Return the groups of one direction that meet each criterion.

    Args:
        table: The groups.
        other: Sizes copied in the other direction.
    """
    size = table["bytes_each"].fillna(-1)
    repeated = table["copies_per_step"].fillna(0) > 1
    return {
        "longest": table.sort_values("sum_ns", ascending=False, kind="stable"),
        f"scalars (up to {MAX_SCALAR_BYTES} bytes)": table[(size >= 0) & (size <= MAX_SCALAR_BYTES)],
        "repeated within a step": table[repeated & (size > MAX_SCALAR_BYTES)],
        "sizes copied in both directions": table[(size > MAX_SCALAR_BYTES) & size.isin(other)],
    }


def _groups(results: PageResults, direction: str, title: str, frame: pd.DataFrame) -> Component:
    columns = results.columns("groups", *_GROUP, name=DIRECTIONS[direction])
    return first_rows(results.context, frame, columns, title=title, row="first_row", limit=8)


def _other_sizes(groups: dict[str, pd.DataFrame], direction: str) -> list[int]:
    others = [table for name, table in groups.items() if name != direction]
    return [int(size) for table in others for size in table["bytes_each"].dropna().unique()]


PAGE = answer_page(
    "copies",
    title="Copies",
    question="What is copied between host and device, how fast, from which memory, and is it all needed?",
    section=Section.DEVICE,
    order=120,
    answer=_answer,
    figures=_figures,
    analyses=("h2d_copies", "d2h_copies", "pinned_memory"),
    height=480,
)
