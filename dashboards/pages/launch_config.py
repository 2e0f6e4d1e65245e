"""Launch configuration page: grids and blocks of kernels, and how well they fill the device."""

from __future__ import annotations

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.analysis import Column
from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import (
    PageResults,
    format_number,
    keep_largest,
    show_answer,
    show_nothing,
)
from ..components.charts import chart
from ..figures.gaps import launch_map, waves
from ..site import Section

MAX_POINTS = 500
_GRID = Column("grid", "", "blocks in x, y and z")
_BLOCK = Column("block", "", "threads per block in x, y and z")


def _answer(results: PageResults) -> list[Component]:
    configs = results.frame("configs")
    if configs.empty:
        return []
    first = results.largest("configs", "total_ns", rows=_with_grid_text(configs))
    text = (
        " configurations. Most time: {family!r} with grid {grid!s} and block {block!s}: {total_ns}, {share} "
        f"of all kernels with a recorded grid{'' if first['waves'] is None else '; {waves} waves'}."
    )
    return [show_answer(format_number(len(configs), "count"), *first.fill(text))]


def _text(frame: pd.DataFrame, *columns: str) -> list[str]:
    rows = zip(*(frame[column].tolist() for column in columns), strict=True)
    return ["({}, {}, {})".format(*("–" if pd.isna(value) else int(value) for value in row)) for row in rows]


def _with_grid_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Add grid and block of each row as text."""
    grid, block = (C.GRID_X, C.GRID_Y, C.GRID_Z), (C.BLOCK_X, C.BLOCK_Y, C.BLOCK_Z)
    return frame.assign(grid=_text(frame, *grid), block=_text(frame, *block))


def _figures(results: PageResults) -> list[Component]:
    context = results.context
    configs = _with_grid_text(keep_largest(results.frame("configs"), "total_ns"))
    shown: list[Component] = []
    if len(configs):
        top = configs.head(MAX_POINTS)
        cut = f" {MAX_POINTS:,} of {len(configs):,} with the most time." if len(configs) > MAX_POINTS else ""
        caption = f"Blocks and threads of each configuration; area by time.{cut}"
        maps = [chart(context, "map", launch_map(top), caption=caption)]
        if top["waves"].notna().any():
            caption = "Waves and occupancy. Below one wave (dashed line), some SMs are idle. Area by time."
            maps.append(chart(context, "waves", waves(top), caption=caption))
        shown.append(html.Div(maps, className="tk-pair"))
        rest = ("launches", "total_ns", "median_ns", "share", "waves", "occupancy")
        columns, title = ("op", "family", _GRID, _BLOCK, *rest), "Configurations with the most time"
        shown += results.first_rows("configs", columns, rows=configs, title=title, row="first_row", limit=12)
    relu = _with_grid_text(results.frame("relu"))
    measures = ("launches", "total_ns", "median_ns", "share", "told_by")
    names = ("kind", "direction", "op", _GRID, _BLOCK, *measures)
    shown += results.first_rows("relu", names, rows=relu, title="ReLU grids", row="first_row", limit=16)
    return shown if len(relu) else [*shown, show_nothing("No ReLU kernels found by name or op.")]


PAGE = answer_page(
    "launch_config",
    title="Launch configuration",
    section=Section.DEVICE,
    order=130,
    answer=_answer,
    figures=_figures,
    height=460,
)
