"""Memory lanes: bytes allocated on each device over time, as the allocator's events say them.

Where every event of a device has the allocator's running total, that is shown; else the sum of the events
since the capture's start, which can be negative. The level after an event holds until the next one.
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
    """Bytes allocated on one device of one rank.

    Attributes:
        rank: The rank.
        device: The device; `HOST_DEVICE` is the host.
        t_ns: When each event was, in order.
        bytes: Bytes allocated from before the first event on, and after each event.
        total: Whether these are the allocator's running totals, else the change since the capture's start.
    """

    rank: int
    device: int
    t_ns: Ints
    bytes: Ints
    total: bool

    @property
    def group(self) -> str:
        """The heading under which the lane stands."""
        where = "host" if self.device == HOST_DEVICE else f"GPU {self.device}"
        return f"rank {self.rank} · {where}"

    def described(self, number: int) -> dict[str, Any]:
        """The lane as clients are told of it."""
        most = int(self.bytes.max())
        peak = f"peak {human(most, 'bytes')}" if self.total else f"up to +{human(most, 'bytes')}"
        device = None if self.device == HOST_DEVICE else self.device
        head = {"id": number, "group": self.group, "title": f"memory · {peak}", C.KIND: KIND}
        place = {C.RANK: self.rank, C.DEVICE: device, C.STREAM: None, C.PID: None, C.TID: None, C.DEPTH: 0}
        told = {"low": int(self.bytes.min()), "high": most, "total": self.total}
        return {**head, **place, "rows": len(self.t_ns), **told}


def levels(run: Run) -> tuple[Levels, ...]:
    """The levels of each rank's devices, the host last; none where nothing of the allocator was recorded.

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
    """The level before the first event and after each one, and whether it is the allocator's total."""
    if (recorded != reading.NULL).all():
        return np.concatenate(([recorded[0] - size[0]], recorded)), True
    return np.concatenate(([0], np.cumsum(size))), False


def drawn(found: Levels, window: Window) -> dict[str, Array]:
    """The first column of a window and those with an event: lowest, highest and last level in each.

    Exact: no event is left out, and what held before a column's first event counts for the column, unless
    that event is at its very start. Sums of bytes are whole numbers below 2⁵³, which `f64` holds.
    """
    edges = window.edges
    begun = np.searchsorted(found.t_ns, edges)
    column = np.flatnonzero((begun[1:] > begun[:-1]) | (np.arange(window.width) == 0))
    first, after = begun[column], begun[column + 1]
    before, last = found.bytes[first], found.bytes[after]
    some = after > first
    late = np.ones(len(column), np.bool_)
    late[some] = found.t_ns[first[some]] > edges[column[some]]
    low, high = before.copy(), before.copy()
    for extreme, of in ((low, np.minimum), (high, np.maximum)):
        own = _within(found.bytes, first[some] + 1, after[some] + 1, of)
        extreme[some] = np.where(late[some], of(before[some], own), own)
    told = {"low": low, "high": high, "last": last}
    sent = {name: array.astype(np.float64) for name, array in told.items()}
    return {"column": column.astype(np.uint16), **sent}


def _within(values: Ints, first: Ints, after: Ints, of: np.ufunc) -> Ints:
    """The extreme of each range of positions; no range is empty."""
    if not len(first):
        return np.empty(0, np.int64)
    padded = np.append(values[: after[-1]], values[-1])
    found: Ints = of.reduceat(padded, np.ravel(np.column_stack((first, after))))[::2]
    return found


def placed(lanes: Sequence[dict[str, Any]], more: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lanes with those of memory below the others of the same heading; one without a heading comes last."""
    told = list(lanes)
    for one in more:
        same = [place for place, lane in enumerate(told) if lane["group"] == one["group"]]
        told.insert(same[-1] + 1 if same else len(told), one)
    return told
