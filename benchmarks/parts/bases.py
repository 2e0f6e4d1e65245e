"""On which files a plan measures, and until which size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.inputs import bases, exports, traces
from benchmarks.inputs.bases import Base

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.inputs.exports import Export
    from benchmarks.inputs.traces import Trace
    from benchmarks.parts.plan import Plan

RECORDED = Path(__file__).parents[2] / "samples" / "recorded" / "resnet50-train-cpu" / "trace.json.gz"
RECORDED_MB = 100
"""The recorded trace, of a CPU alone, is amplified up to here: beyond it a simulated one says the same."""


def large(plan: Plan) -> Iterator[Trace]:
    """The plain traces on which everything is measured, made as they are asked for."""
    if plan.source and plan.as_it_is:
        yield traces.given(plan.inputs, _base(plan.source))
        return
    base = _base(plan.source) if plan.source else Base(name="simulated", path=bases.trace(plan.inputs))
    yield from _amplified(plan, base, plan.sizes)


def recorded(plan: Plan) -> Iterator[Trace]:
    """Plain traces of another kind, besides; none where a trace was named."""
    if not plan.source:
        base = Base(name="recorded", path=RECORDED, on_device=False)
        yield from _amplified(plan, base, tuple(size for size in plan.sizes if size <= RECORDED_MB))


def large_exports(plan: Plan) -> Iterator[Export]:
    """The exports on which everything is measured."""
    if plan.export and plan.as_it_is:
        yield exports.given(_base(plan.export))
        return
    base = _base(plan.export) if plan.export else Base(name="simulated", path=bases.export(plan.inputs))
    for size in plan.sizes:
        plan.tell(f"making an export of {size:g} MB from {base.path.name}")
        yield exports.export(plan.inputs, base, size)


def _amplified(plan: Plan, base: Base, sizes: tuple[float, ...]) -> Iterator[Trace]:
    for size in sizes:
        plan.tell(f"making a trace of {size:g} MB from {base.path.name}")
        yield traces.plain(plan.inputs, base, size)


def _base(path: Path) -> Base:
    return Base(name=path.name.partition(".")[0], path=path)
