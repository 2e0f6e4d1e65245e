"""Kernels: which take the device's time, how few make up most of it, and whether tensor cores work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dash import html

from tracekit.schema import C

from ..answers.answer_page import answer_page
from ..answers.reading import answer, chosen_of, largest, named, short, some, switch
from ..figures.pareto import cumulative, grouped
from ..frame.devices import present
from ..page import Section
from ..parts.charts import chart

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ..answers.reading import Reading
    from ..context import Context

SHOWN = 15
_BY = [("families", "By family"), ("names", "By full name"), ("by_op", "By launching op")]
_LABEL = {"families": "family", "names": C.NAME, "by_op": "op"}
_MANY = {"families": "families", "names": "names", "by_op": "ops"}
_CORES = {True: "tensor cores by name", False: "no tensor cores by name"}


def _answer(reading: Reading) -> list[Component]:
    families = reading.frame("families")
    if families.empty:
        return []
    first = largest(families)
    told = families["tensor_cores"].astype(bool)
    return [
        answer(
            named(first["family"]),
            " takes the most device time: ",
            some(first["sum_ns"], "ns"),
            " in ",
            some(first["count"], "count"),
            " launches, ",
            some(first["share"], "share"),
            " of the time of all kernels. ",
            some(float(families.loc[told, "share"].sum()), "share"),
            " of that time is in kernels whose names say that they use tensor cores.",
        )
    ]


def _figures(reading: Reading) -> list[Component]:
    context, by = reading.context, chosen_of(reading.context, "by", _BY)
    frame = reading.frame(by).sort_values("sum_ns", ascending=False, ignore_index=True)
    if frame.empty:
        return []
    first, label = frame.head(SHOWN), _LABEL[by]
    names = [str(name) or "(no op recorded)" for name in frame[label]]
    told = "tensor_cores" in frame.columns
    which = f"The {len(first)} with the most time, of {len(frame):,}" if len(frame) > SHOWN else "Σ of each"
    groups = [_CORES[bool(each)] if told else "kernels" for each in first.get("tensor_cores", first[label])]
    bars = grouped(names[:SHOWN], first["sum_ns"].tolist(), "ns", groups=groups, title="Σ of durations")
    curve = cumulative(frame["share"].fillna(0).tolist(), names, what=_MANY[by])
    return [
        switch(context, "by", "Kernels by", _BY),
        html.Div(
            [
                chart(
                    context,
                    "top",
                    bars,
                    caption=f"{which}{_together(context)}.",
                ),
                chart(
                    context,
                    "cumulative",
                    curve,
                    caption="How few make up how much of the time of all kernels.",
                ),
            ],
            className="tk-pair",
        ),
        *_late(reading),
    ]


def _together(context: Context) -> str:
    """Whose times are summed, where that is more than one device's."""
    return "; all ranks and devices" if max(map(len, present(context.run))) > 1 else ""


def _late(reading: Reading) -> list[Component]:
    late = reading.frame("first_launches")
    if late.empty:
        return []
    wanted = (C.NAME, "first_ns", "later_median_ns", "excess_ns")
    columns = reading.columns("first_launches", *wanted)
    title = "First launches that took far longer than the later ones"
    return [short(reading.context, late, columns, title=title, row=C.ROW_ID, limit=8)]


PAGE = answer_page("kernels", section=Section.DEVICE, order=110, answer=_answer, figures=_figures, height=460)
