"""Reading exports of Nsight Systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contenders.exports import contenders
from benchmarks.parts import bases
from benchmarks.parts.part import Part, about

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.parts.part import Case
    from benchmarks.parts.plan import Plan


def cases(plan: Plan) -> Iterator[Case]:
    """Everybody who reads an export."""
    for export in bases.large_exports(plan):
        who = contenders(export, plan.peers)
        yield plan.case(f"{export.base.name}, SQLite", export.size, export.events, who)


PART = Part(
    name="nsys",
    title="Reading an export of Nsight Systems",
    text=about("nsys"),
    inside=("read_s",),
    unit="rows",
    measure=cases,
)
