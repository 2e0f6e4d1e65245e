"""Reading Kineto traces."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from benchmarks.contenders.traces import contenders
from benchmarks.inputs.pieces import pieces
from benchmarks.inputs.traces import gzipped
from benchmarks.parts import bases
from benchmarks.parts.part import Part, about

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.parts.part import Case
    from benchmarks.parts.plan import Plan


def cases(plan: Plan) -> Iterator[Case]:
    """Everybody who reads a trace, plain and gzipped."""
    for plain in chain(bases.large(plan), bases.recorded(plan)):
        cut = pieces(plain)
        for trace in (plain, gzipped(plain)):
            who = contenders(trace, plan.peers, cut)
            yield plan.case(f"{trace.base.name}, {trace.form}", trace.size, trace.events, who)


PART = Part(
    name="ingest",
    title="Reading a Kineto trace",
    text=about("ingest"),
    inside=("read_s", "parse_s", "load_s", "breakdown_s"),
    unit="events",
    measure=cases,
)
