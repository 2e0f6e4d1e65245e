"""Asking the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contenders.dashboard import contenders
from benchmarks.inputs import runs
from benchmarks.parts import bases
from benchmarks.parts.part import Part, about

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.parts.part import Case
    from benchmarks.parts.plan import Plan


def cases(plan: Plan) -> Iterator[Case]:
    """The dashboard's server, its timeline, and a browser."""
    for trace in bases.large(plan):
        run = runs.imported(trace)
        yield plan.case(trace.base.name, run.size, run.events, contenders(run, plan.only))


PART = Part(
    name="dashboard",
    title="Asking the dashboard",
    text=about("dashboard"),
    inside=(),
    unit="intervals",
    measure=cases,
)
