"""Exact integer statistics of intervals by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analysis import Column
from tracekit.runs.intervals import Ints
from tracekit.schema import C

from .common import ints, share, sort_by, spans, union_by
from .groups import keys_of, number_by, order_in_groups, sum_by_code

_UNION = "union_ns"
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
    """Partial statistics of intervals by group, which can be combined exactly across ranks."""

    labels: pd.DataFrame  # a row per group: the keys and union_ns
    # an element per group and distinct duration, sorted: row in `labels`, duration, how often it occurs
    groups: Ints
    durations: Ints
    counts: Ints


def partial_stats(frame: pd.DataFrame, keys: Sequence[str]) -> PartialStats:
    """Partial statistics of the intervals of some ranks by keys.

    The intervals have rank and device; none of the keys may be null, and categories must be sorted.
    """
    codes, first = number_by(frame, keys)
    labels = keys_of(frame, keys, first, object)
    labels[_UNION] = unions_over_devices(frame, codes, len(labels))
    durations = ints(frame, C.DUR_NS)
    order = order_in_groups(codes, durations)
    codes, durations = codes[order], durations[order]
    first = np.flatnonzero((np.diff(codes, prepend=-1) != 0) | (np.diff(durations, prepend=-1) != 0))
    counts = np.diff(first, append=len(codes))
    return PartialStats(labels=labels, groups=codes[first], durations=durations[first], counts=counts)


def combine_stats(parts: Sequence[PartialStats]) -> pd.DataFrame:
    """Combine at least one partial result: the keys, then `STAT_COLUMNS`, largest sum first."""
    labels = pd.concat([part.labels for part in parts], ignore_index=True)
    keys = [str(name) for name in labels.columns[:-1]]
    of_label, first_of_table = number_by(labels, keys)
    table = labels[keys].take(first_of_table).reset_index(drop=True)
    table[_UNION] = sum_by_code(of_label, len(table), ints(labels, _UNION))
    first_label = np.cumsum([0, *(len(part.labels) for part in parts)])
    groups = np.concatenate(
        [of_label[first:][part.groups] for first, part in zip(first_label, parts, strict=False)]
    )
    durations = np.concatenate([part.durations for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    order = order_in_groups(groups, durations)
    groups, durations, counts = groups[order], durations[order], counts[order]
    first = np.searchsorted(groups, np.arange(len(table)))
    table["count"] = sum_by_code(groups, len(table), counts)
    table["sum_ns"] = sum_by_code(groups, len(table), durations * counts)
    table["min_ns"] = durations[first]
    table["max_ns"] = durations[np.append(first, len(groups))[1:] - 1]
    # the lower median is the first duration that at least half of the group does not exceed
    up_to = np.cumsum(counts)
    before = (up_to - counts)[first]
    table["median_ns"] = durations[np.searchsorted(up_to, before + (ints(table, "count") + 1) // 2)]
    table["share"] = share(ints(table, "sum_ns"), int(table["sum_ns"].sum()))
    columns = [*keys, *(column.name for column in STAT_COLUMNS)]
    return sort_by(table[columns], "-sum_ns", *keys)


def unions_over_devices(frame: pd.DataFrame, codes: Ints, groups: int) -> Ints:
    """Union of the intervals of each group per device, summed over devices, which run concurrently."""
    start, end = spans(frame)
    places, first = number_by(frame, [C.RANK, C.DEVICE])
    devices = max(1, len(first))
    lengths = union_by(codes * devices + places, groups * devices, start, end)
    total: Ints = lengths.reshape(groups, devices).sum(axis=1)
    return total
