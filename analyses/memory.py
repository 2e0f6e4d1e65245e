"""How much memory was in use, when and by which ops, and whether it grows from step to step.

All amounts are whole bytes, per rank and device; the device -1 is the host. Allocated is what tensors hold,
reserved what the caching allocator holds of the device for them. The running totals are the profiler's
where every event has them; else they are the sums of the events since the capture's start, and the column
`totals` says so: such a total leaves out what was allocated before, and may be negative.

* summary: peak = most allocated after any event, or before the first; unused (fragmentation) = reserved −
  allocated, at that moment and at most. It is what the allocator keeps and no tensor uses: split blocks
  that fit nothing, or a cache left by an earlier peak, which allocator events alone cannot tell apart.
* An allocation is unfreed where no free of its address, nor another allocation at it, follows within the
  capture; it may be freed later.
* by_op: bytes by the innermost op that allocated; in use at the peak = allocated no later, freed later or
  never.
* steps: floor = least allocated within the step's marker on the host, with the level the step began with;
  net = the level it ends with minus that. The caching allocator's events are the host's, so its time
  counts.
* leak: the slope of the floors over the steps after the first, by Theil and Sen with a 95% confidence
  interval (see `_memory.leak`); from 4 steps on.
* timeline: at most 2,000 points per device; of each group of consecutive events the ones with most and
  least allocated and with most reserved, so that no peak is lost.
* driver_calls: calls that take memory from the driver or give it back. In the first step that is the
  warm-up; where no steps are marked, the first half of the capture counts as that.
* peaks: what the process measured beside the profile, without a profiler running.

Thresholds: a leak grows by 64 KiB a step or more, and the lower end of its interval is above half of that:
100,000 steps then take 6 GiB, and less is the size of values a program keeps on purpose, such as losses.
Unused memory counts above 20% of what is reserved and 512 MiB, below which no model fits instead. Driver
calls count from 1% of a step on, in two steps at least: one may be an evaluation; where no steps are marked,
with 50 calls that give memory back, which a program that starts does not make.

Sources: TorchBench (Hao et al., 2023), 4.2: peaks, and the leak of cuBLAS workspaces (pytorch 85447).

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "memory")  # doctest: +SKIP
    >>> result.tables["summary"]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import Analysis, Column, Result, TableSpec
from tracekit.schema import C

from ._memory import advice, driver_calls
from ._memory.allocations import OP, Events, read
from ._memory.tables import FEWEST_STEPS, WARMUP_STEPS, by_op, by_step, leak, summary, timeline
from ._shared.common import RANK, STEP

if TYPE_CHECKING:
    from tracekit.run import Run

NO_EVENTS = (
    "no allocator events in this capture: record with `profile_memory=True`, which `tracekit collect` does"
)
NO_ADDRESSES = (
    "no addresses were recorded, so allocations cannot be paired with frees: what is unfreed and what is in "
    "use at the peak is unknown (torch 1.10 and later record them)"
)
NO_TOTALS = (
    "no running totals were recorded: allocated bytes count from the capture's start and leave out what was "
    "allocated before, and reserved bytes are unknown"
)
FEW_STEPS = (
    f"fewer than {FEWEST_STEPS + WARMUP_STEPS} profiled steps, so growth from step to step is unknown: "
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
    events = read(run)
    steps = run.table("steps", columns=[C.RANK, C.STEP, C.START_NS, C.DUR_NS])
    steps = steps.sort_values([C.RANK, C.START_NS, C.STEP], ignore_index=True)
    if events:
        tables |= _tables(events, steps)
        notes += _notes(events, tables)
    else:
        notes.append(NO_EVENTS)
    calls = driver_calls.read(run, steps)
    if len(calls):
        tables["driver_calls"] = driver_calls.table(calls)
    if len(peaks := _peaks(run)):
        tables["peaks"] = peaks
    found = [*advice.findings(run, events, tables, steps), *driver_calls.findings(run, calls)]
    return Result(tables, tuple(found), tuple(notes))


def _tables(events: list[Events], steps: pd.DataFrame) -> dict[str, pd.DataFrame]:
    own = [steps[steps[C.RANK] == one.rank] for one in events]
    pairs = list(zip(events, own, strict=True))
    tables = {
        "summary": _typed(_SUMMARY, [summary(*pair) for pair in pairs]),
        "timeline": pd.concat([timeline(one) for one in events], ignore_index=True),
        "by_op": pd.concat([by_op(one) for one in events], ignore_index=True),
    }
    stepped = [(one, by_step(one, mine)) for one, mine in pairs if len(mine)]
    if stepped:
        tables["steps"] = pd.concat([table for _, table in stepped], ignore_index=True)
    slopes = [row for one, table in stepped if (row := leak(one, table)) is not None]
    if slopes:
        tables["leak"] = _typed(_LEAK, slopes)
    return tables


def _typed(columns: tuple[Column, ...], rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Rows as a table whose amounts are integers, nullable where one is unknown."""
    table = pd.DataFrame(rows, columns=[column.name for column in columns], dtype=object)
    text = ("peak_op", "totals")
    names = [name for name in table.columns if name not in text]
    whole = table.astype(dict.fromkeys(names, "Int64"))
    return whole.astype({name: "int64" for name in names if whole[name].notna().all()})


def _notes(events: list[Events], tables: dict[str, pd.DataFrame]) -> list[str]:
    notes = []
    if any(one.freed_at is None for one in events):
        notes.append(NO_ADDRESSES)
    if not all(one.recorded for one in events):
        notes.append(NO_TOTALS)
    return notes if "leak" in tables else [*notes, FEW_STEPS]


def _peaks(run: Run) -> pd.DataFrame:
    """Peaks that were sampled beside the profile."""
    where = pc.field(C.METRIC).isin(list(_PEAKS))
    rows = run.table("counters", columns=[C.SOURCE, C.DEVICE, C.METRIC, C.VALUE], where=where)
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


_DEVICE = Column(C.DEVICE, "", "device index; -1 is the host")
_SUMMARY = (
    RANK,
    _DEVICE,
    Column("peak_allocated", "bytes", "most allocated at once"),
    Column("peak_reserved", "bytes", "most reserved at once"),
    Column("fragmentation", "bytes", "reserved minus allocated at the peak: unused"),
    Column("peak_at_ns", "ns", "time of the peak since the run's t0"),
    Column("peak_step", "", "step of the peak; missing outside of the profiled steps"),
    Column("peak_op", "", "op whose allocation made the peak; empty where it was before the first event"),
    Column("start_allocated", "bytes", "allocated before the first event"),
    Column("end_allocated", "bytes", "allocated after the last event"),
    Column("most_fragmentation", "bytes", "most that was reserved and not allocated"),
    Column("allocations", "count", "allocations"),
    Column("frees", "count", "frees"),
    Column("unfreed", "count", "allocations not freed within the capture"),
    Column("unfreed_bytes", "bytes", "bytes of those"),
    Column("totals", "", "whether running totals were recorded or count from the capture's start"),
)
_LEAK = (
    RANK,
    _DEVICE,
    Column("growth", "bytes", "growth of the floor per step"),
    Column("growth_low", "bytes", "lower end of its 95% confidence interval"),
    Column("growth_high", "bytes", "upper end of its 95% confidence interval"),
    Column("steps", "count", "steps it is taken from: all but the first"),
    Column("first_floor", "bytes", "floor of the first of them"),
    Column("last_floor", "bytes", "floor of the last of them"),
)

ANALYSIS = Analysis(
    name="memory",
    title="Memory",
    question="How much memory was in use, by which ops, and does it grow from step to step?",
    definition=(
        "Allocated = bytes tensors hold, reserved = bytes the caching allocator holds; peak = most allocated "
        "after any event or before the first; fragmentation = reserved − allocated. Totals are the recorded "
        "ones, else sums since the capture's start. An allocation is unfreed where no free of its address "
        "follows in the capture. Floor of a step = least allocated within its marker on the host; growth = "
        "the Theil–Sen slope of the floors of all steps but the first, with a 95% confidence interval."
    ),
    tables=(
        TableSpec("summary", "Peaks, per device (-1 is the host)", _SUMMARY),
        TableSpec("peaks", "Peaks measured without a profiler", driver_calls.PEAK_COLUMNS),
        TableSpec("leak", "Growth from step to step", _LEAK),
        TableSpec(
            "by_op",
            "Allocated bytes by op",
            (
                RANK,
                _DEVICE,
                Column(OP, "", "innermost op that allocated"),
                Column("allocated", "bytes", "Σ of its allocations"),
                Column("live_at_peak", "bytes", "of them in use at the peak"),
                Column("unfreed", "bytes", "of them not freed within the capture"),
                Column("largest", "bytes", "its largest allocation"),
                Column("allocations", "count", "allocations"),
            ),
        ),
        TableSpec(
            "steps",
            "Allocated bytes per profiled step",
            (
                RANK,
                _DEVICE,
                STEP,
                Column("floor", "bytes", "least allocated within the step"),
                Column("peak", "bytes", "most allocated within the step"),
                Column("net", "bytes", "allocated at its end minus at its start"),
                Column("allocations", "count", "allocations in the step"),
            ),
        ),
        TableSpec("driver_calls", "Calls to the driver for memory", driver_calls.COLUMNS),
        TableSpec(
            "timeline",
            "Allocated and reserved bytes over time",
            (
                RANK,
                _DEVICE,
                Column(C.T_NS, "ns", "time since the run's t0"),
                Column("allocated", "bytes", "allocated after the event"),
                Column("reserved", "bytes", "reserved after the event"),
            ),
        ),
    ),
    sources=("TorchBench, 4.2", "Sen, 1968 (slope and interval)", "torch.profiler memory events"),
    order=60,
    compute=compute,
    rules=(*advice.RULES, *driver_calls.RULES),
)
