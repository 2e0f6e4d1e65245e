"""Kernels page: kernel time by family, name or op, and use of tensor cores."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from tracekit.schema import C

from ..answers.pages import answer_page
from ..answers.results import PageResults, answer, chosen_of, first_rows, named, some, switch
from ..figures.sweep import cumulative, grouped
from ..frame import present
from ..parts.charts import chart
from ..site import Context, Section

SHOWN = 15
_BY = [("families", "By family"), ("names", "By full name"), ("by_op", "By launching op")]
_LABEL = {"families": "family", "names": C.NAME, "by_op": "op"}
_MANY = {"families": "families", "names": "names", "by_op": "ops"}
_CORES = {True: "tensor cores (by kernel name)", False: "no tensor cores (by kernel name)"}


def _answer(results: PageResults) -> list[Component]:
    families = results.frame("families")
    if families.empty:
        return []
    first = results.largest("families")
    on_tensor_cores = families["tensor_cores"].astype(bool)
    return [
        answer(
            named(first["family"]),
            " takes the most device time: ",
            first.number("sum_ns"),
            " in ",
            first.number("count"),
            " launches, ",
            first.number("share"),
            " of kernel time. ",
            some(float(families.loc[on_tensor_cores, "share"].sum()), "share"),
            " of kernel time is in kernels that use tensor cores, judging by their names.",
        )
    ]


def _figures(results: PageResults) -> list[Component]:
    context, by = results.context, chosen_of(results.context, "by", _BY)
    frame = results.frame(by).sort_values("sum_ns", ascending=False, ignore_index=True)
    if frame.empty:
        return []
    first, label = frame.head(SHOWN), _LABEL[by]
    names = [str(name) or "(no op recorded)" for name in frame[label]]
    has_cores = "tensor_cores" in frame.columns
    which = f"{len(first)} of {len(frame):,} with the most time" if len(frame) > SHOWN else "Kernel time"
    groups = [
        _CORES[bool(each)] if has_cores else "kernels" for each in first.get("tensor_cores", first[label])
    ]
    bars = grouped(names[:SHOWN], first["sum_ns"].tolist(), "ns", groups=groups, title="Σ of durations")
    curve = cumulative(frame["share"].fillna(0).tolist(), names, what=_MANY[by])
    return [
        switch(context, "by", "Kernels by", _BY),
        html.Div(
            [
                chart(context, "top", bars, caption=f"{which}{_together(context)}."),
                chart(context, "cumulative", curve, caption="Cumulative share of kernel time."),
            ],
            className="tk-pair",
        ),
        *_late(results),
    ]


def _together(context: Context) -> str:
    """Name the ranks and devices that are summed, if there are several."""
    return ", summed over all ranks and devices" if max(map(len, present(context.run))) > 1 else ""


def _late(results: PageResults) -> list[Component]:
    late = results.frame("first_launches")
    if late.empty:
        return []
    wanted = (C.NAME, "first_ns", "later_median_ns", "excess_ns")
    columns = results.columns("first_launches", *wanted)
    title = "Slow first launches"
    return [first_rows(results.context, late, columns, title=title, row=C.ROW_ID, limit=8)]


PAGE = answer_page("kernels", section=Section.DEVICE, order=110, answer=_answer, figures=_figures, height=460)
