"""Memory lanes: bytes allocated on each device over time, from allocator events.

If every event of a device has the allocator's running total, that is used; otherwise the sum of the events
since the start of the capture, which can be negative. A level holds until the next event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tracekit.render import human
from tracekit.schema import HOST_DEVICE, C

from . import reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.intervals import Ints
    from tracekit.run import Run

    from .draw import Window

Array: TypeAlias = npt.NDArray[np.generic]
KIND = "memory"
_TABLE = "allocations"


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Bytes allocated over time on a device.

    Attributes:
        rank: The rank.
        device: The device; `HOST_DEVICE` for the host.
        t_ns: Sorted event times.
        bytes: Bytes allocated before the first event, and after each event.
        total: Whether these are the allocator's running totals, not changes since the capture's start.
    """

    rank: int
    device: int
    t_ns: Ints
    bytes: Ints
    total: bool

    @property
    def group(self) -> str:
        """Heading of the lane's group."""
        where = "host" if self.device == HOST_DEVICE else f"GPU {self.device}"
        return f"rank {self.rank} · {where}"

    def described(self, number: int) -> dict[str, Any]:
        """Return the lane as sent to clients."""
        most = int(self.bytes.max())
        peak = f"peak {human(most, 'bytes')}" if self.total else f"up to +{human(most, 'bytes')}"
        device = None if self.device == HOST_DEVICE else self.device
        head = {"id": number, "group": self.group, "title": f"memory · {peak}", C.KIND: KIND}
        place = {C.RANK: self.rank, C.DEVICE: device, C.STREAM: None, C.PID: None, C.TID: None, C.DEPTH: 0}
        levels = {"low": int(self.bytes.min()), "high": most, "total": self.total}
        return {**head, **place, "rows": len(self.t_ns), **levels}


def levels(run: Run) -> tuple[Levels, ...]:
    """Return the levels of each rank's devices, the host last; empty without allocator events.

    Raises:
        UnusableInputError: The table cannot be read.
    """
    if not run.rows(_TABLE):
        return ()
    size, t_ns = (reading.integers(run, _TABLE, name) for name in (C.BYTES, C.T_NS))
    rank, device = (reading.integers(run, _TABLE, name, dtype=np.int32) for name in (C.RANK, C.DEVICE))
    recorded = reading.integers(run, _TABLE, C.TOTAL_ALLOCATED)
    codes, keys = reading.grouped(rank, device)
    found = []
    for number, (of_rank, of_device) in enumerate(keys):
        own = np.flatnonzero((codes == number) & (size != 0))
        if len(own):
            level, total = _known(recorded[own], size[own])
            found.append(Levels(rank=of_rank, device=of_device, t_ns=t_ns[own], bytes=level, total=total))
    return tuple(sorted(found, key=lambda one: (one.rank, one.device == HOST_DEVICE, one.device)))


def _known(recorded: Ints, size: Ints) -> tuple[Ints, bool]:
    """Return the levels before the first and after each event, and whether they are running totals."""
    if (recorded != reading.NULL).all():
        return np.concatenate(([recorded[0] - size[0]], recorded)), True
    return np.concatenate(([0], np.cumsum(size))), False


def drawn(found: Levels, window: Window) -> dict[str, Array]:
    """Return lowest, highest and last level in the first column and in each column with an event.

    The result is exact. The level before a column's first event counts for the column, unless it is at
    the start of the column. Sums of bytes are below 2⁵³, so f64 represents them exactly.
    """
    edges = window.edges
    event_index = np.searchsorted(found.t_ns, edges)
    column = np.flatnonzero((event_index[1:] > event_index[:-1]) | (np.arange(window.width) == 0))
    first, after = event_index[column], event_index[column + 1]
    before, last = found.bytes[first], found.bytes[after]
    some = after > first
    includes_previous = np.ones(len(column), np.bool_)
    includes_previous[some] = found.t_ns[first[some]] > edges[column[some]]
    low, high = before.copy(), before.copy()
    for extreme, of in ((low, np.minimum), (high, np.maximum)):
        own = _within(found.bytes, first[some] + 1, after[some] + 1, of)
        extreme[some] = np.where(includes_previous[some], of(before[some], own), own)
    levels = {"low": low, "high": high, "last": last}
    sent = {name: array.astype(np.float64) for name, array in levels.items()}
    return {"column": column.astype(np.uint16), **sent}


def _within(values: Ints, first: Ints, after: Ints, of: np.ufunc) -> Ints:
    """Reduce each range of positions; no range is empty."""
    if not len(first):
        return np.empty(0, np.int64)
    padded = np.append(values[: after[-1]], values[-1])
    found: Ints = of.reduceat(padded, np.ravel(np.column_stack((first, after))))[::2]
    return found


def placed(lanes: Sequence[dict[str, Any]], more: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Insert memory lanes below the other lanes of their group; those without a group come last."""
    merged = list(lanes)
    for one in more:
        same = [place for place, lane in enumerate(merged) if lane["group"] == one["group"]]
        merged.insert(same[-1] + 1 if same else len(merged), one)
    return merged
