"""Diagnostics of linking and of combining ranks."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tracekit.ingest import ranks, sources
from tracekit.runs.meta import Diagnostic, Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracekit.ingest.executor import Linked, Size
    from tracekit.ingest.kineto.events import TopLevel
    from tracekit.ingest.nesting import Trace
    from tracekit.ingest.sources import Source

_LISTED = 8


def of_links(trace: Trace, linked: Linked) -> Iterator[Diagnostic]:
    """Return the diagnostics of linking a trace."""
    name = sources.name(trace.path)
    if linked.device == 0 and (linked.launches or trace.top.devices):
        said = trace.no_device_work()
        yield Diagnostic(
            Level.ERROR if said else Level.WARN,
            "no_device_events",
            f"{name}: a machine with a GPU, but no device activity was recorded; this is not an idle GPU: "
            + (
                said
                or "check the profiler's permission (tracekit doctor) and that it recorded CUDA activities"
            ),
        )
    if linked.unlinked:
        yield Diagnostic(
            Level.INFO,
            "unlinked",
            f"{name}: {linked.unlinked} of {linked.device} device intervals have no launching call",
        )


def of_ranks(traces: Sequence[Source], tops: Sequence[TopLevel], sizes: list[Size]) -> Iterator[Diagnostic]:
    """Return the diagnostics of combining ranks."""
    assumed = [source for source in traces if source.assumed]
    if assumed:
        listed = ", ".join(f"{sources.name(source.path)} = {source.rank}" for source in assumed)
        yield Diagnostic(
            Level.WARN, "rank_assumed", f"the traces do not tell their rank; counted by name: {listed}"
        )
    yield from _missing({source.rank or 0 for source in traces}, max(map(ranks.world_size, tops)))
    if max(size.first_ns for size in sizes) > min(size.last_ns for size in sizes):
        yield Diagnostic(
            Level.WARN, "ranks_apart", "some ranks' traces do not overlap in time: are they of one job?"
        )


def _missing(present: set[int], world_size: int) -> Iterator[Diagnostic]:
    """Return a diagnostic for missing ranks: information if one rank was imported, else a warning."""
    count = world_size - len(present)
    if count <= 0:
        return
    absent = (rank for rank in range(world_size) if rank not in present)
    listed = ", ".join(map(str, islice(absent, _LISTED))) + ", ..." * (count > _LISTED)
    yield Diagnostic(
        Level.WARN if len(present) > 1 else Level.INFO,
        "missing_ranks",
        f"{len(present)} of the job's {world_size} ranks {'is' if len(present) == 1 else 'are'} here; "
        f"missing: {listed}",
    )
