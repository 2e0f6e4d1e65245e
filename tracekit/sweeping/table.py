"""The table of a sweep: one row for each cell, with what its measurements came to, and its Parquet file."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.analysis import Column
from tracekit.sweeping import search
from tracekit.sweeping.model import Outcome, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tracekit.sweeping.folder import Folder
    from tracekit.sweeping.model import Cell, Plan, Record, Values

    Done = Mapping[tuple[str, int], Record]

NO_GPU = "no GPU"
NOT_PROFILED = "not profiled"
PENDING = "not measured yet"
SETTINGS = tuple(one.name for one in fields(Settings))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One cell summed up over its measurements; None where nothing was measured.

    Attributes:
        outcome: Of its first measurement; `pending` before it.
        reason: Why there are no values, or fewer than asked for.
        device_reason: Why there are none of a device.
        n: Measurements that went well.
        step_ns: Median of the runs' median step times.
        step_least_ns: Least of all step times.
        step_most_ns: Most of all step times.
        samples_per_second: Batch size over `step_ns`.
        utilization: Mean of the runs' mean GPU utilization by NVML.
        active_share: Of the profiled steps on the busiest device, pooled over the runs.
        run_id: Run whose median step time is the median one (the lower of two).
        run_ids: All runs, in the order of the measurements.
        run_step_ns: Median step time of each run that was timed, in that order.
    """

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
    run_ids: tuple[str, ...] = ()
    run_step_ns: tuple[int, ...] = ()

    def flat(self) -> dict[str, Any]:
        """Settings and values by name of the column."""
        found = asdict(self)
        return {**found.pop("settings"), **found, **{name: list(found[name]) for name in _LISTS}}


_LISTS = {"run_ids": pa.string(), "run_step_ns": pa.int64()}
_TYPES = {"int": pa.int64(), "float": pa.float64(), "str": pa.string(), "bool": pa.bool_()}
COLUMNS = (
    Column("workload", "", "what ran"),
    Column("mode", "", "train or infer"),
    Column("level", "", "how the model is run"),
    Column("backend", "", "what compiles at level compile; none elsewhere"),
    Column("dtype", "", "element type"),
    Column("threads", "", "threads asked for; none leaves it to torch"),
    Column("pin_memory", "", "batches in page-locked memory"),
    Column("zero_grad", "", "how gradients are cleared"),
    Column("dataset_shape", "", "data set whose shape the input has"),
    Column("offload", "", "what lies in host memory between uses"),
    Column("size", "", "sizes of the workload where none are given"),
    Column("device", "", "device asked for"),
    Column("resolution", "", "what the workload's resolution counts"),
    Column("batch_size", "", "samples in a step"),
    Column("part", "", "what a suite measures it for"),
    Column("outcome", "", "ok, out of memory, failed, impossible, skipped or pending"),
    Column("step_ns", "ns", "median of the runs' median step times, without a profiler"),
    Column("step_least_ns", "ns", "least of all step times"),
    Column("step_most_ns", "ns", "most of all step times"),
    Column("samples_per_second", "count", "batch size over step time"),
    Column("host_peak_bytes", "bytes", "peak resident memory of the process, the largest of the runs"),
    Column("allocated_peak_bytes", "bytes", "peak of what the allocator handed out, of the device with most"),
    Column("reserved_peak_bytes", "bytes", "peak of what the allocator held"),
    Column("used_peak_bytes", "bytes", "most memory in use on the whole device, by NVML"),
    Column("utilization", "share", "mean GPU utilization by NVML"),
    Column("active_share", "share", "of the profiled steps, a kernel runs on the busiest device"),
    Column("movement_share", "share", "a copy runs and no kernel does"),
    Column("idle_share", "share", "nothing runs"),
    Column("compile_ns", "ns", "time torch took to compile, the most of the runs"),
    Column("guards", "count", "conditions that compiled code checks before it runs"),
    Column("graph_breaks", "count", "frames whose graph ended early"),
    Column("n", "count", "measurements that went well"),
    Column("seconds", "", "time the measurements took"),
    Column("ran_on", "", "device that was found"),
    Column("gpu", "", "its name"),
    Column("threads_used", "", "threads an operation could use"),
    Column("run_id", "id", "the run with the median step time"),
    Column("device_reason", "", "why nothing is known of a device"),
    Column("reason", "prose", "why there is nothing, or less than asked for"),
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
    """One row per cell in the order of the plan; of a search, per batch tried, from the smallest.

    Args:
        plan: Of the sweep.
        done: Its records.
    """
    cells: Iterable[Cell] = plan.cells
    if plan.search:
        cells = [cell for first in plan.cells for cell in search.batches(first, plan, done) or [first]]
    return [_row(cell, plan, done) for cell in cells]


def write(folder: Folder, done: Done) -> None:
    """Write the table of a sweep as one Parquet file."""
    table = arrow(rows(folder.plan, done))
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    folder.write(folder.table.name, sink.getvalue())


def arrow(of: Iterable[Row]) -> pa.Table:
    """The rows as Arrow: integers stay integers, whatever is missing is null."""
    return pa.Table.from_pylist([row.flat() for row in of], schema=_schema())


def _schema() -> pa.Schema:
    own = [one for one in fields(Row) if one.name not in {"settings", *_LISTS}]
    plain = [(one.name, _TYPES[str(one.type).split(" ")[0]]) for one in (*fields(Settings), *own)]
    return pa.schema([*plain, *((name, pa.list_(kind)) for name, kind in _LISTS.items())])


def _row(cell: Cell, plan: Plan, done: Done) -> Row:
    records = [one for repeat in range(plan.repeats) if (one := done.get((cell.key, repeat)))]
    found = [one.values for one in records if one.values]
    first = records[0].outcome.value if records else "pending"
    reason = next((one.reason for one in records if one.reason), "" if records else PENDING)
    outcome = Outcome.OK.value if found else first
    if found and len(found) < len(records):
        reason = f"{len(found)} of {len(records)} measurements went well; one did not: {reason}"
    seconds = sum(one.seconds for one in records)
    return Row(
        settings=cell.settings,
        part=cell.part,
        outcome=outcome,
        reason=reason,
        device_reason=_device_reason(found, plan),
        n=len(found),
        seconds=round(seconds, 3),
        run_ids=tuple(one.run_id for one in found),
        **(_summed(cell.settings.batch_size, found) if found else {}),
    )


def _device_reason(found: list[Values], plan: Plan) -> str:
    if found and found[0].device == "cpu":
        return NO_GPU
    return "" if plan.profile else NOT_PROFILED


def _summed(batch: int, found: list[Values]) -> dict[str, Any]:
    timed = sorted((median(one.step_ns), one.run_id) for one in found if one.step_ns)
    steps = [step for one in found for step in one.step_ns]
    middle = median(step for step, _ in timed) if timed else None
    return {
        "step_ns": None if middle is None else round(middle),
        "run_step_ns": tuple(round(median(one.step_ns)) for one in found if one.step_ns),
        "step_least_ns": min(steps, default=None),
        "step_most_ns": max(steps, default=None),
        "samples_per_second": batch * 1e9 / middle if middle else None,
        "run_id": timed[(len(timed) - 1) // 2][1] if timed else found[0].run_id,
        "ran_on": found[0].device,
        "gpu": found[0].gpu,
        "threads_used": found[0].threads,
        "utilization": _over(found, "utilization", lambda known: sum(known) / len(known)),
        **{name: _over(found, name, max) for name in DEVICE_COLUMNS[:3]},
        "host_peak_bytes": _over(found, "host_peak_bytes", max),
        **{name: _over(found, name, max) for name in COMPILE_COLUMNS},
        **_shares(found),
    }


def _over(found: list[Values], name: str, of: Callable[[list[Any]], Any]) -> Any:
    known = [value for one in found if (value := getattr(one, name)) is not None]
    return of(known) if known else None


def _shares(found: list[Values]) -> dict[str, float]:
    known = [one for one in found if one.window_ns]
    window = sum(one.window_ns or 0 for one in known)
    if not window:
        return {}
    names = ("active", "movement", "idle")
    return {f"{name}_share": sum(getattr(one, f"{name}_ns") or 0 for one in known) / window for name in names}
