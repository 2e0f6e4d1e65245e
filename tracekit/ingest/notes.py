"""Diagnostics of an import: what was repaired, dropped, missing or assumed, in words."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tracekit.ingest import files, ranks
from tracekit.meta import Diagnostic, Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracekit.ingest.jobs import Source
    from tracekit.ingest.kineto.reader import Trace
    from tracekit.ingest.kineto.toplevel import TopLevel
    from tracekit.ingest.process import Linked, Size

_LISTED = 8


def of_trace(trace: Trace) -> Iterator[Diagnostic]:
    """What decoding one trace noticed."""
    name, tally = files.name(trace.path), trace.tally
    if trace.top.simulated:
        yield Diagnostic(Level.INFO, "simulated", f"{name}: written by a simulator, not recorded")
    if trace.truncated:
        yield Diagnostic(
            Level.WARN, "truncated", f"{name}: {trace.truncated}; the events before that were kept"
        )
    counts = (
        (Level.WARN, "dropped_events", tally.dropped, "could not be read and were dropped"),
        (Level.WARN, "bad_timestamp", tally.bad_time, "had no usable time stamp and were dropped"),
        (Level.WARN, "repaired_events", tally.repaired, "were not valid JSON and were repaired"),
        (
            Level.WARN,
            "bad_duration",
            tally.bad_duration,
            "had a negative, absent or unreadable duration, which was set to 0",
        ),
    )
    for level, code, count, what in counts:
        if count:
            yield Diagnostic(level, code, f"{name}: {count} of {tally.events + tally.dropped} events {what}")
    if tally.ignored:
        listed = ", ".join(f"{category} ({count})" for category, count in sorted(tally.ignored.items()))
        yield Diagnostic(Level.INFO, "ignored_categories", f"{name}: categories that are not read: {listed}")


def of_links(trace: Trace, linked: Linked) -> Iterator[Diagnostic]:
    """What linking one trace noticed."""
    name = files.name(trace.path)
    if linked.device == 0 and (linked.launches or trace.top.devices):
        yield Diagnostic(
            Level.WARN,
            "no_device_events",
            f"{name}: a machine with a GPU, but no device activity was recorded; this is not an idle GPU: "
            "check the profiler's permission (tracekit doctor) and that it recorded CUDA activities",
        )
    if linked.unlinked:
        yield Diagnostic(
            Level.INFO,
            "unlinked",
            f"{name}: {linked.unlinked} of {linked.device} device intervals have no launching call",
        )


def of_ranks(sources: Sequence[Source], tops: Sequence[TopLevel], sizes: list[Size]) -> Iterator[Diagnostic]:
    """What putting several ranks together noticed."""
    assumed = [source for source in sources if source.assumed]
    if assumed:
        listed = ", ".join(f"{files.name(source.path)} = {source.rank}" for source in assumed)
        yield Diagnostic(
            Level.WARN, "rank_assumed", f"the traces do not tell their rank; counted by name: {listed}"
        )
    yield from _missing({source.rank or 0 for source in sources}, max(map(ranks.world_size, tops)))
    if max(size.first_ns for size in sizes) > min(size.last_ns for size in sizes):
        yield Diagnostic(
            Level.WARN, "ranks_apart", "some ranks' traces do not overlap in time: are they of one job?"
        )


def _missing(present: set[int], world_size: int) -> Iterator[Diagnostic]:
    """Ranks that are spoken of and not there; one rank of a larger job is often looked at alone."""
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
