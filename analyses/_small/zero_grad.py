"""zero_grad ranges: the work they launch on each device, and their ops on the host."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit import intervals
from tracekit.intervals import covered
from tracekit.run import busy
from tracekit.schema import C, DeviceKind, HostKind

from .._shared import ranges as shared_ranges
from .._shared.common import NO_PARENT, ints, spans, union_by
from .._shared.hosts import host_rows, texts

if TYPE_CHECKING:
    from tracekit.intervals import Ints, Union
    from tracekit.run import Run

NAMED = re.compile(r"(?i)^(?!.*\.py\(\d+\): ).*zero_grad|\.py\(\d+\): \w*zero_grad\w*$")
"""Annotations and ops with zero_grad anywhere, Python frames only if it is the function."""
FUSED = re.compile(r"(?i)multi_tensor|foreach")
"""Kernels that process many tensors at once: `multi_tensor_apply_kernel` of PyTorch, Apex and DeepSpeed."""
FIXED_NS = 2_000
"""Maximum fixed cost per fill, which a fused kernel pays once."""

RANGE, FILLS = "range", "fills"
_ZERO = re.compile(r"^(?:aten::)?zero(?:_|s)$")
_NEW = "zeros"
"""Suffix of ops that create a tensor of zeros, also with `zero_`, and zero no gradient."""
_FOREACH = re.compile(r"_foreach_zero_$|multi_tensor_zero")
_KINDS = (HostKind.ANNOTATION, HostKind.OP, HostKind.PYTHON)


def find(run: Run) -> pd.DataFrame:
    """Outermost zero_grad ranges, sorted by start."""
    ranges = shared_ranges.outermost(shared_ranges.named(run, NAMED, _KINDS))
    return ranges.sort_values([C.RANK, C.START_NS, C.ROW_ID], ignore_index=True)


def zeroing(run: Run, ranges: pd.DataFrame) -> pd.DataFrame:
    """By position of the range: number of tensors zeroed individually, and of calls that zero lists."""
    counts = {}
    for name, pattern in (("singly", _ZERO), ("listed", _FOREACH)):
        ops = shared_ranges.outermost(shared_ranges.named(run, pattern, (HostKind.OP,)))
        ops = ops[~ops[C.NAME].astype(str).str.endswith(_NEW)]
        at = shared_ranges.covering(ranges, ops)
        counts[name] = np.bincount(at[at != NO_PARENT], minlength=len(ranges)).astype(np.int64)
    return pd.DataFrame(counts)


def launched(run: Run, frame: pd.DataFrame, ranges: pd.DataFrame) -> pd.DataFrame:
    """Kernels and memsets launched by a range, with its position as `RANGE`."""
    at = shared_ranges.covering(ranges, shared_ranges.launching(run, frame))
    fills = frame[C.KIND].isin([str(DeviceKind.KERNEL), str(DeviceKind.MEMSET)]).to_numpy()
    in_range = (at != NO_PARENT) & fills
    rows = frame[in_range].assign(**{RANGE: at[in_range]}).reset_index(drop=True)
    names = rows[C.NAME].astype(object)
    ops = texts(host_rows(run, rows[C.OP_ROW], [C.NAME])[C.NAME], "")
    fused = names.map({name: bool(FUSED.search(name)) for name in names.unique()}).to_numpy(dtype=bool)
    listed = np.array([bool(_FOREACH.search(name)) for name in ops], bool)
    result: pd.DataFrame = rows.assign(fused=fused | listed)
    return result


def device_rows(run: Run) -> pd.DataFrame:
    """Intervals that occupy the devices, with their launches."""
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
    """One row per range and device with launched work.

    Args:
        fills: Work launched by the ranges.
        frame: All intervals that occupy the devices.
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
    table["median_ns"] = shared_ranges.medians(codes, size, end - start)
    shortest = np.full(size, FIXED_NS, np.int64)
    np.minimum.at(shortest, codes, end - start)
    table["fixed_ns"] = shortest
    return table


def _idle(table: pd.DataFrame, frame: pd.DataFrame, first: Ints, last: Ints) -> Ints:
    """Idle time of the row's device between two instants."""
    idle = last - first
    for (rank, device), _ in table.groupby([C.RANK, C.DEVICE], sort=True):
        where = ((table[C.RANK] == rank) & (table[C.DEVICE] == device)).to_numpy()
        own = frame[(frame[C.RANK] == rank) & (frame[C.DEVICE] == device)]
        occupied: Union = intervals.union(*spans(own))
        idle[where] -= covered(occupied, first[where], last[where])
    return idle


def linked_ranks(frame: pd.DataFrame) -> list[int]:
    """Ranks with device work linked to the host."""
    known = frame[C.LAUNCH_ROW].notna() | frame[C.OP_ROW].notna()
    return sorted(int(rank) for rank in np.unique(ints(frame[known], C.RANK)))
