"""Lanes of a quantity over time: allocated bytes, and samples of counters.

If every event of a device has the allocator's running total, that is used; otherwise the sum of the events
since the start of the capture, which can be negative. A level holds until the next event.

A sample covers the time that `utilization` weights it by; in longer gaps, the quantity is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from tracekit.analyses.utilization.series import CONSTANT, PROCESS, Series

from tracekit.runs.conditions import SCHEDULER
from tracekit.runs.intervals import Ints
from tracekit.runs.nvml import M
from tracekit.runs.run import Run
from tracekit.schema import HOST_DEVICE, C

from ..components.text import human
from .read_columns import NULL, Window, group_rows, read_integers

Array: TypeAlias = npt.NDArray[np.generic]
Floats: TypeAlias = npt.NDArray[np.float64]
MEMORY, COUNTER = "memory", "counter"
"""Kinds of these lanes."""


@dataclass(frozen=True, kw_only=True)
class Levels:
    """A quantity over time."""

    rank: int | None  # the rank; None for several
    device: int  # the device; `HOST_DEVICE` for the host
    t_ns: Ints  # sorted times at which it changes
    values: Ints | Floats  # the quantity before the first of them, and after each; NaN where it is unknown
    total: bool = True  # whether it is the whole amount, not the change since the capture's start
    name: str = ""  # name of the counter; empty for allocated bytes
    of: str = ""  # begin of its title: the device, if its rank has several, or the process
    unit: str = "bytes"  # unit of the values
    samples: int = 0  # number of allocator events or samples
    limit: float | None = None  # what the quantity cannot exceed; None if that is unknown

    @property
    def group(self) -> str:
        """Heading of the lane's group."""
        where = "host" if self.device == HOST_DEVICE else f"GPU {self.device}"
        if self.name:
            return "counters" if self.rank is None else f"rank {self.rank} · counters"
        return f"rank {self.rank} · {where}"

    def describe(self, number: int) -> dict[str, Any]:
        """Return the lane as sent to clients."""
        least, most = np.nanmin(self.values).item(), np.nanmax(self.values).item()
        device = None if self.device == HOST_DEVICE else self.device
        kind = COUNTER if self.name else MEMORY
        head = {"id": number, "group": self.group, "title": self._title(most), C.KIND: kind}
        place = {C.RANK: self.rank, C.DEVICE: device, C.STREAM: None, C.PID: None, C.TID: None, C.DEPTH: 0}
        shown = {"low": least, "high": most, "limit": self.limit, "total": self.total, "unit": self.unit}
        return {**head, **place, "rows": self.samples, **shown}

    def _title(self, most: float) -> str:
        if not self.name:
            peak = f"peak {human(most, 'bytes')}" if self.total else f"up to +{human(most, 'bytes')}"
            return f"memory · {peak}"
        return f"{self.of}{readable(self.name)} · max {amount(most, self.unit)}"


_WORDS = {"gpu utilization": "utilization", "sm": "SM", "pcie": "PCIe", "cpu": "CPU", "rss": "memory"}
_SUFFIX = re.compile(r"_(?:pct|percent|bytes|mhz|w|c|gb_per_s)$")


def readable(name: str) -> str:
    """Return the name of a metric without its unit.

    Example:
        >>> readable("gpu_utilization_pct"), readable("sm_clock_mhz"), readable("SMs Active [Throughput %]")
        ('utilization', 'SM clock', 'SMs Active [Throughput %]')
    """
    words = _SUFFIX.sub("", name).replace("_", " ")
    for word, text in _WORDS.items():
        words = re.sub(rf"\b{word}\b", text, words)
    return words


def amount(value: float, unit: str) -> str:
    """Format a sample.

    Example:
        >>> amount(512.4, "W"), amount(7.25, "%"), amount(3.0, "count"), amount(1 << 30, "bytes")
        ('512 W', '7.25%', '3', '1.00 GiB')
    """
    if unit == "bytes":
        return human(value, unit)
    number = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return number + ("%" if unit == "%" else f" {unit}" if unit not in {"", "count"} else "")


_TABLE = "allocations"


def read_memory(run: Run) -> tuple[Levels, ...]:
    """Return the allocated bytes of each rank's devices, the host last; empty without allocator events.

    Raises:
        UnusableInputError: The table cannot be read.
    """
    if not run.rows(_TABLE):
        return ()
    size, t_ns = (read_integers(run, _TABLE, name) for name in (C.BYTES, C.T_NS))
    rank, device = (read_integers(run, _TABLE, name, dtype=np.int32) for name in (C.RANK, C.DEVICE))
    recorded = read_integers(run, _TABLE, C.TOTAL_ALLOCATED)
    codes, keys = group_rows(rank, device)
    lanes = []
    for number, (of_rank, of_device) in enumerate(keys):
        events = np.flatnonzero((codes == number) & (size != 0))
        if not len(events):
            continue
        sizes, totals = size[events], recorded[events]
        if total := bool((totals != NULL).all()):
            level = np.concatenate(([totals[0] - sizes[0]], totals))
        else:
            level = np.concatenate(([0], np.cumsum(sizes)))
        lanes.append(
            Levels(
                rank=of_rank,
                device=of_device,
                t_ns=t_ns[events],
                values=level,
                total=total,
                samples=len(events),
            )
        )
    return tuple(sorted(lanes, key=lambda lane: (lane.rank, lane.device == HOST_DEVICE, lane.device)))


_ORDER: Final = (M.GPU_UTILIZATION, M.POWER, M.MEMORY_USED, M.SM_CLOCK, M.MEMORY_UTILIZATION, M.TEMPERATURE)
"""Counters that come first."""
_LIMITS = {M.MEMORY_USED: M.MEMORY_TOTAL, M.SM_CLOCK: M.SM_CLOCK_MAX, M.POWER: M.POWER_LIMIT}
_LIMITS |= {M.MEMORY_CLOCK: M.MEMORY_CLOCK_MAX}
_LEFT_OUT = {*CONSTANT, M.THROTTLE, M.ENERGY}  # limits, bits, and sums since the driver was loaded


def read_counters(run: Run, span: tuple[int, int]) -> tuple[Levels, ...]:
    """Return the counters that change, with the samples in the capture; empty without any.

    Args:
        run: The run.
        span: Start and end of the capture, ns.

    Raises:
        UnusableInputError: The table cannot be read.
    """
    if not run.rows("counters"):
        return ()
    keys = [C.RANK, C.DEVICE, C.SOURCE, C.METRIC, C.UNIT]
    rows = run.table("counters", columns=[*keys, C.T_NS, C.VALUE], where=pc.field(C.SOURCE) != SCHEDULER)
    rows = rows[np.isfinite(rows[C.VALUE].to_numpy(np.float64))]
    rows = rows.assign(**{name: rows[name].fillna(NULL).astype(np.int64) for name in (C.RANK, C.DEVICE)})
    rows = rows.assign(**{name: rows[name].astype(object) for name in (C.SOURCE, C.METRIC, C.UNIT)})
    highest = rows[rows[C.METRIC].isin(CONSTANT)].groupby([C.RANK, C.DEVICE, C.METRIC])[C.VALUE].max()
    devices = rows[rows[C.DEVICE] != NULL].groupby(C.RANK)[C.DEVICE].nunique()
    lanes = []
    for (rank, device, source, metric, unit), samples in rows.groupby(keys):
        values = samples[C.VALUE].to_numpy(np.float64)
        if metric in _LEFT_OUT or (values == values[0]).all():
            continue
        order = np.argsort(samples[C.T_NS].to_numpy(np.int64), kind="stable")
        times = samples[C.T_NS].to_numpy(np.int64)[order]
        series = Series(str(source), None, str(metric), str(unit), times, values[order])
        t_ns, levels = _cut(*_levels(series), span)
        if not np.isfinite(levels).any():
            continue
        limit = highest.get((rank, device, _LIMITS.get(metric)))
        limit = 100.0 if metric in {M.GPU_UTILIZATION, M.MEMORY_UTILIZATION} else limit
        lanes.append(
            Levels(
                rank=None if rank == NULL else rank,
                device=HOST_DEVICE if device == NULL else device,
                t_ns=t_ns,
                values=levels,
                name=series.metric,
                of=_owner(str(source), device, several=devices.get(rank, 0) > 1),
                unit=series.unit,
                samples=int(((times >= span[0]) & (times <= span[1])).sum()),
                limit=None if limit is None else float(limit),
            )
        )
    return tuple(sorted(lanes, key=_place))


def _owner(source: str, device: int, *, several: bool) -> str:
    if device == NULL:
        return "process " if source == PROCESS else ""
    return f"GPU {device} " if several else ""


def _place(lane: Levels) -> tuple[Any, ...]:
    order = _ORDER.index(lane.name) if lane.name in _ORDER else len(_ORDER)
    rank = (lane.rank is None, lane.rank or 0)
    return *rank, lane.device == HOST_DEVICE, lane.device, order, lane.name


def _levels(series: Series) -> tuple[Ints, Floats]:
    """Return the times at which samples begin and end, and the level before the first and from each."""
    start, end = series.extents()
    end = np.maximum(end, start + 1)  # a sample without a neighbor
    times = np.stack((start, end), axis=1).ravel()
    values = np.stack((series.values, np.full(len(start), np.nan)), axis=1).ravel()
    kept = np.ones(len(times), np.bool_)
    kept[1:-1:2] = end[:-1] < start[1:]  # unknown only if the next one does not follow
    return times[kept], np.concatenate(([np.nan], values[kept]))


def _cut(t_ns: Ints, values: Floats, span: tuple[int, int]) -> tuple[Ints, Floats]:
    first, after = np.searchsorted(t_ns, span[0], side="right"), np.searchsorted(t_ns, span[1], side="right")
    return t_ns[first:after], values[first : after + 1]


def render_levels(lane: Levels, window: Window) -> dict[str, Array]:
    """Return lowest, highest and last level in the first column and in each column with a change.

    The result is exact. The level before a column's first change counts for the column, unless it is at
    the start of the column. Sums of bytes are below 2⁵³, so f64 represents them exactly.
    """
    edges = window.edges
    changes = np.searchsorted(lane.t_ns, edges)
    column = np.flatnonzero((changes[1:] > changes[:-1]) | (np.arange(window.width) == 0))
    first, after = changes[column], changes[column + 1]
    before, last = lane.values[first], lane.values[after]
    has_changes = after > first
    includes_previous = np.ones(len(column), np.bool_)
    includes_previous[has_changes] = lane.t_ns[first[has_changes]] > edges[column[has_changes]]
    low, high = before.copy(), before.copy()
    for extreme, of in ((low, np.fmin), (high, np.fmax)):  # of known values
        extremes = _within(lane.values, first[has_changes] + 1, after[has_changes] + 1, of)
        extreme[has_changes] = np.where(
            includes_previous[has_changes], of(before[has_changes], extremes), extremes
        )
    levels = {"low": low, "high": high, "last": last}
    sent = {name: array.astype(np.float64) for name, array in levels.items()}
    return {"column": column.astype(np.uint16), **sent}


def _within(values: Any, first: Ints, after: Ints, of: np.ufunc) -> Any:
    """Reduce each range of positions; no range is empty."""
    if not len(first):
        return np.empty(0, values.dtype)
    padded = np.append(values[: after[-1]], values[-1])
    return of.reduceat(padded, np.ravel(np.column_stack((first, after))))[::2]


def insert_lanes(lanes: Sequence[dict[str, Any]], more: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Insert lanes of memory below the others of their group, and those of counters below their rank."""
    merged = list(lanes)
    for added in more:
        by = "group" if added[C.KIND] == MEMORY else C.RANK
        same = [place for place, lane in enumerate(merged) if lane[by] == added[by]]
        merged.insert(same[-1] + 1 if same else len(merged), added)
    return merged
