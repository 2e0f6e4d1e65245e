"""Reading exports of Nsight Systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contenders.exports import contenders
from benchmarks.inputs import exports
from benchmarks.parts import bases
from benchmarks.parts.part import Case, Part, about

if TYPE_CHECKING:
    from benchmarks.parts.plan import Plan


def measured(plan: Plan) -> Part:
    """Measure everybody who reads an export."""
    return Part(
        name="nsys",
        title="Reading an export of Nsight Systems",
        text=about("nsys"),
        inside=("read_s",),
        unit="rows",
        cases=tuple(_case(plan, size) for size in plan.sizes),
    )


def _case(plan: Plan, size: float) -> Case:
    base = bases.export(plan)
    plan.tell(f"making an export of {size:g} MB from {base.path.name}")
    made = exports.export(plan.inputs, base, size)
    return plan.case(f"{base.name}, SQLite", made.size, made.events, contenders(made, plan.peers))
