"""Run a sweep: measure the missing cells, each by collecting a run in a new process.

The label of a run contains its cell. If the process is killed between storing a run and recording it, the
next call finds the run by its label, so nothing is measured twice.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from tracekit import analysis
from tracekit.errors import CollectionError, TracekitError, UnusableInputError
from tracekit.experiments import sweep_model
from tracekit.experiments.sweep_folder import Folder as Folder
from tracekit.experiments.sweep_folder import find as find
from tracekit.experiments.sweep_folder import listed as listed
from tracekit.experiments.sweep_model import Cell as Cell
from tracekit.experiments.sweep_model import Outcome, Settings, Values
from tracekit.experiments.sweep_model import Plan as Plan
from tracekit.experiments.sweep_model import Record as Record
from tracekit.experiments.sweep_table import Row as Row
from tracekit.experiments.sweep_table import rows as rows
from tracekit.experiments.sweep_table import write
from tracekit.recording.collect import collect, decide
from tracekit.recording.collector import Progress, Request, is_out_of_memory, silent
from tracekit.runs import compilation
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.schema import C

if TYPE_CHECKING:
    import pandas as pd


_KILLED = "killed by SIGKILL"
"""The kernel's out-of-memory killer sends SIGKILL."""
_PEAKS = {
    "host_peak_bytes": "host_peak_bytes",
    "allocated_peak_bytes": "device_peak_allocated_bytes",
    "reserved_peak_bytes": "device_peak_reserved_bytes",
    "used_peak_bytes": "memory_used_bytes",
}
_UTILIZATION = "gpu_utilization_pct"


def possible(settings: Settings, plan: Plan) -> str:
    """Return why the workload rejects a cell; empty if it does not."""
    try:
        decide(_request(settings, plan))
    except UnusableInputError as error:
        return str(error)
    return ""


def measured(
    store: Store, plan: Plan, settings: Settings, *, repeat: int, label: str, progress: Progress
) -> Record:
    """Collect a cell once; failures of the program are recorded, not raised.

    Args:
        store: Store of the run.
        plan: Steps, seed and collector.
        settings: Settings of the cell.
        repeat: Number of the repeat.
        label: Label of the run.
        progress: Callback for progress.
    """
    request = replace(_request(settings, plan), label=label)
    return _timed(settings.key, repeat, lambda: collect(store, request, progress=progress))


def _timed(key: str, repeat: int, collected: Callable[[], Run]) -> Record:
    start = time.monotonic()
    try:
        values = of_run(collected())
        found = Record(key=key, repeat=repeat, outcome=Outcome.OK, values=values)
    except CollectionError as error:
        no_memory = is_out_of_memory(error.message) or _KILLED in error.message
        outcome = Outcome.OUT_OF_MEMORY if no_memory else Outcome.FAILED
        found = Record(key=key, repeat=repeat, outcome=outcome, reason=_reason(error, outcome))
    except UnusableInputError as error:
        found = Record(key=key, repeat=repeat, outcome=Outcome.IMPOSSIBLE, reason=str(error))
    except TracekitError as error:
        found = Record(key=key, repeat=repeat, outcome=Outcome.FAILED, reason=str(error))
    except OSError:  # a full disk would fail every cell
        raise
    except Exception as error:
        reason = f"the collector failed: {type(error).__name__}: {error}"
        found = Record(key=key, repeat=repeat, outcome=Outcome.FAILED, reason=reason)
    return replace(found, seconds=round(time.monotonic() - start, 3))


def _reason(error: TracekitError, outcome: Outcome) -> str:
    log = f"; log: {error.log}" if error.log and outcome is Outcome.FAILED else ""
    return briefly(error.message) + log


def _request(settings: Settings, plan: Plan) -> Request:
    planned = {name: getattr(plan, name) for name in ("collector", "steps", "warmup", "seed")}
    return Request(**asdict(settings), **planned, no_profile=not plan.profile)


def briefly(message: str) -> str:
    """Shorten an out-of-memory message of torch's allocator.

    Example:
        >>> briefly("w ran out of memory: [enforce fail] x: you tried to allocate 4294967296 bytes. Error 12")
        'w ran out of memory: requested 4,294,967,296 bytes at once'
    """
    match = re.search(r"^(.*ran out of memory): .*tried to allocate (\d+) bytes", message)
    return f"{match[1]}: requested {int(match[2]):,} bytes at once" if match else message


def of_run(run: Run) -> Values:
    """Return the values of a run for a sweep."""
    meta, known = run.meta, run.meta.workload or {}
    return Values(
        run_id=run.id,
        device=str(known.get("device", "")),
        threads=known.get("threads"),
        step_ns=tuple(meta.timings.step_ns) if meta.timings else (),
        gpu=meta.fingerprint.get("gpu"),
        **_counters(run),
        **_shares(run),
        **_compiled(run),
    )


def _compiled(run: Run) -> dict[str, int]:
    found = compilation.read(run.meta)
    if found is None:
        return {}
    return {"compile_ns": found.compile_ns, "guards": found.guards, "graph_breaks": found.graph_breaks}


def _counters(run: Run) -> dict[str, Any]:
    wanted = pc.field(C.METRIC).isin([*_PEAKS.values(), _UTILIZATION])
    found: dict[str, dict[Any, list[float]]] = {}
    for row in run.arrow("counters", columns=[C.METRIC, C.DEVICE, C.VALUE], where=wanted).to_pylist():
        found.setdefault(row[C.METRIC], {}).setdefault(row[C.DEVICE], []).append(row[C.VALUE])
    values: dict[str, Any] = {
        name: int(max(max(one) for one in found[metric].values()))
        for name, metric in _PEAKS.items()
        if metric in found
    }
    if _UTILIZATION in found:
        values["utilization"] = max(sum(one) / len(one) for one in found[_UTILIZATION].values()) / 100
    return values


def _shares(run: Run) -> dict[str, int]:
    if not run.rows("device_intervals"):
        return {}
    return shares(analysis.analyze(run, "gpu_breakdown").tables)


def shares(tables: Mapping[str, pd.DataFrame]) -> dict[str, int]:
    """Return window, active, movement and idle time, in ns, of the busiest device; empty without a device.

    Args:
        tables: Tables of `gpu_breakdown`.
    """
    table = tables.get("profiled_steps", tables.get("whole"))
    if table is None or table.empty:
        return {}
    busiest = table.sort_values("active_ns").to_dict("records")[-1]
    return {name: int(busiest[name]) for name in ("window_ns", "active_ns", "movement_ns", "idle_ns")}


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
        yield from sweep_model.doubling(first, plan, done)


def _labelled(store: Store, folder: Folder) -> dict[str, str]:
    """Return the runs of this sweep by label."""
    known = [(run.header.label or "", run.path.name) for run in store.readable()]
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
        values = of_run(store.resolve(orphans[label]))
        return Record(key=cell.key, repeat=repeat, outcome=Outcome.OK, values=values)
    reason = too_large(cell.settings, plan, done)
    if reason:
        return Record(key=cell.key, repeat=repeat, outcome=Outcome.SKIPPED, reason=reason)
    if repeat and (first := done[cell.key, 0]).outcome is not Outcome.OK:
        said = f"its first measurement: {first.reason}"
        return Record(key=cell.key, repeat=repeat, outcome=Outcome.SKIPPED, reason=said)
    if reason := possible(cell.settings, plan):
        return Record(key=cell.key, repeat=repeat, outcome=Outcome.IMPOSSIBLE, reason=reason)
    watcher.before(_moment(plan, cell, repeat, done))
    return measured(store, plan, cell.settings, repeat=repeat, label=label, progress=watcher.progress)


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
