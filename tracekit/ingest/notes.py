"""Diagnostics of an import: what was repaired, dropped, missing or assumed, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.meta import Diagnostic, Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.jobs import Source
    from tracekit.ingest.kineto.reader import Trace
    from tracekit.ingest.process import Linked, Size


def of_trace(trace: Trace) -> Iterator[Diagnostic]:
    """What decoding one trace noticed."""
    name, tally = trace.path.name, trace.tally
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
    name = trace.path.name
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


def of_ranks(sources: tuple[Source, ...], sizes: list[Size]) -> Iterator[Diagnostic]:
    """What putting several ranks together noticed."""
    assumed = [source for source in sources if source.assumed]
    if assumed:
        listed = ", ".join(f"{source.path.name} = {source.rank}" for source in assumed)
        yield Diagnostic(
            Level.WARN, "rank_assumed", f"the traces do not tell their rank; counted by name: {listed}"
        )
    if max(size.first_ns for size in sizes) > min(size.last_ns for size in sizes):
        yield Diagnostic(
            Level.WARN, "ranks_apart", "some ranks' traces do not overlap in time: are they of one job?"
        )
