"""Reading Kineto traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contenders.traces import contenders
from benchmarks.inputs import traces
from benchmarks.inputs.pieces import pieces
from benchmarks.parts import bases
from benchmarks.parts.part import Case, Part, about

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.inputs.bases import Base
    from benchmarks.parts.plan import Plan


def measured(plan: Plan) -> Part:
    """Measure everybody who reads a trace, plain and gzipped."""
    base = bases.main(plan)
    more, sizes = bases.recorded(plan)
    cases = [*_cases(plan, base, plan.sizes), *_cases(plan, more, sizes)]
    return Part(
        name="ingest",
        title="Reading a Kineto trace",
        text=about("ingest"),
        inside=("read_s", "parse_s", "load_s", "breakdown_s"),
        unit="events",
        cases=tuple(cases),
    )


def _cases(plan: Plan, base: Base, sizes: tuple[float, ...]) -> Iterator[Case]:
    for size in sizes:
        plan.tell(f"making a trace of {size:g} MB from {base.path.name}")
        plain = traces.plain(plan.inputs, base, size)
        cut = pieces(plain)
        for trace in (plain, traces.gzipped(plain)):
            who = contenders(trace, plan.peers, cut)
            yield plan.case(f"{base.name}, {trace.form}", trace.size, trace.events, who)
