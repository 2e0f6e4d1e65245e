"""Copies page: sizes, rates and memory types of copies, and copies that may be avoidable."""

from __future__ import annotations

from typing import Any

import pandas as pd
from dash import html
from dash.development.base_component import Component
from tracekit.analyses.shared.pcie import link_gb_per_s

from tracekit.schema import C, CopyKind

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, keep_largest, show_answer, show_nothing
from ..components.charts import chart
from ..figures.memory import rates, sizes
from ..site import Section
from ..tables.html import first_rows

DIRECTIONS = {str(CopyKind.H2D): "h2d_copies", str(CopyKind.D2H): "d2h_copies"}
MAX_SCALAR_BYTES = 8
"""Maximum bytes of a scalar, as in the analyses' rule."""
_GROUP = (
    *("op", "bytes_each", "memory", "copies", "copies_per_step", C.BYTES, "sum_ns", "gb_per_s"),
    "blocked_ns",
)
_MEMORY = (
    *("direction", "memory", "copies", C.BYTES, "sum_ns", "gb_per_s", "median_gb_per_s"),
    *("ceiling_gb_per_s", "exposed_ns", "blocked_ns"),
)
"""Columns of the tables of copies, and of types of memory."""
_LINKS = ", ".join(f"PCIe {generation}.0 {link_gb_per_s(generation, 16):.1f}" for generation in (3, 4, 5))
NOMINAL = f"Nominal with 16 lanes: {_LINKS} GB/s per direction, of which large copies reach 80 to 90%."
"""What a link may reach, where neither it nor a copy that shows it was recorded."""


def _answer(results: PageResults) -> list[Component]:
    table = results.frame(_device_table(results), "pinned_memory")
    if table.empty:
        return [show_nothing("No copies.")]
    order = list(DIRECTIONS)  # others follow, by name
    directions = sorted(
        table["direction"].astype(str).unique(),
        key=lambda direction: (order.index(direction) if direction in order else len(order), direction),
    )
    return [show_answer(*(part for name in directions for part in _direction(results, table, name)))]


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
    context, links = results.context, results.frame("by_memory", "pinned_memory")
    links = links.dropna(subset="ceiling_gb_per_s")[["direction", "ceiling_gb_per_s"]]
    rows = links.astype({"direction": str, "ceiling_gb_per_s": float}).itertuples(index=False, name=None)
    ceilings = {direction: rate for direction, rate in rows if direction in DIRECTIONS}
    kinds = ", ".join(  # as in the legend
        f"{direction} {memory}"
        for direction, table in groups.items()
        for memory in sorted(table["memory"].astype(str).unique())
    )
    counted = f"Copies by size ({kinds}); each bin spans a factor of two from its label."
    rated = f"Rate over size, one point per group of equal copies ({kinds}); area by time. "
    rated += "" if ceilings else f"Link bandwidth unknown. {NOMINAL}"
    pair = [
        chart(context, "sizes", sizes(histograms), caption=counted),
        chart(context, "rates", rates(groups, ceilings), caption=rated),
    ]
    table, title = _device_table(results), "Pinned vs. pageable memory"
    columns = results.columns(table, *_MEMORY, name="pinned_memory")
    memory = first_rows(context, results.frame(table, "pinned_memory"), columns, title=title, limit=16)
    return [html.Div(pair, className="tk-pair"), memory, *_suspects(results, groups)]


def _suspects(results: PageResults, groups: dict[str, pd.DataFrame]) -> list[Component]:
    """List groups of copies by criteria named in each heading, both directions side by side."""
    copied = {name: table["bytes_each"].dropna().astype(int).tolist() for name, table in groups.items()}
    criteria = {}
    for direction, table in groups.items():
        other = [size for name, sizes_of in copied.items() if name != direction for size in sizes_of]
        criteria[direction] = _group_by_criterion(table, other)
    shown: list[Component] = []
    for what in next(iter(criteria.values())):
        pair = [
            part
            for direction, tables in criteria.items()
            for part in results.first_rows(
                "groups",
                _GROUP,
                rows=tables[what],
                name=DIRECTIONS[direction],
                title=f"{direction}: {what}",
                row="first_row",
                limit=8,
            )
        ]
        shown += [html.Div(pair, className="tk-pair tk-side-by-side")] if pair else []
    return shown


def _group_by_criterion(table: pd.DataFrame, other: list[int]) -> dict[str, pd.DataFrame]:
    """Return the groups that meet each criterion, given the sizes copied in the other direction."""
    size = table["bytes_each"].fillna(-1)
    repeated = table["copies_per_step"].fillna(0) > 1
    return {
        "most time": keep_largest(table, "sum_ns"),
        f"scalars (up to {MAX_SCALAR_BYTES} bytes)": table[(size >= 0) & (size <= MAX_SCALAR_BYTES)],
        "repeated within a step": table[repeated & (size > MAX_SCALAR_BYTES)],
        "sizes copied in both directions": table[(size > MAX_SCALAR_BYTES) & size.isin(other)],
    }


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
