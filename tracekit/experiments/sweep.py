"""Run a sweep: measure the missing cells, each by collecting a run in a new process.

The label of a run contains its cell. If the process is killed between storing a run and recording it, the
next call finds the run by its label, so nothing is measured twice.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from tracekit import analysis
from tracekit.errors import CollectionError, TracekitError, UnusableInputError
from tracekit.experiments.sweep_folder import Folder
from tracekit.experiments.sweep_model import BatchSearch, Cell, Outcome, Plan, Record, Settings, Values
from tracekit.experiments.sweep_table import write
from tracekit.recording.collect import collect, decide
from tracekit.recording.collector import Progress, Request, is_out_of_memory, silent
from tracekit.runs import compilation
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.runs.text import duration
from tracekit.schema import C
from tracekit.workloads.base import INDUCTOR
from tracekit.workloads.options import WorkloadOptions, list_options

_KILLED = "killed by SIGKILL"  # the kernel's out-of-memory killer sends SIGKILL
_PEAKS = {
    "host_peak_bytes": "host_peak_bytes",
    "allocated_peak_bytes": "device_peak_allocated_bytes",
    "reserved_peak_bytes": "device_peak_reserved_bytes",
    "used_peak_bytes": "memory_used_bytes",
}
_UTILIZATION = "gpu_utilization_pct"
_ALWAYS = ("mode", "level", "resolution", "batch_size")
"""Settings that name a cell even where they are the defaults."""


def why_impossible(settings: Settings, plan: Plan) -> str:
    """Return why the workload rejects a cell; empty if it does not."""
    try:
        decide(_request(settings, plan))
    except UnusableInputError as error:
        return str(error)
    return ""


def measure_cell(
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
    return record_outcome(settings.key, repeat, lambda: collect(store, request, progress=progress))


def record_outcome(key: str, repeat: int, collect_run: Callable[[], Run]) -> Record:
    """Collect a run and return its values, or why there are none.

    Args:
        key: Key of the cell.
        repeat: Number of the repeat.
        collect_run: Collects the run.
    """
    start, values, reason = time.monotonic(), None, ""
    try:
        values, outcome = of_run(collect_run()), Outcome.OK
    except CollectionError as error:
        no_memory = is_out_of_memory(error.message) or _KILLED in error.message
        outcome = Outcome.OUT_OF_MEMORY if no_memory else Outcome.FAILED
        log = f"; log: {error.log}" if error.log and outcome is Outcome.FAILED else ""
        reason = shorten_out_of_memory(error.message) + log
    except TracekitError as error:
        impossible = isinstance(error, UnusableInputError)
        outcome, reason = Outcome.IMPOSSIBLE if impossible else Outcome.FAILED, str(error)
    except OSError:  # a full disk would fail every cell
        raise
    except Exception as error:
        outcome, reason = Outcome.FAILED, f"the collector failed: {type(error).__name__}: {error}"
    seconds = round(time.monotonic() - start, 3)
    return Record(key=key, repeat=repeat, outcome=outcome, reason=reason, values=values, seconds=seconds)


def _request(settings: Settings, plan: Plan) -> Request:
    planned = {name: getattr(plan, name) for name in ("collector", "steps", "warmup", "seed")}
    return Request(**asdict(settings), **planned, no_profile=not plan.profile)


def shorten_out_of_memory(message: str) -> str:
    """Shorten an out-of-memory message of torch's allocator."""
    match = re.search(r"^(.*ran out of memory): .*tried to allocate (\d+) bytes", message)
    return f"{match[1]}: requested {int(match[2]):,} bytes at once" if match else message


def of_run(run: Run) -> Values:
    """Return the values of a run for a sweep."""
    meta, workload, code = run.meta, run.meta.workload or {}, compilation.read(run.meta)
    has_device = run.rows("device_intervals")
    return Values(
        run_id=run.id,
        device=str(workload.get("device", "")),
        threads=workload.get("threads"),
        step_ns=tuple(meta.timings.step_ns) if meta.timings else (),
        gpu=meta.fingerprint.get("gpu"),
        compile_ns=code.compile_ns if code else None,
        guards=code.guards if code else None,
        graph_breaks=code.graph_breaks if code else None,
        **_counters(run),
        **(shares(analysis.analyze(run, "gpu_breakdown").tables) if has_device else {}),
    )


def _counters(run: Run) -> dict[str, Any]:
    """Return peaks of the device with most, and the utilization of the busiest device."""
    wanted = pc.field(C.METRIC).isin([*_PEAKS.values(), _UTILIZATION])
    samples: dict[str, dict[Any, list[float]]] = {}
    for row in run.arrow("counters", columns=[C.METRIC, C.DEVICE, C.VALUE], where=wanted).to_pylist():
        samples.setdefault(row[C.METRIC], {}).setdefault(row[C.DEVICE], []).append(row[C.VALUE])
    values: dict[str, Any] = {
        name: int(max(map(max, samples[metric].values())))
        for name, metric in _PEAKS.items()
        if metric in samples
    }
    if _UTILIZATION in samples:
        percents_by_device = samples[_UTILIZATION].values()
        values["utilization"] = max(sum(percents) / len(percents) for percents in percents_by_device) / 100
    return values


def shares(tables: Mapping[str, pd.DataFrame]) -> dict[str, int]:
    """Return window, active, movement and idle time of the busiest device by `gpu_breakdown`, ns, if any."""
    table = tables.get("profiled_steps", tables.get("whole"))
    if table is None or table.empty:
        return {}
    busiest = table.sort_values("active_ns").to_dict("records")[-1]
    return {name: int(busiest[name]) for name in ("window_ns", "active_ns", "movement_ns", "idle_ns")}


Done = dict[tuple[str, int], Record]


def finish(
    store: Store,
    folder: Folder,
    *,
    progress: Progress = silent,
    note: Callable[[str], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
) -> Done:
    """Measure what is missing; return all records.

    Args:
        store: Store of the runs.
        folder: The sweep.
        progress: Called during a measurement.
        note: Receives a line before each measurement.
        warn: Receives a line for each cell that was skipped or failed.

    Raises:
        UnusableInputError: Another process measures the same sweep.
    """
    plan = folder.plan
    with folder.lock():
        done = folder.records()
        cells: Iterable[Cell] = plan.cells
        if plan.search:  # each cell depends on the result of the one before
            cells = (cell for first in plan.cells for cell in BatchSearch(first, plan, done).next_cells())
        stored = {run.header.label or "": run.path.name for run in store.readable()}
        for cell in cells:
            for repeat in range(plan.repeats):
                if (cell.key, repeat) in done:
                    continue
                label = folder.label(cell.key, repeat)
                if label in stored:  # by a call that was killed before it recorded the run
                    values = of_run(store.resolve(stored[label]))
                    record = Record(key=cell.key, repeat=repeat, outcome=Outcome.OK, values=values)
                elif skipped := _skip(cell, repeat, plan, done):
                    record = skipped
                else:
                    note(_describe_place(plan, cell, done))
                    record = measure_cell(
                        store, plan, cell.settings, repeat=repeat, label=label, progress=progress
                    )
                folder.add(record)
                done[cell.key, repeat] = record
                write(folder, done)
                if record.values is None:
                    warn(f"  {describe_cell(cell)}: {record.outcome}: {record.reason}")
        write(folder, done)
    return done


def _skip(cell: Cell, repeat: int, plan: Plan, done: Done) -> Record | None:
    """Return the record of a cell that need not be measured; None if it must be."""
    outcome = Outcome.SKIPPED
    reason = too_large(cell.settings, plan, done)
    if not reason and repeat and (first := done[cell.key, 0]).outcome is not Outcome.OK:
        reason = f"its first measurement: {first.reason}"
    if not reason:
        outcome, reason = Outcome.IMPOSSIBLE, why_impossible(cell.settings, plan)
    return Record(key=cell.key, repeat=repeat, outcome=outcome, reason=reason) if reason else None


def too_large(settings: Settings, plan: Plan, done: Done) -> str:
    """Return why a cell cannot fit: a cell of its series, not larger in any size, ran out of memory.

    Args:
        settings: Settings of the cell.
        plan: Plan of the sweep.
        done: Records of the sweep.
    """
    for cell in plan.cells:
        other, record = cell.settings, done.get((cell.key, 0))
        smaller = other.batch_size <= settings.batch_size and other.resolution <= settings.resolution
        in_series = other.line == settings.line and other != settings
        if record and record.outcome is Outcome.OUT_OF_MEMORY and smaller and in_series:
            return f"batch size {other.batch_size} at resolution {other.resolution} ran out of memory"
    return ""


def _describe_place(plan: Plan, cell: Cell, done: Done) -> str:
    """Return the number of the next measurement, its cell, and the time left; unknown in a search."""
    text = f"{len(done) + 1}"
    if plan.search:
        return f"{text}: {describe_cell(cell)}"
    keys = {planned.key for planned in plan.cells} | {key for key, _ in done} | {cell.key}
    total = len(keys) * plan.repeats
    seconds = [record.seconds for record in done.values() if record.seconds]
    left = f", about {duration(fmean(seconds) * (total - len(done)))} left" if seconds else ""
    return f"{text} of {total}: {describe_cell(cell)}{left}"


def describe_cell(cell: Cell) -> str:
    """Describe a cell by its settings that differ from the defaults."""
    defaults = {
        **{option.name: option.default for option in list_options(WorkloadOptions)},
        "backend": INDUCTOR,
    }
    others = [
        f"{name} {value}".replace("_", " ")
        for name, value in asdict(cell.settings).items()
        if name not in {*_ALWAYS, "workload"} and value not in {None, False, defaults.get(name)}
    ]
    sizes = f"resolution {cell.settings.resolution}, batch {cell.settings.batch_size}"
    return ", ".join([f"{cell.settings.workload} {cell.settings.mode} {cell.settings.level}", sizes, *others])
