"""Critical path page: the chain of host and device time that bounds each step."""

from __future__ import annotations

import pandas as pd
from dash import html
from dash.development.base_component import Component

from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import HOST_TABLE, PageResults, first_rows, show_answer
from ..components.charts import chart
from ..figures.bars import bars, compose_bars
from ..site import Section

MAX_BARS = 12


def _answer(results: PageResults) -> list[Component]:
    kinds = results.frame("by_kind")
    if kinds.empty:
        return []
    where = " of rank {rank!s}" if kinds[C.RANK].nunique() > 1 else ""
    text = (
        f"The largest part of the critical path{where} is {{kind!r}}: {{path_ns}}, {{share}} of step time. "
    )
    parts = results.largest("by_kind", "path_ns").fill(text)
    saving = results.frame("what_if")
    if len(saving) and (best := results.largest("what_if", "saving_ns"))["saving_ns"] > 0:
        text = "Removing {removed!r} ({where!s}) saves the most: {saving_ns} per step, {saving_share}."
        parts += best.fill(text)
    return [show_answer(*parts)]


def _figures(results: PageResults) -> list[Component]:
    context, kinds = results.context, results.frame("by_kind")
    if kinds.empty:
        return []
    ranks = sorted(int(rank) for rank in kinds[C.RANK].unique())
    order = list(dict.fromkeys(kinds.sort_values("path_ns", ascending=False)[C.KIND].astype(str)))
    parts = {kind: [_time(kinds, rank, kind) for rank in ranks] for kind in order}
    figure = compose_bars([f"rank {rank}" for rank in ranks], parts, "ns", title="time on the path")
    shown = [chart(context, "kinds", figure, caption="Critical path by kind; the parts sum to all steps.")]
    pair = [*_savings_chart(results), *_ops(results)]
    return [*shown, html.Div(pair, className="tk-pair"), *_segments(results)]


def _time(kinds: pd.DataFrame, rank: int, kind: str) -> int:
    of_rank = kinds[(kinds[C.RANK] == rank) & (kinds[C.KIND].astype(str) == kind)]
    return int(of_rank["path_ns"].iloc[0]) if len(of_rank) else 0


def _with_ranks(frame: pd.DataFrame, names: list[str]) -> list[str]:
    """Add the rank to names if several ranks are shown."""
    if frame[C.RANK].nunique() <= 1:
        return names
    return [f"{name} (rank {rank})" for name, rank in zip(names, frame[C.RANK], strict=True)]


def _savings_chart(results: PageResults) -> list[Component]:
    frame = results.frame("what_if").sort_values("saving_ns", ascending=False, kind="stable").head(MAX_BARS)
    if frame.empty:
        return []
    names = [f"{what} ({where})" for what, where in zip(frame["removed"], frame["where"], strict=True)]
    values = [int(value) for value in frame["saving_ns"]]
    figure = bars(_with_ranks(frame, names), values, "ns", title="saving per step")
    caption = "Saving per step with each part removed. Savings overlap; don't sum them."
    return [chart(results.context, "saved", figure, caption=caption)]


def _ops(results: PageResults) -> list[Component]:
    frame = results.frame("by_op").sort_values("path_ns", ascending=False, kind="stable").head(MAX_BARS)
    names = [f"{op} ({kind})" for op, kind in zip(frame["op"], frame[C.KIND], strict=True)]
    values = [int(value) for value in frame["path_ns"]]
    figure = bars(_with_ranks(frame, names), values, "ns", title="time on the path")
    caption = "Ops and kernels with the most time on the path, by kind."
    return [chart(results.context, "ops", figure, caption=caption)]


def _segments(results: PageResults) -> list[Component]:
    segments = results.frame("segments")
    columns = results.columns("segments", C.RANK, C.STEP, C.KIND, "op", C.DUR_NS)
    shown: list[Component] = []
    on_device = segments[segments["device_row"].notna()]
    on_host = segments[segments["device_row"].isna() & segments["host_row"].notna()]
    if len(on_device):
        title = "Longest segments on a device"
        shown.append(first_rows(results.context, on_device, columns, title=title, row="device_row"))
    if len(on_host):
        title = "Longest segments on the host"
        shown.append(
            first_rows(results.context, on_host, columns, title=title, row="host_row", table=HOST_TABLE)
        )
    return shown


PAGE = answer_page(
    "critical_path", section=Section.TIME, order=150, answer=_answer, figures=_figures, height=520
)
