"""Tables of copies: groups, per step and sizes, with the time that no kernel or opaque graph overlaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import Column, Remark, TableSpec
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, Union, overlap_lengths
from tracekit.runs.run import Run, busy
from tracekit.schema import C, DeviceKind

from ..shared.common import (
    DEVICE,
    NO_STEPS,
    PLACE,
    RANK,
    STEP,
    ints,
    max_per_rank,
    segments_by,
    select,
    share,
    spans,
    sum_by_code,
)
from ..shared.group_stats import group_stats, unions_over_devices
from ..shared.host_rows import NO_SOURCE
from .read_copies import BLOCKED_NS, CALL_START_NS, EXPOSED_NS, MEMORY, OP, OUTER, SOURCE, number_by

RATE = "gb_per_s"
NEEDED = "needed_bytes"
_UNKNOWN = -1

COPIES = Column("copies", "count", "number of copies")
BYTES = Column(C.BYTES, "bytes", "Σ of bytes; missing if the size of one is unknown")
SUM = Column("sum_ns", "ns", "Σ of durations, overlaps counted twice")
UNION = Column("union_ns", "ns", "time at least one of them ran, per device and summed")
EXPOSED = Column(EXPOSED_NS, "ns", "the part of the union that no kernel or opaque graph overlaps")
GB_PER_S = Column(RATE, "GB/s", "bytes over Σ of durations, 10⁹ bytes per second")
BLOCKED = Column(
    BLOCKED_NS, "ns", "Σ of the launching calls and of the waits directly after them inside the same op"
)
PER_STEP = (RANK, DEVICE, STEP, COPIES, BYTES, SUM, UNION, EXPOSED, GB_PER_S)

GROUPS = (
    Column(OP, "", "innermost op that launched them"),
    Column("bytes_each", "bytes", "bytes of each copy"),
    Column(MEMORY, "", "memory of the host side: pageable, pinned, unified or unknown"),
    COPIES,
    Column("copies_per_step", "", "those of profiled steps over the profiled steps of all ranks"),
    BYTES,
    SUM,
    Column("median_ns", "ns", "lower median of the durations"),
    GB_PER_S,
    BLOCKED,
    EXPOSED,
    Column(C.INPUT_SHAPES, "", "shapes of that op's inputs"),
    Column(C.INPUT_DTYPES, "", "dtypes of that op's inputs, as the profiler names them"),
    Column(SOURCE, "", "user's source line; empty if no stack was recorded"),
    Column(OUTER, "", "outermost op around it"),
    Column("first_row", "", "device row of the first copy"),
)
_SIZES = (
    Column("from_bytes", "bytes", "minimum size, inclusive"),
    Column("to_bytes", "bytes", "maximum size, exclusive"),
    COPIES,
    BYTES,
    SUM,
)
SIZES = TableSpec(
    "sizes", "By size, in powers of two; a last row without bounds holds copies of unknown size", _SIZES
)
NO_BYTES = "some copies were recorded without bytes (as by AMD's profiler), so sums of bytes are missing"
NO_STACKS = Remark("no stacks were recorded, so no source lines: record with `tracekit collect --stacks`")


def copy_notes(copies: pd.DataFrame, steps: int) -> tuple[str, ...]:
    """Notes on missing data, and how to record it."""
    holds = {
        NO_STEPS: not steps,
        NO_BYTES: copies[C.BYTES].isna().any(),
        NO_STACKS: (copies[SOURCE] == NO_SOURCE).all(),
    }
    return tuple(note for note, true in holds.items() if true)


def sums_if_known(frame: pd.DataFrame, codes: Ints, groups: int, column: str) -> pd.Series:
    """Exact sums by group, missing if a value of the group is missing.

    Args:
        frame: Copies.
        codes: Group of each, 0 up to `groups`.
        groups: Number of groups.
        column: Column of integers.
    """
    values = frame[column].astype("Int64")
    total = sum_by_code(codes, groups, values.fillna(0).to_numpy(dtype=np.int64))
    incomplete = np.zeros(groups, bool)
    incomplete[codes[values.isna().to_numpy(dtype=bool)]] = True
    return pd.Series(total, dtype="Int64").mask(incomplete)


def gb_per_s(size: pd.Series, duration: pd.Series) -> pd.Series:
    """Bytes over nanoseconds, which is GB/s; missing if either is missing or 0."""
    is_known = size.notna()
    total = duration.where(is_known & (duration > 0), 0).fillna(0)
    return pd.Series(share(size.fillna(0).to_numpy(np.float64), total.to_numpy(dtype=np.int64)), size.index)


def totals_table(frame: pd.DataFrame, keys: Sequence[str], kernels: KernelUnions) -> pd.DataFrame:
    """Copies, bytes, sum, union, exposed and rate by these keys, in their order; null keys count as one.

    Args:
        frame: Copies with rank and device.
        keys: Columns to group by.
        kernels: Kernels of each device.
    """
    codes, groups = number_by(frame, keys)
    _, first = np.unique(codes, return_index=True)
    table = frame[list(keys)].iloc[first].reset_index(drop=True)
    table["copies"] = np.bincount(codes, minlength=groups).astype(np.int64)
    table[C.BYTES] = sums_if_known(frame, codes, groups, C.BYTES)
    table["sum_ns"] = sums_if_known(frame, codes, groups, C.DUR_NS).astype(np.int64)
    table["union_ns"] = unions_over_devices(frame, codes, groups)
    table[EXPOSED_NS] = kernels.exposed_by(frame, codes, groups)
    table[RATE] = gb_per_s(table[C.BYTES], table["sum_ns"])
    return table


def per_step_table(frame: pd.DataFrame, kernels: KernelUnions, extra: Sequence[str]) -> pd.DataFrame:
    """One row per rank, device and step, copies outside of steps last; with sums of further columns.

    Args:
        frame: Described copies.
        kernels: Kernels of each device.
        extra: Further columns to sum.
    """
    keys = [C.RANK, C.DEVICE, C.STEP]
    table = totals_table(frame, keys, kernels)
    codes, groups = number_by(frame, keys)
    for column in extra:
        table[column] = sums_if_known(frame, codes, groups, column)
    return table


def group_table(frame: pd.DataFrame, kernels: KernelUnions, steps: int) -> pd.DataFrame:
    """Group copies by launching op, size, memory, shapes, dtypes and source line; largest sum first.

    Args:
        frame: Described copies.
        kernels: Kernels of each device.
        steps: Profiled steps of all ranks; 0 where none are marked.
    """
    keyed = frame.assign(bytes_each=frame[C.BYTES].astype("Int64").fillna(_UNKNOWN).astype(np.int64))
    keys = [OP, "bytes_each", MEMORY, C.INPUT_SHAPES, C.INPUT_DTYPES, SOURCE, OUTER]
    table = group_stats(keyed, keys).rename(columns={"count": "copies"})
    codes, count = number_by(keyed, keys)
    _, first = np.unique(codes, return_index=True)
    inside = np.bincount(codes[keyed[C.STEP].notna().to_numpy(dtype=bool)], minlength=count)
    more = keyed[keys].iloc[first].reset_index(drop=True)
    more["copies_per_step"] = inside / steps if steps else np.full(count, np.nan)
    more[EXPOSED_NS] = kernels.exposed_by(keyed, codes, count)
    more[BLOCKED_NS] = sums_if_known(keyed, codes, count, BLOCKED_NS)
    more["first_row"] = ints(keyed, C.ROW_ID)[first]
    table = table.merge(more, on=keys, how="left", validate="1:1")
    is_known = table["bytes_each"] != _UNKNOWN
    table["bytes_each"] = table["bytes_each"].astype("Int64").where(is_known)
    table[C.BYTES] = table["bytes_each"] * table["copies"]
    table[RATE] = gb_per_s(table[C.BYTES], table["sum_ns"])
    return select(table, GROUPS)


def size_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Histogram by powers of two, with separate rows for sizes of 0 and unknown sizes."""
    is_known = frame[C.BYTES].notna().to_numpy(dtype=bool)
    size = frame[C.BYTES].fillna(0).to_numpy(dtype=np.int64)
    power = np.where(size > 0, np.frexp(np.maximum(size, 1).astype(np.float64))[1].astype(np.int64) - 1, -1)
    power = np.where(is_known, power, 64)
    codes, count = number_by(frame.assign(power=power), ["power"])
    powers = np.unique(power)
    lower = np.where(powers >= 0, 1 << np.clip(powers, 0, 61), 0).astype(np.int64)
    upper = np.where(powers >= 0, 2 << np.clip(powers, 0, 61), 1).astype(np.int64)
    missing = powers == 64
    return pd.DataFrame(
        {
            "from_bytes": pd.Series(lower, dtype="Int64").mask(missing),
            "to_bytes": pd.Series(upper, dtype="Int64").mask(missing),
            "copies": np.bincount(codes, minlength=count).astype(np.int64),
            C.BYTES: sums_if_known(frame, codes, count, C.BYTES),
            "sum_ns": sums_if_known(frame, codes, count, C.DUR_NS).astype(np.int64),
        }
    )


class KernelUnions:
    """Unions of kernels and opaque graphs per device, which overlap copies."""

    def __init__(self, run: Run) -> None:
        frame = busy(run, [C.KIND, C.RANK, C.DEVICE, C.START_NS, C.DUR_NS])
        hides = frame[frame[C.KIND].isin([str(DeviceKind.KERNEL), str(DeviceKind.GRAPH)])]
        self.unions: dict[Any, Union] = {
            place: intervals.union(*spans(rows)) for place, rows in hides.groupby(PLACE, sort=True)
        }

    def exposed_by(self, frame: pd.DataFrame, codes: Ints, groups: int) -> Ints:
        """Exposed length of the union of each group's intervals, summed over devices.

        Args:
            frame: Intervals with rank and device.
            codes: Group of each interval, 0 up to `groups`.
            groups: Number of groups.
        """
        total = np.zeros(groups, np.int64)
        for place, rows in frame.groupby(PLACE, sort=True).indices.items():
            group, start, end = segments_by(codes[rows], *spans(frame.iloc[rows]))
            union = self.unions.get(place, intervals.EMPTY)
            np.add.at(total, group, end - start - overlap_lengths(union, start, end))
        return total

    def start_delay_ns(self, copies: pd.DataFrame) -> int:
        """Upper bound of how much earlier kernels could run if the host were not blocked in these copies.

        For each gap between kernels in which copies end: the minimum of the time the host was blocked in them
        and the gap since the first of their calls. The device of each rank with the largest sum counts.
        """
        blocking = copies[copies[BLOCKED_NS].notna()]
        codes, _ = number_by(blocking, PLACE)
        places = blocking[PLACE].iloc[np.unique(codes, return_index=True)[1]]
        waited = [
            _start_delay(blocking[codes == number], *self.unions.get(place, intervals.EMPTY))
            for number, place in enumerate(places.itertuples(index=False, name=None))
        ]
        return max_per_rank(places, waited)

    def exposed_ns(self, frame: pd.DataFrame) -> int:
        """Exposed length of the union of these intervals, on the device of each rank with most of it."""
        codes, count = number_by(frame, PLACE)
        places = frame[PLACE].iloc[np.unique(codes, return_index=True)[1]]
        return max_per_rank(places, self.exposed_by(frame, codes, count))


def _start_delay(rows: pd.DataFrame, start: Ints, end: Ints) -> int:
    """Upper bound for copies of one device and the union of its kernels."""
    if not len(start):
        return 0
    ended = spans(rows)[1]
    before = np.searchsorted(start, ended, side="right") - 1
    idle = (before >= 0) & (end[before] <= ended) & (before + 1 < len(start))
    table = pd.DataFrame(
        {"gap": before, "call": ints(rows, CALL_START_NS), "blocked": ints(rows, BLOCKED_NS)}
    )
    gaps = table[idle].groupby("gap").agg(call=("call", "min"), blocked=("blocked", "sum"))
    before = gaps.index.to_numpy(dtype=np.int64)
    length = start[before + 1] - np.maximum(end[before], ints(gaps, "call"))
    return int(np.minimum(np.maximum(length, 0), ints(gaps, "blocked")).sum())
