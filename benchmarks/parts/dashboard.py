"""Asking the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contenders.dashboard import contenders
from benchmarks.inputs import runs, traces
from benchmarks.parts import bases
from benchmarks.parts.part import Case, Part, about

if TYPE_CHECKING:
    from benchmarks.parts.plan import Plan


def measured(plan: Plan) -> Part:
    """Measure what the dashboard's server and its timeline take."""
    return Part(
        name="dashboard",
        title="Asking the dashboard",
        text=about("dashboard"),
        inside=(),
        unit="intervals",
        cases=tuple(_case(plan, size) for size in plan.sizes),
    )


def _case(plan: Plan, size: float) -> Case:
    base = bases.main(plan)
    plan.tell(f"importing a trace of {size:g} MB from {base.path.name}")
    run = runs.imported(traces.plain(plan.inputs, base, size))
    return plan.case(base.name, run.size, run.events, contenders(run, plan.only))
