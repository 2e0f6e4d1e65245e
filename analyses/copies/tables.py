"""Tables of copies: groups, per step and sizes, with the time that no kernel or opaque graph overlaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import Column, Remark, TableSpec
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, Union, overlap_lengths
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind

from ..shared.common import (
    DEVICE,
    NO_STEPS,
    PLACE,
    RANK,
    STEP,
    Floats,
    concat_tables,
    ints,
    is_kind,
    max_per_rank,
    medians,
    segments_by,
    select,
    share,
    spans,
)
from ..shared.group_stats import unions_over_devices
from ..shared.groups import number_by, of_largest_devices, rows_by_device, sum_by_code, sums_if_known
from ..shared.host_rows import NO_SOURCE
from ..shared.programs import program_of
from .read_copies import BLOCKED_NS, CALL_START_NS, EXPOSED_NS, MEMORY, OP, OUTER, SOURCE

RATE = "gb_per_s"
NEEDED = "needed_bytes"
_UNKNOWN = -1

COPIES = Column("copies", "count", "number of copies")
BYTES = Column(C.BYTES, "bytes", "Σ of bytes; missing if the size of one is unknown")
SUM = Column("sum_ns", "ns", "Σ of durations, overlaps counted twice")
UNION = Column("union_ns", "ns", "time at least one of them ran, per device and summed")
EXPOSED = Column(EXPOSED_NS, "ns", "the part of the union that no kernel or opaque graph overlaps")
GB_PER_S = Column(RATE, "GB/s", "bytes over Σ of durations, 10⁹ bytes per second, of copies that last over 0")
UNION_RATE = "union_gb_per_s"
UNION_GB_PER_S = Column(UNION_RATE, "GB/s", "the same bytes over the union: the rate of copies at once")
BLOCKED = Column(
    BLOCKED_NS, "ns", "Σ of the launching calls and of the waits directly after them inside the same op"
)
PER_STEP = (RANK, DEVICE, STEP, COPIES, BYTES, SUM, UNION, EXPOSED, GB_PER_S, UNION_GB_PER_S)

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
    UNION,
    GB_PER_S,
    UNION_GB_PER_S,
)
SIZES = TableSpec(
    "sizes", "By size, in powers of two; a last row without bounds holds copies of unknown size", _SIZES
)
MAX_RATES = 64
"""Most rows of the table of rates of a device, which is then of equal parts of its capture."""
RATES = TableSpec(
    "rates",
    "Rate over time",
    (
        RANK,
        DEVICE,
        Column(
            C.START_NS,
            "ns",
            f"start of an interval of one rate, or of one of {MAX_RATES} equal parts of the time of copies",
        ),
        Column(C.DUR_NS, "ns", "length of the interval"),
        Column(
            C.BYTES,
            "bytes",
            "bytes copied in it, if each copy has one rate; those of unknown size are left out",
        ),
        Column(RATE, "GB/s", "these bytes over its length"),
    ),
)
NO_BYTES = "some copies were recorded without bytes (as by AMD's profiler), so sums of bytes are missing"


def no_stacks(run: Run) -> Remark:
    """Note that source lines are unknown, with how to record them."""
    return Remark(f"no stacks were recorded, so no source lines: {program_of(run).stacks.rstrip(',')}")


def copy_notes(run: Run, copies: pd.DataFrame, steps: int) -> tuple[str, ...]:
    """Notes on missing data, and how to record it."""
    holds = {
        NO_STEPS: not steps,
        NO_BYTES: copies[C.BYTES].isna().any(),
        no_stacks(run): (copies[SOURCE] == NO_SOURCE).all(),
    }
    return tuple(note for note, true in holds.items() if true)


def gb_per_s(size: pd.Series, duration: pd.Series) -> Floats:
    """Bytes over nanoseconds, which is GB/s; missing if either is missing or 0."""
    sizes, took = (values.to_numpy(np.float64, na_value=np.nan) for values in (size, duration))
    return share(sizes, np.where(took > 0, took, 0))


def totals_table(
    frame: pd.DataFrame, keys: Sequence[str], kernels: KernelUnions
) -> tuple[pd.DataFrame, Ints]:
    """Copies, bytes, sum, union, exposed and rate by these keys, in their order; null keys count as one.

    Returns:
        The table, and the row of each copy in it.
    """
    codes, first = number_by(frame, keys)
    groups, known_bytes = len(first), sums_if_known(frame, codes, len(first), C.BYTES)
    sum_ns = sum_by_code(codes, groups, ints(frame, C.DUR_NS))
    timed_bytes = sums_if_known(_without_untimed(frame), codes, groups, C.BYTES)
    table = frame[[*keys]].iloc[first].reset_index(drop=True)
    totals: dict[str, Any] = {
        COPIES.name: np.bincount(codes, minlength=groups),
        C.BYTES: known_bytes,
        SUM.name: sum_ns,
        UNION.name: unions_over_devices(frame, codes, groups),
        EXPOSED_NS: kernels.exposed_by(frame, codes, groups),
        RATE: gb_per_s(pd.Series(timed_bytes), pd.Series(sum_ns)),
    }
    return table.assign(**totals), codes


def _without_untimed(frame: pd.DataFrame) -> pd.DataFrame:
    """Copies without the bytes of those that last 0 ns, which have no rate."""
    return frame.assign(**{C.BYTES: frame[C.BYTES].mask(frame[C.DUR_NS] == 0, 0)})


def per_step_table(frame: pd.DataFrame, kernels: KernelUnions, extra: Sequence[str]) -> pd.DataFrame:
    """One row per rank, device and step, copies outside of steps last; with sums of further columns."""
    table, codes = totals_table(frame, [C.RANK, C.DEVICE, C.STEP], kernels)
    timed_bytes = sums_if_known(_without_untimed(frame), codes, len(table), C.BYTES)
    table[UNION_RATE] = gb_per_s(pd.Series(timed_bytes), table[UNION.name])
    return table.assign(**{column: sums_if_known(frame, codes, len(table), column) for column in extra})


def group_table(frame: pd.DataFrame, kernels: KernelUnions, steps: int) -> pd.DataFrame:
    """Group copies by launching op, size, memory, shapes, dtypes and source line; largest sum first.

    `steps` are those of all ranks, 0 where none are marked.
    """
    size = frame[C.BYTES].fillna(_UNKNOWN).to_numpy(np.int64)
    keys = [OP, "bytes_each", MEMORY, C.INPUT_SHAPES, C.INPUT_DTYPES, SOURCE, OUTER]
    keyed, took = frame.assign(bytes_each=size), ints(frame, C.DUR_NS)
    codes, first = number_by(keyed, keys)
    groups, copies = len(first), np.bincount(codes)
    in_step = np.bincount(codes[frame[C.STEP].notna().to_numpy(bool)], minlength=groups)
    bytes_each, is_unknown = size[first], size[first] == _UNKNOWN
    total_bytes = pd.arrays.IntegerArray(bytes_each * copies, is_unknown)
    timed_bytes = pd.arrays.IntegerArray(
        bytes_each * np.bincount(codes[took > 0], minlength=groups), is_unknown
    )
    sum_ns = sum_by_code(codes, groups, took)
    columns: dict[str, Any] = {
        "bytes_each": pd.arrays.IntegerArray(bytes_each, is_unknown),
        COPIES.name: copies,
        "copies_per_step": in_step / steps if steps else np.full(groups, np.nan),
        C.BYTES: total_bytes,
        SUM.name: sum_ns,
        "median_ns": medians(codes, groups, took),
        RATE: gb_per_s(pd.Series(timed_bytes), pd.Series(sum_ns)),
        BLOCKED_NS: sums_if_known(frame, codes, groups, BLOCKED_NS),
        EXPOSED_NS: kernels.exposed_by(frame, codes, groups),
        "first_row": ints(frame, C.ROW_ID)[first],
    }
    table = keyed[keys].iloc[first].reset_index(drop=True).assign(**columns)
    largest_first = np.argsort(-sum_ns, kind="stable")  # the groups are in the order of the keys
    return select(table.iloc[largest_first].reset_index(drop=True), GROUPS)


def size_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Histogram by powers of two, with separate rows for sizes of 0 and unknown sizes."""
    is_known = frame[C.BYTES].notna().to_numpy(dtype=bool)
    size = frame[C.BYTES].fillna(0).to_numpy(dtype=np.int64)
    power = np.where(size > 0, np.frexp(np.maximum(size, 1).astype(np.float64))[1].astype(np.int64) - 1, -1)
    powers, codes = np.unique(np.where(is_known, power, 64), return_inverse=True)
    count = len(powers)
    lower = np.where(powers >= 0, 1 << np.clip(powers, 0, 61), 0).astype(np.int64)
    upper = np.where(powers >= 0, 2 << np.clip(powers, 0, 61), 1).astype(np.int64)
    missing = powers == 64
    sum_ns = sum_by_code(codes, count, ints(frame, C.DUR_NS))
    union_ns = unions_over_devices(frame, codes, count)
    timed = pd.Series(sums_if_known(_without_untimed(frame), codes, count, C.BYTES))
    return pd.DataFrame(
        {
            "from_bytes": pd.arrays.IntegerArray(lower, missing),
            "to_bytes": pd.arrays.IntegerArray(upper, missing, copy=True),
            "copies": np.bincount(codes, minlength=count),
            C.BYTES: sums_if_known(frame, codes, count, C.BYTES),
            SUM.name: sum_ns,
            UNION.name: union_ns,
            RATE: gb_per_s(timed, pd.Series(sum_ns)),
            UNION_RATE: gb_per_s(timed, pd.Series(union_ns)),
        }
    )


def rate_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Rates of the copies of each device over time; those of copies at once add up."""
    timed = frame[frame[C.BYTES].notna() & (frame[C.DUR_NS] > 0)]
    parts = [
        _rates(timed.iloc[rows]).assign(rank=rank, device=device)
        for (rank, device), rows in rows_by_device(timed).items()
    ]
    names = [column.name for column in RATES.columns]
    return concat_tables(parts)[names] if parts else pd.DataFrame(columns=names)


def _rates(copies: pd.DataFrame) -> pd.DataFrame:
    """Bytes over time of the copies of a device."""
    start, end = spans(copies)
    rate = copies[C.BYTES].to_numpy(np.float64) / (end - start)
    at, codes = np.unique(np.concatenate((start, end)), return_inverse=True)
    change = np.bincount(codes, np.concatenate((rate, -rate)), minlength=len(at))
    copied = np.append(0, np.cumsum(np.cumsum(change)[:-1].clip(0) * np.diff(at)))
    edges = at if len(at) <= MAX_RATES + 1 else np.linspace(at[0], at[-1], MAX_RATES + 1).astype(np.int64)
    size = np.diff(np.interp(edges - at[0], at - at[0], copied)).round().astype(np.int64)
    length = np.diff(edges)
    return pd.DataFrame({C.START_NS: edges[:-1], C.DUR_NS: length, C.BYTES: size, RATE: size / length})


class KernelUnions:
    """Unions of kernels and opaque graphs per device, which overlap copies."""

    def __init__(self, run: Run) -> None:
        columns = [C.RANK, C.DEVICE, C.START_NS, C.DUR_NS]
        kinds = is_kind(DeviceKind.KERNEL, DeviceKind.GRAPH)
        hides = run.table("device_intervals", columns=columns, where=kinds)
        start, end = spans(hides)
        self.unions: dict[tuple[int, int], Union] = {
            place: intervals.union(start[rows], end[rows]) for place, rows in rows_by_device(hides).items()
        }

    def exposed_by(self, frame: pd.DataFrame, codes: Ints, groups: int) -> Ints:
        """Exposed length of the union of each group's intervals, summed over devices."""
        total = np.zeros(groups, np.int64)
        starts, ends = spans(frame)
        for place, rows in rows_by_device(frame).items():
            group, start, end = segments_by(codes[rows], starts[rows], ends[rows])
            union = self.unions.get(place, intervals.EMPTY)
            np.add.at(total, group, end - start - overlap_lengths(union, start, end))
        return total

    def start_delay_ns(self, copies: pd.DataFrame) -> int:
        """Upper bound of how much earlier kernels could run if the host were not blocked in these copies.

        For each gap between kernels in which copies end: the minimum of the time the host was blocked in them
        and the gap since the first of their calls. The device of each rank with the largest sum counts.
        """
        blocking = copies[copies[BLOCKED_NS].notna()]
        of_devices = rows_by_device(blocking)
        delays = [
            _start_delay(blocking.iloc[rows], *self.unions.get(place, intervals.EMPTY))
            for place, rows in of_devices.items()
        ]
        return max_per_rank(pd.DataFrame([*of_devices], columns=PLACE), delays)

    def most_exposed(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Intervals of the device of each rank with most of their exposed time, which `exposed_ns` sums."""
        codes, first = number_by(frame, PLACE)
        return of_largest_devices(frame, frame.iloc[first], self.exposed_by(frame, codes, len(first)))

    def most_beside(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, int]:
        """Intervals of the device of each rank with most of their time beside kernels, and that time."""
        beside = {
            place: intervals.length(intervals.intersect(intervals.union(*spans(frame.iloc[rows])), union))
            for place, rows in rows_by_device(frame).items()
            if (union := self.unions.get(place))
        }
        places, lengths = pd.DataFrame([*beside], columns=PLACE), [*beside.values()]
        return of_largest_devices(frame, places, lengths), max_per_rank(places, lengths)

    def exposed_ns(self, frame: pd.DataFrame) -> int:
        """Exposed length of the union of these intervals, on the device of each rank with most of it."""
        codes, first = number_by(frame, PLACE)
        return max_per_rank(frame.iloc[first], self.exposed_by(frame, codes, len(first)))


def _start_delay(rows: pd.DataFrame, start: Ints, end: Ints) -> int:
    """Upper bound for copies of one device and the union of its kernels."""
    if not len(start):
        return 0
    ended = spans(rows)[1]
    before = np.searchsorted(start, ended, side="right") - 1
    idle = (before >= 0) & (end[before] <= ended) & (before + 1 < len(start))
    gaps, codes = np.unique(before[idle], return_inverse=True)
    called = start[gaps + 1]
    np.minimum.at(called, codes, ints(rows, CALL_START_NS)[idle])
    blocked = sum_by_code(codes, len(gaps), ints(rows, BLOCKED_NS)[idle])
    length = start[gaps + 1] - np.maximum(end[gaps], called)
    return int(np.minimum(length, blocked).sum())
