"""Reading exports of Nsight Systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contenders.exports import contenders
from benchmarks.parts import bases
from benchmarks.parts.part import Case, Part, about

if TYPE_CHECKING:
    from benchmarks.inputs.exports import Export
    from benchmarks.parts.plan import Plan


def measured(plan: Plan) -> Part:
    """Measure everybody who reads an export."""
    return Part(
        name="nsys",
        title="Reading an export of Nsight Systems",
        text=about("nsys"),
        inside=("read_s",),
        unit="rows",
        cases=tuple(_case(plan, export) for export in bases.large_exports(plan)),
    )


def _case(plan: Plan, export: Export) -> Case:
    return plan.case(
        f"{export.base.name}, SQLite", export.size, export.events, contenders(export, plan.peers)
    )
