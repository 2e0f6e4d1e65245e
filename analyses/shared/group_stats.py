"""Exact integer statistics of intervals by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analysis import Column
from tracekit.runs.intervals import Ints
from tracekit.schema import C

from .common import ints, share, spans, sum_by_code, union_by

_GROUP, _OFTEN, _UNION = "group", "often", "union_ns"
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

    # a row per group and distinct duration: the keys, the duration, and how `often` it occurs
    counts: pd.DataFrame
    unions: pd.DataFrame  # a row per group: the keys and union_ns


def group_stats(frame: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """One row per combination of keys, largest sum first: the keys, then `STAT_COLUMNS`.

    The intervals have rank and device; none of the keys may be null, and categories must be sorted.
    """
    return combine_stats([partial_stats(frame, keys)])


def partial_stats(frame: pd.DataFrame, keys: Sequence[str]) -> PartialStats:
    """Partial statistics of some ranks; the arguments are those of `group_stats`."""
    grouped = frame.groupby(list(keys), sort=True, observed=True)
    codes = grouped.ngroup().to_numpy().astype(np.int64)
    unions = grouped.size().reset_index()[list(keys)]
    durations = pd.DataFrame({_GROUP: codes, C.DUR_NS: ints(frame, C.DUR_NS)})
    often = durations.value_counts(sort=False).rename(_OFTEN).reset_index()
    labels = _with_plain_text(unions).iloc[often.pop(_GROUP)].reset_index(drop=True)
    unions[_UNION] = unions_over_devices(frame, codes, len(unions))
    return PartialStats(counts=labels.join(often), unions=_with_plain_text(unions))


def combine_stats(parts: Sequence[PartialStats]) -> pd.DataFrame:
    """Combine at least one partial result into the table of `group_stats`."""
    unions = pd.concat([part.unions for part in parts], ignore_index=True)
    keys = [str(name) for name in unions.columns[:-1]]
    table = unions.groupby(keys, sort=True)[_UNION].sum().reset_index()
    counts = pd.concat([part.counts for part in parts], ignore_index=True)
    counts[_GROUP] = counts.groupby(keys, sort=True).ngroup()
    counts = counts.groupby([_GROUP, C.DUR_NS], sort=True)[_OFTEN].sum().reset_index()
    grouped, duration = counts.groupby(_GROUP), ints(counts, C.DUR_NS)
    table["count"] = grouped[_OFTEN].sum().to_numpy(np.int64)
    table["sum_ns"] = sum_by_code(ints(counts, _GROUP), len(table), duration * ints(counts, _OFTEN))
    table["min_ns"] = grouped[C.DUR_NS].first().to_numpy(np.int64)
    table["max_ns"] = grouped[C.DUR_NS].last().to_numpy(np.int64)
    # the lower median is the first duration that at least half of the group does not exceed
    half = 2 * grouped[_OFTEN].cumsum() >= grouped[_OFTEN].transform("sum")
    table["median_ns"] = counts[half].groupby(_GROUP)[C.DUR_NS].first().to_numpy(np.int64)
    table["share"] = share(ints(table, "sum_ns"), int(table["sum_ns"].sum()))
    order = [*keys, *(column.name for column in STAT_COLUMNS)]
    ascending = [False, *(True for _ in keys)]
    return table[order].sort_values(["sum_ns", *keys], ascending=ascending, ignore_index=True)


def _with_plain_text(labels: pd.DataFrame) -> pd.DataFrame:
    """Convert categories to text."""
    kinds = {name: kind for name, kind in labels.dtypes.items() if isinstance(kind, pd.CategoricalDtype)}
    return labels.astype(dict.fromkeys(kinds, object))


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
