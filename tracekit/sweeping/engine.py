"""Measures what a sweep misses, cell by cell, and skips what cannot fit.

A run carries its cell in its label. A process that is killed between storing a run and noting it leaves a run
that the next call takes for what it is: nothing is measured twice and nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.collecting import silent
from tracekit.sweeping import measure, search
from tracekit.sweeping.model import Outcome, Record
from tracekit.sweeping.table import write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.collecting import Progress
    from tracekit.store import Store
    from tracekit.sweeping.folder import Folder
    from tracekit.sweeping.model import Cell, Plan, Settings

Done = dict[tuple[str, int], Record]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Where a sweep is before it measures.

    Attributes:
        number: Which measurement comes, from 1.
        total: How many there are; None in a search, which ends where it ends.
        left_seconds: About how long it takes from here; None before anything was measured, and in a search.
    """

    cell: Cell
    repeat: int
    number: int
    total: int | None
    left_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """Told how a sweep goes.

    Attributes:
        before: Before each measurement.
        after: After each, and after each that was not made.
        progress: Within a measurement.
    """

    before: Callable[[Moment], None] = lambda _: None
    after: Callable[[Cell, Record], None] = lambda _, __: None
    progress: Progress = silent


def finish(store: Store, folder: Folder, *, watcher: Watcher) -> Done:
    """Measure what is missing; returns all records.

    Args:
        store: Where runs go.
        folder: The sweep.
        watcher: Told how it goes.

    Raises:
        UnusableInputError: Another process measures the same sweep.
    """
    with folder.alone():
        done = folder.records()
        orphans = _labelled(store, folder)
        for cell in _cells(folder.plan, done):
            for repeat in range(folder.plan.repeats):
                if (cell.key, repeat) not in done:
                    record = _one(store, folder, cell, repeat, done, orphans, watcher)
                    folder.keep(record)
                    done[cell.key, repeat] = record
                    write(folder, done)
                    watcher.after(cell, record)
        write(folder, done)
    return done


def _cells(plan: Plan, done: Done) -> Iterator[Cell]:
    if not plan.search:
        yield from plan.cells
        return
    for first in plan.cells:
        yield from search.doubling(first, plan, done)


def _labelled(store: Store, folder: Folder) -> dict[str, str]:
    """Runs of this sweep by their label."""
    known = [(run.meta.label or "", run.path.name) for run in store.readable()]
    return {label: name for label, name in known if label.startswith(f"{folder.id}/")}


def _one(
    store: Store,
    folder: Folder,
    cell: Cell,
    repeat: int,
    done: Done,
    orphans: dict[str, str],
    watcher: Watcher,
) -> Record:
    plan, label = folder.plan, folder.label(cell.key, repeat)
    if label in orphans:
        values = measure.of_run(store.resolve(orphans[label]))
        return Record(key=cell.key, repeat=repeat, outcome=Outcome.OK, values=values)
    reason = too_large(cell.settings, plan, done)
    if reason:
        return Record(key=cell.key, repeat=repeat, outcome=Outcome.SKIPPED, reason=reason)
    if repeat and (first := done[cell.key, 0]).outcome is not Outcome.OK:
        said = f"its first measurement: {first.reason}"
        return Record(key=cell.key, repeat=repeat, outcome=Outcome.SKIPPED, reason=said)
    if reason := measure.possible(cell.settings, plan):
        return Record(key=cell.key, repeat=repeat, outcome=Outcome.IMPOSSIBLE, reason=reason)
    watcher.before(_moment(plan, cell, repeat, done))
    return measure.measured(store, plan, cell.settings, repeat=repeat, label=label, progress=watcher.progress)


def too_large(settings: Settings, plan: Plan, done: Done) -> str:
    """Why a cell cannot fit: one of its line that is smaller in no size ran out of memory; else empty."""
    for cell in plan.cells:
        other = cell.settings
        record = done.get((cell.key, 0))
        if (
            record
            and record.outcome is Outcome.OUT_OF_MEMORY
            and other != settings
            and _within(other, settings)
        ):
            return f"batch {other.batch_size} at resolution {other.resolution} ran out of memory"
    return ""


def _within(small: Settings, large: Settings) -> bool:
    sizes = small.batch_size <= large.batch_size and small.resolution <= large.resolution
    return sizes and small.line == large.line


def _moment(plan: Plan, cell: Cell, repeat: int, done: Done) -> Moment:
    if plan.search:
        return Moment(cell=cell, repeat=repeat, number=len(done) + 1, total=None, left_seconds=None)
    known = {one.key for one in plan.cells} | {key for key, _ in done} | {cell.key}
    total = len(known) * plan.repeats
    taken = [one.seconds for one in done.values() if one.seconds]
    left = sum(taken) / len(taken) * (total - len(done)) if taken else None
    return Moment(cell=cell, repeat=repeat, number=len(done) + 1, total=total, left_seconds=left)
