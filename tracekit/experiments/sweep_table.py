"""Table of a sweep: one row per cell with a summary of its measurements, and its Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from statistics import mean, median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.analysis import Column
from tracekit.experiments.sweep_folder import Folder
from tracekit.experiments.sweep_model import (
    BatchSearch,
    Cell,
    Done,
    Outcome,
    Plan,
    Settings,
    Values,
)
from tracekit.storage import put

NO_GPU = "no GPU"
NOT_PROFILED = "not profiled"
PENDING = "not measured yet"
SETTINGS = tuple(field.name for field in fields(Settings))


@dataclass(frozen=True, kw_only=True)
class Row:
    """Summary of the measurements of a cell, by the names of `COLUMNS`; None if not measured."""

    settings: Settings
    part: str
    outcome: str
    reason: str
    device_reason: str
    n: int
    step_ns: int | None = None
    step_least_ns: int | None = None
    step_most_ns: int | None = None
    samples_per_second: float | None = None
    host_peak_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    used_peak_bytes: int | None = None
    utilization: float | None = None
    active_share: float | None = None
    movement_share: float | None = None
    idle_share: float | None = None
    compile_ns: int | None = None
    guards: int | None = None
    graph_breaks: int | None = None
    ran_on: str | None = None
    gpu: str | None = None
    threads_used: int | None = None
    seconds: float = 0.0
    run_id: str | None = None
    run_ids: tuple[str, ...] = ()  # all runs, in order of measurement
    run_step_ns: tuple[int, ...] = ()  # median step time of each timed run, in that order

    def flat(self) -> dict[str, Any]:
        """Return settings and values by column name."""
        row = asdict(self)
        return {**row.pop("settings"), **row, **{name: list(row[name]) for name in _LISTS}}


_LISTS = {"run_ids": pa.string(), "run_step_ns": pa.int64()}
_TYPES = {"int": pa.int64(), "float": pa.float64(), "str": pa.string(), "bool": pa.bool_()}
COLUMNS = (
    Column("workload", "", "what ran"),
    Column("mode", "", "train or infer"),
    Column("level", "", "execution mode"),
    Column("backend", "", "backend of level compile; none at other levels"),
    Column("dtype", "", "element type"),
    Column("threads", "", "requested intra-op threads; none for torch's default"),
    Column("pin_memory", "", "batches in pinned memory"),
    Column("zero_grad", "", "how gradients are cleared"),
    Column("dataset_shape", "", "data set with the shape of the input"),
    Column("offload", "", "what is offloaded to host memory between uses"),
    Column("size", "", "size preset of the workload"),
    Column("device", "", "requested device"),
    Column("resolution", "", "resolution, as defined by the workload"),
    Column("batch_size", "", "samples per step"),
    Column("part", "", "part of a suite"),
    Column("outcome", "", "ok, out of memory, failed, impossible, skipped or pending"),
    Column("step_ns", "ns", "median of the runs' mean step times, without a profiler"),
    Column("step_least_ns", "ns", "minimum of all step times"),
    Column("step_most_ns", "ns", "maximum of all step times"),
    Column("samples_per_second", "count", "batch size over step time"),
    Column("host_peak_bytes", "bytes", "peak resident memory of the process, the largest of the runs"),
    Column("allocated_peak_bytes", "bytes", "peak allocated memory of the device with most"),
    Column("reserved_peak_bytes", "bytes", "peak reserved memory"),
    Column("used_peak_bytes", "bytes", "peak memory in use on the device by all processes, from NVML"),
    Column("utilization", "share", "mean GPU utilization from NVML"),
    Column(
        "active_share", "share", "share of the profiled steps with a kernel running, on the busiest device"
    ),
    Column("movement_share", "share", "share with a copy but no kernel running"),
    Column("idle_share", "share", "share with nothing running"),
    Column("compile_ns", "ns", "compile time of torch, maximum over the runs"),
    Column("guards", "count", "guards of compiled code"),
    Column("graph_breaks", "count", "frames with a graph break"),
    Column("n", "count", "successful measurements"),
    Column("seconds", "", "duration of the measurements"),
    Column("ran_on", "", "device used"),
    Column("gpu", "", "its name"),
    Column("threads_used", "", "intra-op threads used"),
    Column("run_id", "id", "run with the median step time"),
    Column("device_reason", "", "why device values are missing"),
    Column("reason", "prose", "why values are missing, or fewer than requested"),
)
DEVICE_COLUMNS = (
    "allocated_peak_bytes",
    "reserved_peak_bytes",
    "used_peak_bytes",
    "utilization",
    "active_share",
    "movement_share",
    "idle_share",
    "gpu",
)
COMPILE_COLUMNS = ("compile_ns", "guards", "graph_breaks")


def rows(plan: Plan, done: Done) -> list[Row]:
    """Return a row per cell in the order of the plan; in a search, per batch size, smallest first."""
    cells: Iterable[Cell] = plan.cells
    if plan.search:
        searches = [BatchSearch(first, plan, done) for first in plan.cells]
        cells = [cell for search in searches for cell in search.measured_cells() or [search.first]]
    return [_row(cell, plan, done) for cell in cells]


def write(folder: Folder, done: Done) -> None:
    """Write the table of a sweep as one Parquet file."""
    with put(folder.table) as file:
        pq.write_table(arrow(rows(folder.plan, done)), file, compression="zstd")


def arrow(rows: Iterable[Row]) -> pa.Table:
    """Convert the rows to Arrow; missing values are null."""
    values = [field for field in fields(Row) if field.name not in {"settings", *_LISTS}]
    # The annotations are texts such as "int | None", whose first word names the type.
    schema = [(field.name, _TYPES[str(field.type).split(" ")[0]]) for field in (*fields(Settings), *values)]
    schema += [(name, pa.list_(kind)) for name, kind in _LISTS.items()]
    return pa.Table.from_pylist([row.flat() for row in rows], schema=pa.schema(schema))


def _row(cell: Cell, plan: Plan, done: Done) -> Row:
    records = [record for repeat in range(plan.repeats) if (record := done.get((cell.key, repeat)))]
    runs = [record.values for record in records if record.values]
    outcome = Outcome.OK.value if runs else records[0].outcome.value if records else "pending"
    reason = next((record.reason for record in records if record.reason), "" if records else PENDING)
    if 0 < len(runs) < len(records):
        reason = f"{len(runs)} of {len(records)} measurements succeeded; one failed: {reason}"
    device_reason = "" if plan.profile else NOT_PROFILED
    return Row(
        settings=cell.settings,
        part=cell.part,
        outcome=outcome,
        reason=reason,
        device_reason=NO_GPU if runs and runs[0].device == "cpu" else device_reason,
        n=len(runs),
        seconds=round(sum(record.seconds for record in records), 3),
        run_ids=tuple(run.run_id for run in runs),
        **(_summarize(cell.settings.batch_size, runs) if runs else {}),
    )


def _summarize(batch: int, runs: list[Values]) -> dict[str, Any]:
    by_step_time = sorted((mean(run.step_ns), run.run_id) for run in runs if run.step_ns)
    steps = [step for run in runs for step in run.step_ns]
    middle = median(step for step, _ in by_step_time) if by_step_time else None
    return {
        "step_ns": None if middle is None else round(middle),
        "run_step_ns": tuple(round(mean(run.step_ns)) for run in runs if run.step_ns),
        "step_least_ns": min(steps, default=None),
        "step_most_ns": max(steps, default=None),
        "samples_per_second": batch * 1e9 / middle if middle else None,
        "run_id": by_step_time[(len(by_step_time) - 1) // 2][1] if by_step_time else runs[0].run_id,
        "ran_on": runs[0].device,
        "gpu": runs[0].gpu,
        "threads_used": runs[0].threads,
        "utilization": _over(runs, "utilization", lambda values: sum(values) / len(values)),
        **{
            name: _over(runs, name, max)
            for name in (*DEVICE_COLUMNS[:3], "host_peak_bytes", *COMPILE_COLUMNS)
        },
        **_shares(runs),
    }


def _over(runs: list[Values], name: str, summarize: Callable[[list[Any]], Any]) -> Any:
    values = [value for run in runs if (value := getattr(run, name)) is not None]
    return summarize(values) if values else None


def _shares(runs: list[Values]) -> dict[str, float]:
    """Return the shares of the busiest device, pooled over the profiled steps of all runs."""
    profiled = [run for run in runs if run.window_ns]
    window = sum(run.window_ns or 0 for run in profiled)
    return {
        f"{name}_share": sum(getattr(run, f"{name}_ns") or 0 for run in profiled) / window
        for name in ("active", "movement", "idle")
        if window
    }
