"""Engine of sweeps: measures missing cells, and skips cells that cannot fit into memory.

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
    """Progress before a measurement.

    Attributes:
        number: Number of the next measurement, from 1.
        total: Number of measurements; None in a search.
        left_seconds: Estimated time left; None before the first measurement, and in a search.
    """

    cell: Cell
    repeat: int
    number: int
    total: int | None
    left_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """Callbacks for progress.

    Attributes:
        before: Called before each measurement.
        after: Called after each measurement, and for each skipped one.
        progress: Called during a measurement.
    """

    before: Callable[[Moment], None] = lambda _: None
    after: Callable[[Cell, Record], None] = lambda _, __: None
    progress: Progress = silent


def finish(store: Store, folder: Folder, *, watcher: Watcher) -> Done:
    """Measure what is missing; return all records.

    Args:
        store: Store of the runs.
        folder: The sweep.
        watcher: Callbacks for progress.

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
    """Return the runs of this sweep by label."""
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
    """Return why a cell cannot fit: a cell of its series, not larger in any size, ran out of memory."""
    for cell in plan.cells:
        other = cell.settings
        record = done.get((cell.key, 0))
        if (
            record
            and record.outcome is Outcome.OUT_OF_MEMORY
            and other != settings
            and _within(other, settings)
        ):
            return f"batch size {other.batch_size} at resolution {other.resolution} ran out of memory"
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
