"""What happens inside each zero_grad range: what it launched on each device, and what ran on the host."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit import intervals
from tracekit.run import busy
from tracekit.schema import C, DeviceKind, HostKind

from . import _ranges
from ._common import NO_PARENT, covered, ints, spans, union_by
from ._hosts import host_rows, texts

if TYPE_CHECKING:
    from tracekit.intervals import Ints, Union
    from tracekit.run import Run

NAMED = re.compile(r"(?i)^(?!.*\.py\(\d+\): ).*zero_grad|\.py\(\d+\): \w*zero_grad\w*$")
"""Annotations and ops with zero_grad anywhere, Python frames only where it is the function."""
FUSED = re.compile(r"(?i)multi_tensor|foreach")
"""Kernels that take many tensors at once: `multi_tensor_apply_kernel` of PyTorch, Apex and DeepSpeed."""
FIXED_NS = 2_000
"""At most so much of a fill is taken as a cost that a fused kernel pays once."""

RANGE, FILLS = "range", "fills"
_ZERO = re.compile(r"^(?:aten::)?zero(?:_|s)$")
_NEW = "zeros"
"""Makes a tensor of zeros, by `zero_` as well, which zeroes no gradient."""
_FOREACH = re.compile(r"_foreach_zero_$|multi_tensor_zero")
_KINDS = (HostKind.ANNOTATION, HostKind.OP, HostKind.PYTHON)


def find(run: Run) -> pd.DataFrame:
    """The outermost zero_grad ranges, by start."""
    ranges = _ranges.outermost(_ranges.named(run, NAMED, _KINDS))
    return ranges.sort_values([C.RANK, C.START_NS, C.ROW_ID], ignore_index=True)


def zeroing(run: Run, ranges: pd.DataFrame) -> pd.DataFrame:
    """By position of the range: tensors zeroed one by one, and calls that zero a list of them, by op."""
    counts = {}
    for name, pattern in (("singly", _ZERO), ("listed", _FOREACH)):
        ops = _ranges.outermost(_ranges.named(run, pattern, (HostKind.OP,)))
        ops = ops[~ops[C.NAME].astype(str).str.endswith(_NEW)]
        at = _ranges.covering(ranges, ops)
        counts[name] = np.bincount(at[at != NO_PARENT], minlength=len(ranges)).astype(np.int64)
    return pd.DataFrame(counts)


def launched(run: Run, frame: pd.DataFrame, ranges: pd.DataFrame) -> pd.DataFrame:
    """The kernels and memsets among device rows that a range launched, with its position as `RANGE`."""
    at = _ranges.covering(ranges, _ranges.launching(run, frame))
    fills = frame[C.KIND].isin([str(DeviceKind.KERNEL), str(DeviceKind.MEMSET)]).to_numpy()
    kept = (at != NO_PARENT) & fills
    rows = frame[kept].assign(**{RANGE: at[kept]}).reset_index(drop=True)
    names = rows[C.NAME].astype(object)
    ops = texts(host_rows(run, rows[C.OP_ROW], [C.NAME])[C.NAME], "")
    fused = names.map({name: bool(FUSED.search(name)) for name in names.unique()}).to_numpy(dtype=bool)
    listed = np.array([bool(_FOREACH.search(name)) for name in ops], bool)
    told: pd.DataFrame = rows.assign(fused=fused | listed)
    return told


def device_rows(run: Run) -> pd.DataFrame:
    """What occupies the devices, with what is needed to tell who launched it."""
    return busy(
        run,
        [
            C.ROW_ID,
            C.KIND,
            C.NAME,
            C.RANK,
            C.DEVICE,
            C.START_NS,
            C.DUR_NS,
            C.LAUNCH_ROW,
            C.OP_ROW,
        ],
    )


def per_device(fills: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """One row per range and device it launched on.

    Args:
        fills: What the ranges launched.
        frame: All that occupies the devices.
    """
    keys = [RANGE, C.DEVICE]
    grouped = fills.groupby(keys, sort=True)
    codes = grouped.ngroup().to_numpy().astype(np.int64)
    table = grouped.agg(**{C.RANK: (C.RANK, "first"), FILLS: (C.ROW_ID, "size")}).reset_index()
    size = len(table)
    start, end = spans(fills)
    first, last = np.full(size, np.iinfo(np.int64).max), np.zeros(size, np.int64)
    np.minimum.at(first, codes, start)
    np.maximum.at(last, codes, end)
    kernels = (fills[C.KIND] == DeviceKind.KERNEL).to_numpy()
    for name, which in (("kernels", kernels), ("memsets", ~kernels), ("fused", fills["fused"].to_numpy())):
        table[name] = np.bincount(codes[which], minlength=size).astype(np.int64)
    table["kernel_ns"] = union_by(codes[kernels], size, start[kernels], end[kernels])
    table["memset_ns"] = union_by(codes[~kernels], size, start[~kernels], end[~kernels])
    table["span_ns"] = last - first
    table["idle_ns"] = _idle(table, frame, first, last)
    table["median_ns"] = _ranges.medians(codes, size, end - start)
    shortest = np.full(size, FIXED_NS, np.int64)
    np.minimum.at(shortest, codes, end - start)
    table["fixed_ns"] = shortest
    return table


def _idle(table: pd.DataFrame, frame: pd.DataFrame, first: Ints, last: Ints) -> Ints:
    """The time between two moments in which nothing ran on the row's device."""
    idle = last - first
    for (rank, device), _ in table.groupby([C.RANK, C.DEVICE], sort=True):
        where = ((table[C.RANK] == rank) & (table[C.DEVICE] == device)).to_numpy()
        own = frame[(frame[C.RANK] == rank) & (frame[C.DEVICE] == device)]
        occupied: Union = intervals.union(*spans(own))
        idle[where] -= covered(occupied, first[where], last[where])
    return idle


def linked_ranks(frame: pd.DataFrame) -> list[int]:
    """Ranks of which some device work is known to have been launched by something on the host."""
    known = frame[C.LAUNCH_ROW].notna() | frame[C.OP_ROW].notna()
    return sorted(int(rank) for rank in np.unique(ints(frame[known], C.RANK)))
