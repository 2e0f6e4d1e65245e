"""Asking the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contenders.dashboard import contenders
from benchmarks.inputs import runs
from benchmarks.parts import bases
from benchmarks.parts.part import Case, Part, about

if TYPE_CHECKING:
    from benchmarks.inputs.traces import Trace
    from benchmarks.parts.plan import Plan


def measured(plan: Plan) -> Part:
    """Measure what the dashboard's server and its timeline take."""
    return Part(
        name="dashboard",
        title="Asking the dashboard",
        text=about("dashboard"),
        inside=(),
        unit="intervals",
        cases=tuple(_case(plan, trace) for trace in bases.large(plan)),
    )


def _case(plan: Plan, trace: Trace) -> Case:
    run = runs.imported(trace)
    return plan.case(trace.base.name, run.size, run.events, contenders(run, plan.only))
