"""Table of a sweep: one row per cell with a summary of its measurements, and its Parquet file."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tracekit import registry
from tracekit.analysis import Column
from tracekit.errors import UnusableInputError
from tracekit.experiments import sweep_model
from tracekit.experiments.sweep_model import Cell, Outcome, Plan, Record, Settings, Values
from tracekit.workloads.base import COMPILE, INDUCTOR, OWN_SHAPE, Workload

if TYPE_CHECKING:
    from tracekit.experiments.sweep_folder import Folder

    Done = Mapping[tuple[str, int], Record]

NO_GPU = "no GPU"
NOT_PROFILED = "not profiled"
PENDING = "not measured yet"
SETTINGS = tuple(one.name for one in fields(Settings))


@dataclass(frozen=True, kw_only=True)
class Row:
    """Summary of the measurements of a cell; None if not measured.

    Attributes:
        outcome: Outcome of its first measurement; `pending` before it.
        reason: Why values are missing, or fewer than requested.
        device_reason: Why device values are missing.
        n: Successful measurements.
        step_ns: Median of the runs' median step times.
        step_least_ns: Minimum of all step times.
        step_most_ns: Maximum of all step times.
        samples_per_second: Batch size over `step_ns`.
        utilization: Mean over the runs of mean GPU utilization from NVML.
        active_share: Share of the profiled steps on the busiest device, pooled over the runs.
        run_id: Run with the median of the median step times (the lower of two).
        run_ids: All runs, in order of measurement.
        run_step_ns: Median step time of each timed run, in that order.
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
        """Return settings and values by column name."""
        found = asdict(self)
        return {**found.pop("settings"), **found, **{name: list(found[name]) for name in _LISTS}}


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
    Column("step_ns", "ns", "median of the runs' median step times, without a profiler"),
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
    """Return a row per cell in the order of the plan; in a search, per batch size, smallest first.

    Args:
        plan: Plan of the sweep.
        done: Records of the sweep.
    """
    cells: Iterable[Cell] = plan.cells
    if plan.search:
        cells = [cell for first in plan.cells for cell in sweep_model.batches(first, plan, done) or [first]]
    return [_row(cell, plan, done) for cell in cells]


def write(folder: Folder, done: Done) -> None:
    """Write the table of a sweep as one Parquet file."""
    table = arrow(rows(folder.plan, done))
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    folder.write(folder.table.name, sink.getvalue())


def arrow(of: Iterable[Row]) -> pa.Table:
    """Convert the rows to Arrow; missing values are null."""
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
        reason = f"{len(found)} of {len(records)} measurements succeeded; one failed: {reason}"
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


AXES = (
    "level",
    "backend",
    "mode",
    "dtype",
    "threads",
    "pin_memory",
    "zero_grad",
    "offload",
    "dataset_shape",
    "resolution",
    "batch_size",
)
"""Axes of a sweep, the last varying fastest; smaller sizes come first, as larger ones may be skipped."""
SIZES = ("resolution", "batch_size")
MOST_VALUES = 1000
MOST_CELLS = 100_000
ALL = "all"
_RANGE = re.compile(r"(\d{1,12})\.\.(\d{1,12})([*+])(\d{1,12})")
_WORDS = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}


def numbers(text: str, option: str) -> tuple[int, ...]:
    """Parse a list of numbers into distinct numbers in rising order.

    Args:
        text: Comma-separated numbers and ranges: `8..1024*2` doubles from 8 to 1024, `16..64+16` adds 16.
        option: Name of the option, for error messages.

    Raises:
        UnusableInputError: It is no such list.

    Example:
        >>> numbers("8..64*2,48", "--batch-size")
        (8, 16, 32, 48, 64)
    """
    found: set[int] = set()
    for word in _words(text, option):
        found |= set(_range(word, option) if ".." in word else [_number(word, option)])
    return tuple(sorted(found))


def threads(text: str, option: str = "--threads") -> tuple[int | None, ...]:
    """Parse numbers of threads, with `all` for torch's default.

    Example:
        >>> threads("all,1")
        (None, 1)
    """
    words = _words(text, option)
    plain = [word for word in words if word != ALL]
    given = numbers(",".join(plain), option) if plain else ()
    return (*([None] if ALL in words else []), *given)


def switches(text: str, option: str) -> tuple[bool, ...]:
    """Parse yes and no.

    Example:
        >>> switches("no,yes", "--pin-memory")
        (False, True)
    """
    words = _words(text, option)
    if unknown := [word for word in words if word not in _WORDS]:
        raise UnusableInputError(f"{option} cannot be {unknown[0]!r}", hint=f"use {option} no,yes")
    return tuple(dict.fromkeys(_WORDS[word] for word in words))


def names(text: str, option: str) -> tuple[str, ...]:
    """Parse words, without duplicates.

    Example:
        >>> names("eager, compile", "--level")
        ('eager', 'compile')
    """
    return tuple(dict.fromkeys(_words(text, option)))


def cells(
    workload: str, given: Mapping[str, Sequence[Any]], *, device: str = "auto", size: str = "default"
) -> tuple[Cell, ...]:
    """Return the cells of a grid; axes that are not given keep the workload's defaults.

    Args:
        workload: Registered name.
        given: Values by axis.
        device: Device of all cells.
        size: Preset of the workload's `sizes`, for axes that are not given.

    Raises:
        PluginError: There is no such workload.
        UnusableInputError: There are too many cells, the workload has no such size, or a backend has
            nothing to compile.
    """
    known: Workload = registry.load(registry.WORKLOADS, workload)
    axes = [name for name in AXES if given.get(name)]
    if given.get("backend") and COMPILE not in given.get("level", ()):
        raise UnusableInputError(
            "--backend applies only to level compile",
            hint="use --level compile, or remove --backend",
        )
    found = []
    total = 1
    for name in axes:
        total *= len(given[name])
    if total > MOST_CELLS:
        raise UnusableInputError(f"the grid has {total:,} cells", hint="sweep fewer values at a time")
    for values in product(*(given[name] for name in axes)):
        chosen = _with_backend(dict(zip(axes, values, strict=True)))
        sizes = known.defaults_for(size=size, dataset_shape=chosen.get("dataset_shape", OWN_SHAPE))
        sizes = {name: sizes[name] for name in SIZES}
        found.append(
            Cell(settings=Settings(workload=workload, device=device, size=size, **{**sizes, **chosen}))
        )
    return tuple(dict.fromkeys(found))


def _with_backend(chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the backend for level compile, else None."""
    if chosen.get("level") == COMPILE:
        return {"backend": INDUCTOR, **chosen}
    return {name: value for name, value in chosen.items() if name != "backend"}


def _words(text: str, option: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise UnusableInputError(f"{option} {text!r} has an empty value", hint=f"use {option} A,B,C")
    return words


def _number(word: str, option: str) -> int:
    if not re.fullmatch(r"\d{1,12}", word):
        raise UnusableInputError(
            f"{option} cannot be {word!r}", hint=f"use whole numbers, as in {option} 8,16,32 or 8..1024*2"
        )
    return int(word)


def _range(word: str, option: str) -> list[int]:
    match = _RANGE.fullmatch(word)
    first, last, by = (int(match[place]) for place in (1, 2, 4)) if match else (0, 0, 0)
    grows = bool(match) and (by > 1 and first > 0 if match and match[3] == "*" else by > 0)
    if not match or not grows or last < first:
        raise UnusableInputError(
            f"{option} {word!r} is not a range", hint=f"use {option} 8..1024*2 to double, or 16..64+16 to add"
        )
    found = [first]
    while (value := found[-1] * by if match[3] == "*" else found[-1] + by) <= last:
        found.append(value)
        if len(found) > MOST_VALUES:
            raise UnusableInputError(f"{option} {word!r} has over {MOST_VALUES} values", hint="use fewer")
    return found
