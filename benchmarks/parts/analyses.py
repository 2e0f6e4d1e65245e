"""Analyzing imported runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contenders.runs import contenders
from benchmarks.inputs import runs
from benchmarks.parts import bases
from benchmarks.parts.part import Part, about

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.parts.part import Case
    from benchmarks.parts.plan import Plan


def cases(plan: Plan) -> Iterator[Case]:
    """Every analysis."""
    for trace in bases.large(plan):
        run = runs.imported(trace)
        yield plan.case(trace.base.name, run.size, run.events, contenders(run, plan.only))


PART = Part(
    name="analyses",
    title="Analyzing a run",
    text=about("analyses"),
    inside=("analyze_s", "analyze_cpu_s"),
    unit="intervals",
    measure=cases,
)
