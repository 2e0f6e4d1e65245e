"""Diagnostics of decoding: what was repaired, dropped or left out, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.meta import Diagnostic, Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.kineto.batches import Tally
    from tracekit.ingest.kineto.toplevel import TopLevel


def of_events(name: str, top: TopLevel, tally: Tally, truncated: str) -> Iterator[Diagnostic]:
    """What decoding the events of the file called `name` noticed."""
    if top.simulated:
        yield Diagnostic(Level.INFO, "simulated", f"{name}: written by a simulator, not recorded")
    if truncated:
        yield Diagnostic(Level.WARN, "truncated", f"{name}: {truncated}; the events before that were kept")
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
