"""Memory in use over time and by op, and its growth from step to step.

Amounts are whole bytes, per rank and device; the device -1 is the host. The running totals are the profiler's
if every event has them; else they are sums of the events since the capture's start (column `totals`): such a
total ignores earlier allocations, and may be negative.

* summary: unused (fragmentation) is memory that the allocator keeps and no tensor uses: split blocks that fit
  no request, or a cache left by an earlier peak; allocator events cannot distinguish them.
* An allocation at an address that is allocated again counts as freed by then.
* steps: net is between start and end of the step's marker on the host, since the caching allocator's events
  are the host's.
* driver_calls: the first step, or the first half of the capture if no steps are marked, counts as warm-up.

Sources: TorchBench (Hao et al., 2023), 4.2: peaks, and the leak of cuBLAS workspaces (pytorch 85447).

Example:
    >>> tracekit.analyze(run, "memory").tables["summary"]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import Analysis, Column, Result, TableSpec
from tracekit.runs.run import Run
from tracekit.schema import C

from ..shared.common import RANK, STEP, ints
from ..shared.groups import group_rows
from . import findings
from .events import (
    COLUMNS,
    MIN_FLOORS,
    OP,
    RECORDED,
    RELATIVE,
    WARMUP_STEPS,
    Events,
    driver_call_table,
    extremes,
    read_driver_calls,
    read_events,
    theil_sen,
    thin_events,
)

NO_EVENTS = "no allocator events in this capture: record with `profile_memory=True` (`tracekit collect` does)"
NO_ADDRESSES = (
    "no addresses were recorded, so allocations cannot be paired with frees: unfreed bytes and bytes in use "
    "at the peak are unknown (torch 1.10 and later record addresses)"
)
NO_TOTALS = (
    "no running totals were recorded: allocated bytes count from the capture's start, without earlier "
    "allocations, and reserved bytes are unknown"
)
FEW_STEPS = (
    f"fewer than {MIN_FLOORS + WARMUP_STEPS} profiled steps, so growth from step to step is unknown: "
    "record more steps (`tracekit collect --steps 10`, or `active=10` of `torch.profiler.schedule`)"
)
_PEAKS = {
    "host_peak_bytes": "peak resident memory of the process",
    "device_peak_allocated_bytes": "peak allocated on the device",
    "device_peak_reserved_bytes": "peak reserved on the device",
}


def compute(run: Run) -> Result:
    """Measure the memory of a run."""
    tables: dict[str, pd.DataFrame] = {}
    notes: list[str] = []
    events = read_events(run)
    steps = run.table("steps", columns=[C.RANK, C.STEP, C.START_NS, C.DUR_NS])
    steps = steps.sort_values([C.RANK, C.START_NS, C.STEP], ignore_index=True)
    if events:
        tables |= _tables(events, steps)
        notes += _notes(events, tables)
    else:
        notes.append(NO_EVENTS)
    calls = read_driver_calls(run, steps)
    if len(calls):
        tables["driver_calls"] = driver_call_table(calls)
    if len(peaks := _peaks(run)):
        tables["peaks"] = peaks
    advised = [*findings.findings(run, events, tables, steps), *findings.churn_findings(run, calls)]
    return Result(tables, tuple(advised), tuple(notes))


def _tables(events: list[Events], steps: pd.DataFrame) -> dict[str, pd.DataFrame]:
    steps_of_rank = [steps[steps[C.RANK] == of_device.rank] for of_device in events]
    pairs = list(zip(events, steps_of_rank, strict=True))
    tables = {
        "summary": _typed(_SUMMARY, [summary(*pair) for pair in pairs]),
        "timeline": pd.concat([timeline(of_device) for of_device in events], ignore_index=True),
        "by_op": pd.concat([by_op(of_device) for of_device in events], ignore_index=True),
    }
    stepped = [(of_device, by_step(of_device, own_steps)) for of_device, own_steps in pairs if len(own_steps)]
    if stepped:
        tables["steps"] = pd.concat([table for _, table in stepped], ignore_index=True)
    slopes = [row for of_device, table in stepped if (row := leak(of_device, table)) is not None]
    if slopes:
        tables["leak"] = _typed(_LEAK, slopes)
    return tables


def _typed(columns: tuple[Column, ...], rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Build a table with integer amounts, nullable if one is unknown."""
    table: dict[str, pd.Series] = {}
    for name in (column.name for column in columns):
        values = [row[name] for row in rows]
        is_text, is_known = name in ("peak_op", "totals"), None not in values
        table[name] = pd.Series(values, dtype=object if is_text else "int64" if is_known else "Int64")
    return pd.DataFrame(table)


def _notes(events: list[Events], tables: dict[str, pd.DataFrame]) -> list[str]:
    notes = []
    if any(of_device.freed_at is None for of_device in events):
        notes.append(NO_ADDRESSES)
    if not all(of_device.recorded for of_device in events):
        notes.append(NO_TOTALS)
    return notes if "leak" in tables else [*notes, FEW_STEPS]


def _peaks(run: Run) -> pd.DataFrame:
    """Peaks sampled without a profiler."""
    where = pc.field(C.METRIC).isin(list(_PEAKS))
    rows = run.table("counters", columns=[C.SOURCE, C.DEVICE, C.METRIC, C.VALUE], where=where)
    if rows.empty:
        return rows
    metric = rows[C.METRIC].astype(object)
    table = pd.DataFrame(
        {
            C.SOURCE: rows[C.SOURCE].astype(object),
            C.DEVICE: rows[C.DEVICE].astype("Int64"),
            "measure": metric.map(_PEAKS),
            "size": rows[C.VALUE].round().astype("Int64"),
        }
    )
    return table.sort_values([C.SOURCE, C.DEVICE, "measure"], ignore_index=True)


TIMELINE_POINTS = 2_000

_Row = dict[str, Any]


def summary(events: Events, steps: pd.DataFrame) -> _Row:
    """Peaks and final values of one device."""
    peak = events.peak_at
    moment = int(events.t_ns[max(peak, 0)])
    reserved, unfreed = events.reserved, events.unfreed
    unused = None if reserved is None else reserved - events.level
    return {
        **events.key,
        "peak_allocated": max(events.start, int(events.level.max())),
        "peak_reserved": None if reserved is None else int(reserved.max()),
        "fragmentation": None if unused is None else int(unused[max(peak, 0)]),
        "peak_at_ns": moment,
        "peak_step": _step_at(steps, moment),
        "peak_op": str(events.frame[OP].iloc[peak]) if peak >= 0 else "",
        "start_allocated": events.start,
        "end_allocated": int(events.level[-1]),
        "most_fragmentation": None if unused is None else int(unused.max()),
        "allocations": int((events.bytes > 0).sum()),
        "frees": int((events.bytes < 0).sum()),
        "unfreed": None if unfreed is None else int(unfreed.sum()),
        "unfreed_bytes": None if unfreed is None else int(events.bytes[unfreed].sum()),
        "totals": RECORDED if events.recorded else RELATIVE,
    }


def _step_at(steps: pd.DataFrame, moment: int) -> int | None:
    start, end = ints(steps, C.START_NS), ints(steps, C.START_NS) + ints(steps, C.DUR_NS)
    inside = np.flatnonzero((start <= moment) & (moment < end))
    return int(steps[C.STEP].iloc[inside[0]]) if len(inside) else None


def timeline(events: Events) -> pd.DataFrame:
    """Allocated and reserved bytes over time, thinned without losing extremes."""
    places = thin_events(events, TIMELINE_POINTS)
    reserved = events.reserved
    return pd.DataFrame(
        {
            **events.key,
            C.T_NS: events.t_ns[places],
            "allocated": events.level[places],
            "reserved": pd.array(
                [None] * len(places) if reserved is None else reserved[places], dtype="Int64"
            ),
        }
    )


def by_op(events: Events) -> pd.DataFrame:
    """Allocated bytes by op, most first, with unfreed bytes and bytes in use at the peak."""
    made = events.bytes > 0
    size, ops = events.bytes[made], pd.DataFrame({OP: events.frame[OP].astype(object)})[made]
    groups = group_rows(ops, [OP])
    sums = {
        name: pd.array(
            [None] * len(groups.first) if flags is None else groups.sums(size * flags[made]), "Int64"
        )
        for name, flags in (("live_at_peak", events.live_at_peak), ("unfreed", events.unfreed))
    }
    allocated = groups.sums(size)
    largest_first = np.argsort(-allocated, kind="stable")  # the groups are in the order of their names
    table = pd.DataFrame(
        {
            **events.key,
            OP: ops[OP].to_numpy(object)[groups.first],
            "allocated": allocated,
            **sums,
            "largest": groups.largest(size),
            "allocations": groups.sizes(),
        },
        index=range(len(groups.first)),
    )
    return table.iloc[largest_first].reset_index(drop=True)


def by_step(events: Events, steps: pd.DataFrame) -> pd.DataFrame:
    """Floor, peak and net growth of the allocated bytes in each step, at host times."""
    start = ints(steps, C.START_NS)
    before, after, lowest, highest = extremes(events, start, start + ints(steps, C.DUR_NS))
    allocations = np.concatenate(([0], np.cumsum(events.bytes > 0)))
    first, last = (
        np.searchsorted(events.t_ns, edge, side="left") for edge in (start, start + ints(steps, C.DUR_NS))
    )
    return pd.DataFrame(
        {
            **events.key,
            C.STEP: ints(steps, C.STEP),
            "floor": lowest,
            "peak": highest,
            "net": after - before,
            "allocations": allocations[np.maximum(first, last)] - allocations[first],
        }
    )


def leak(events: Events, table: pd.DataFrame) -> _Row | None:
    """Growth of the floor per step after the first; None with too few steps."""
    floors = ints(table, "floor")[WARMUP_STEPS:]
    if len(floors) < findings.LEAK["min_steps"]:
        return None
    slope = theil_sen(floors)
    return {
        **events.key,
        "growth": slope.slope,
        "growth_low": slope.low,
        "growth_high": slope.high,
        "steps": len(floors),
        "first_floor": int(floors[0]),
        "last_floor": int(floors[-1]),
    }


PEAK_COLUMNS = (
    Column(C.SOURCE, "", "source of the measurement"),
    Column(C.DEVICE, "", "device index; missing for the process on the host"),
    Column("measure", "", "measured quantity"),
    Column("size", "bytes", "peak"),
)
_DEVICE = Column(C.DEVICE, "", "device index; -1 is the host")
_SUMMARY = (
    RANK,
    _DEVICE,
    Column("peak_allocated", "bytes", "maximum allocated"),
    Column("peak_reserved", "bytes", "maximum reserved"),
    Column("fragmentation", "bytes", "unused at the peak: reserved minus allocated"),
    Column("peak_at_ns", "ns", "time of the peak since the run's t0"),
    Column("peak_step", "", "step of the peak; missing outside the profiled steps"),
    Column("peak_op", "", "op whose allocation reached the peak; empty if it was before the first event"),
    Column("start_allocated", "bytes", "allocated before the first event"),
    Column("end_allocated", "bytes", "allocated after the last event"),
    Column("most_fragmentation", "bytes", "maximum reserved minus allocated"),
    Column("allocations", "count", "number of allocations"),
    Column("frees", "count", "number of frees"),
    Column("unfreed", "count", "allocations not freed within the capture"),
    Column("unfreed_bytes", "bytes", "bytes of unfreed allocations"),
    Column("totals", "", "whether running totals were recorded or count from the capture's start"),
)
_LEAK = (
    RANK,
    _DEVICE,
    Column("growth", "bytes", "growth of the floor per step"),
    Column("growth_low", "bytes", "lower end of its 95% confidence interval"),
    Column("growth_high", "bytes", "upper end of its 95% confidence interval"),
    Column("steps", "count", "steps used: all but the first"),
    Column("first_floor", "bytes", "floor of the first step used"),
    Column("last_floor", "bytes", "floor of the last step used"),
)

_BY_OP = (
    RANK,
    _DEVICE,
    Column(OP, "", "innermost op that allocated"),
    Column("allocated", "bytes", "Σ of its allocations"),
    Column("live_at_peak", "bytes", "its allocations in use at the peak"),
    Column("unfreed", "bytes", "its allocations not freed within the capture"),
    Column("largest", "bytes", "its largest allocation"),
    Column("allocations", "count", "number of allocations"),
)
_STEPS = (
    RANK,
    _DEVICE,
    STEP,
    Column("floor", "bytes", "minimum allocated within the step"),
    Column("peak", "bytes", "maximum allocated within the step"),
    Column("net", "bytes", "allocated at its end minus at its start"),
    Column("allocations", "count", "allocations in the step"),
)
_TIMELINE = (
    RANK,
    _DEVICE,
    Column(C.T_NS, "ns", "time since the run's t0"),
    Column("allocated", "bytes", "allocated after the event"),
    Column("reserved", "bytes", "reserved after the event"),
)
TABLES = (
    TableSpec("summary", "Peaks, per device and of the host", _SUMMARY),
    TableSpec("peaks", "Peaks measured without a profiler", PEAK_COLUMNS),
    TableSpec("leak", "Growth from step to step", _LEAK),
    TableSpec("by_op", "Allocated bytes by op", _BY_OP),
    TableSpec("steps", "Allocated bytes per profiled step", _STEPS),
    TableSpec("driver_calls", "Driver calls for device memory", COLUMNS),
    TableSpec("timeline", "Allocated and reserved bytes over time", _TIMELINE),
)

ANALYSIS = Analysis(
    name="memory",
    title="Memory",
    question="How much memory was in use, by which ops, and does it grow from step to step?",
    definition=(
        "Allocated = bytes held by tensors, reserved = bytes held by the caching allocator; peak = maximum "
        "allocated after any event or before the first; fragmentation = reserved − allocated. Totals are the "
        "recorded ones, else sums since the capture's start. An allocation is unfreed if no free of its "
        "address follows in the capture. Floor of a step = minimum allocated within its marker on the host; "
        "growth = Theil–Sen slope of the floors of all steps but the first, with a 95% confidence interval."
    ),
    tables=TABLES,
    sources=("TorchBench, 4.2", "Sen, 1968 (slope and interval)", "torch.profiler memory events"),
    order=60,
    reads=("allocations",),
    compute=compute,
    rules=findings.RULES,
)
