"""Which small files a plan amplifies, and until which size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.inputs import bases
from benchmarks.inputs.bases import Base

if TYPE_CHECKING:
    from benchmarks.parts.plan import Plan

RECORDED = Path(__file__).parents[2] / "samples" / "recorded" / "resnet50-train-cpu" / "trace.json.gz"
RECORDED_MB = 100
"""The recorded trace, of a CPU alone, is amplified up to here: beyond it a simulated one says the same."""


def main(plan: Plan) -> Base:
    """The trace on which everything is measured."""
    if plan.source:
        return Base(name=plan.source.name.partition(".")[0], path=plan.source)
    return Base(name="simulated", path=bases.trace(plan.inputs))


def recorded(plan: Plan) -> tuple[Base, tuple[float, ...]]:
    """A recorded trace, and the sizes at which it is measured too; none where another one was named."""
    sizes = () if plan.source else tuple(size for size in plan.sizes if size <= RECORDED_MB)
    return Base(name="recorded", path=RECORDED, on_device=False), sizes


def export(plan: Plan) -> Base:
    """The export on which everything is measured."""
    if plan.export:
        return Base(name=plan.export.name.partition(".")[0], path=plan.export)
    return Base(name="simulated", path=bases.export(plan.inputs))
