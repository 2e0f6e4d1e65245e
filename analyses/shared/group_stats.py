"""Exact integer statistics of intervals by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analysis import Column
from tracekit.runs.intervals import Ints
from tracekit.schema import C

from .common import ints, share, spans, union_by

STAT_COLUMNS = (
    Column("count", "count", "number of kernels"),
    Column("sum_ns", "ns", "Σ of durations"),
    Column("union_ns", "ns", "length of the union on each device, summed over devices"),
    Column("min_ns", "ns", "shortest"),
    Column("median_ns", "ns", "lower median"),
    Column("max_ns", "ns", "longest"),
    Column("share", "share", "Σ of durations over that of all kernels of the run"),
)


@dataclass(frozen=True, kw_only=True)
class PartialStats:
    """Partial statistics of intervals by group, which can be combined exactly across ranks.

    Attributes:
        labels: Keys of each group.
        sums: count, sum_ns and union_ns of each group.
        group: Position of the group of each distinct duration, sorted.
        value: Distinct durations, ascending within a group.
        times: Number of occurrences of each distinct duration.
    """

    labels: pd.DataFrame
    sums: pd.DataFrame
    group: Ints
    value: Ints
    times: Ints


def group_stats(frame: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """One row per combination of keys, largest sum first: the keys, then `STAT_COLUMNS`.

    Args:
        frame: Device intervals with rank and device; none of the keys may be null.
        keys: Columns to group by; categories must be sorted.
    """
    return combine_stats([partial_stats(frame, keys)])


def partial_stats(frame: pd.DataFrame, keys: Sequence[str]) -> PartialStats:
    """Partial statistics of some ranks; the arguments are those of `group_stats`."""
    grouped = frame.groupby(list(keys), sort=True, observed=True)
    codes = grouped.ngroup().to_numpy().astype(np.int64)
    labels = _plain(grouped.size().reset_index()[list(keys)])
    group, value, times = _distinct(codes, ints(frame, C.DUR_NS), np.ones(len(frame), np.int64))
    count, total = np.zeros((2, len(labels)), np.int64)
    np.add.at(count, group, times)
    np.add.at(total, group, times * value)
    sums = {"count": count, "sum_ns": total, "union_ns": unions_over_devices(frame, codes, len(labels))}
    return PartialStats(labels=labels, sums=pd.DataFrame(sums), group=group, value=value, times=times)


def combine_stats(parts: Sequence[PartialStats]) -> pd.DataFrame:
    """Combine at least one partial result into the table of `group_stats`."""
    labels = pd.concat([part.labels for part in parts], ignore_index=True)
    keys = [str(name) for name in labels.columns]
    grouped = labels.groupby(keys, sort=True)
    codes = grouped.ngroup().to_numpy().astype(np.int64)
    table = grouped.size().reset_index()[keys]
    sums = pd.concat([part.sums for part in parts], ignore_index=True).groupby(codes).sum()
    table = table.join(sums).assign(**_durations(parts, codes, ints(sums, "count")))
    table["share"] = share(ints(table, "sum_ns"), int(table["sum_ns"].sum()))
    order = [*keys, *(column.name for column in STAT_COLUMNS)]
    ascending = [False, *(True for _ in keys)]
    return table[order].sort_values(["sum_ns", *keys], ascending=ascending, ignore_index=True)


def _plain(labels: pd.DataFrame) -> pd.DataFrame:
    """Convert categories to text."""
    kinds = {name: kind for name, kind in labels.dtypes.items() if isinstance(kind, pd.CategoricalDtype)}
    return labels.astype(dict.fromkeys(kinds, object))


def _distinct(group: Ints, value: Ints, times: Ints) -> tuple[Ints, Ints, Ints]:
    """Distinct values of each group, sorted, with their counts."""
    order = np.lexsort((value, group))
    group, value, times = group[order], value[order], times[order]
    new = np.ones(len(group), bool)
    new[1:] = (group[1:] != group[:-1]) | (value[1:] != value[:-1])
    first = np.flatnonzero(new)
    return group[first], value[first], np.add.reduceat(times, first) if len(first) else times


def _durations(parts: Sequence[PartialStats], codes: Ints, count: Ints) -> dict[str, Ints]:
    """Minimum, lower median and maximum of each group, from the distinct durations of the parts."""
    if not len(count):
        return dict.fromkeys(("min_ns", "median_ns", "max_ns"), count)
    offsets = np.cumsum([0, *(len(part.labels) for part in parts)])
    groups = [codes[part.group + offset] for part, offset in zip(parts, offsets, strict=False)]
    group, value, times = _distinct(
        np.concatenate(groups),
        np.concatenate([part.value for part in parts]),
        np.concatenate([part.times for part in parts]),
    )
    first = np.searchsorted(group, np.arange(len(count)))
    last = np.append(first[1:], len(group)) - 1
    before = np.cumsum(count) - count
    middle = np.searchsorted(np.cumsum(times), before + (count - 1) // 2, side="right")
    return {"min_ns": value[first], "median_ns": value[middle], "max_ns": value[last]}


def unions_over_devices(frame: pd.DataFrame, codes: Ints, groups: int) -> Ints:
    """Union of the intervals of each group per device, summed over devices, which run concurrently.

    Args:
        frame: Intervals with rank and device.
        codes: Group of each interval, 0 up to `groups`.
        groups: Number of groups.
    """
    start, end = spans(frame)
    places = frame.groupby([C.RANK, C.DEVICE]).ngroup().to_numpy().astype(np.int64)
    devices = int(places.max()) + 1 if len(places) else 1
    lengths = union_by(codes * devices + places, groups * devices, start, end)
    total: Ints = lengths.reshape(groups, devices).sum(axis=1)
    return total
