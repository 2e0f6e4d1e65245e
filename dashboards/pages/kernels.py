"""Kernels page: kernel time by family, name or op, and use of tensor cores."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from tracekit.schema import C

from ..analysis_pages.pages import answer_page
from ..analysis_pages.results import PageResults, format_number, show_answer
from ..components.charts import chart
from ..figures.axis import color
from ..figures.sweep import cumulative, group_bars
from ..shell import find_ranks_and_devices
from ..site import Section

MAX_BARS = 15
_BY = [("families", "By family"), ("names", "By full name"), ("by_op", "By launching op")]
_LABEL = {"families": "family", "names": C.NAME, "by_op": "op"}
_MANY = {"families": "families", "names": "names", "by_op": "ops"}
_KERNELS = {"kernels": color("compute")}
_CORES = {True: "tensor cores (by kernel name)", False: "no tensor cores (by kernel name)"}


def _answer(results: PageResults) -> list[Component]:
    families = results.frame("families")
    text = "{family!r} takes the most device time: {sum_ns} in {count} launches, {share} of kernel time. "
    on_tensor_cores = float(families.loc[families["tensor_cores"].astype(bool), "share"].sum())
    return [
        show_answer(
            *results.largest("families").fill(text),
            format_number(on_tensor_cores, "share"),
            " of kernel time is in kernels that use tensor cores, judging by their names.",
        )
    ]


def _figures(results: PageResults) -> list[Component]:
    context, by = results.context, results.read_choice("by", _BY)
    frame = results.frame(by).sort_values("sum_ns", ascending=False, ignore_index=True)
    if frame.empty:
        return []
    first = frame.head(MAX_BARS)
    names = [str(name) or "(no op recorded)" for name in frame[_LABEL[by]]]
    has_cores = "tensor_cores" in frame
    kinds = {of: color(of.partition(" (")[0]) for of in _CORES.values()} if has_cores else _KERNELS
    groups = [_CORES[bool(uses_cores)] for uses_cores in first.get("tensor_cores", ())]
    bars = group_bars(
        names[:MAX_BARS],
        first["sum_ns"].tolist(),
        "ns",
        groups=groups or [*_KERNELS] * len(first),
        kinds=kinds,
        title="total time",
    )
    curve = cumulative(frame["share"].fillna(0).tolist(), names, what=_MANY[by])
    which = f"{len(first)} of {len(frame):,} with the most time" if len(frame) > MAX_BARS else "Kernel time"
    several = max(map(len, find_ranks_and_devices(context.run))) > 1
    summed = ", summed over all ranks and devices" if several else ""
    pair = [
        chart(context, "top", bars, caption=f"{which}{summed}."),
        chart(context, "cumulative", curve, caption="Cumulative share of kernel time."),
    ]
    switch = results.show_switch("by", "Kernels by", _BY)
    late = results.first_rows(
        "first_launches",
        (C.NAME, "first_ns", "later_median_ns", "excess_ns"),
        title="Slow first launches",
        row=C.ROW_ID,
        limit=8,
    )
    return [switch, html.Div(pair, className="tk-pair"), *late]


PAGE = answer_page(
    "kernels",
    section=Section.DEVICE,
    order=110,
    needs="families",
    answer=_answer,
    figures=_figures,
    height=460,
)
