"""Diagnostics of decoding: what was repaired, dropped or left out, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.ingest.limits import LISTED
from tracekit.meta import Diagnostic, Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tracekit.ingest.kineto.batches import Tally
    from tracekit.ingest.kineto.toplevel import TopLevel

_LONGEST = 60


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
        listed = listing(f"{category} ({count})" for category, count in sorted(tally.ignored.items()))
        yield Diagnostic(Level.INFO, "ignored_categories", f"{name}: categories that are not read: {listed}")


def listing(names: Iterable[str]) -> str:
    """The first of some names from a file, each cut where it is long, and how many more there are.

    Example:
        >>> listing(str(number) for number in range(12))
        '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more'
    """
    shown = [name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..." for name in names]
    more = f" and {len(shown) - LISTED} more" if len(shown) > LISTED else ""
    return ", ".join(shown[:LISTED]) + more
