"""Exact statistics of intervals by group: no float ever holds a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.analysis import Column
from tracekit.schema import C

from .common import ints, share, spans, union_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.intervals import Ints

COLUMNS = (
    Column("count", "count", "number of kernels"),
    Column("sum_ns", "ns", "Σ of durations"),
    Column("union_ns", "ns", "length of the union on each device, summed over devices"),
    Column("min_ns", "ns", "shortest"),
    Column("median_ns", "ns", "median; the lower of the two middle ones"),
    Column("max_ns", "ns", "longest"),
    Column("share", "share", "Σ of durations over that of all kernels of the run"),
)


def by(frame: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """One row per combination of keys, largest sum first: the keys, then `COLUMNS`.

    Args:
        frame: Device intervals with rank and device; none of the keys may be null.
        keys: Columns to group by; categories must be in the order of their texts.
    """
    grouped = frame.groupby(list(keys), sort=True, observed=True)
    codes = grouped.ngroup().to_numpy().astype(np.int64)
    labels = _plain(grouped.size().reset_index()[list(keys)])
    table = labels.join(pd.DataFrame(_statistics(frame, codes, len(labels))))
    order = [*keys, *(column.name for column in COLUMNS)]
    ascending = [False, *(True for _ in keys)]
    return table[order].sort_values(["sum_ns", *keys], ascending=ascending, ignore_index=True)


def _plain(labels: pd.DataFrame) -> pd.DataFrame:
    """Categories as the texts they stand for."""
    kinds = {name: kind for name, kind in labels.dtypes.items() if isinstance(kind, pd.CategoricalDtype)}
    return labels.astype(dict.fromkeys(kinds, object))


def _statistics(frame: pd.DataFrame, codes: Ints, groups: int) -> dict[str, object]:
    duration = ints(frame, C.DUR_NS)
    order = np.lexsort((duration, codes))
    ordered = duration[order]
    count = np.bincount(codes, minlength=groups).astype(np.int64)
    first = np.concatenate(([0], np.cumsum(count)))[:-1].astype(np.int64)
    sums = np.add.reduceat(ordered, first) if groups else np.empty(0, np.int64)
    return {
        "count": count,
        "sum_ns": sums,
        "union_ns": _unions(frame, codes, groups),
        "min_ns": ordered[first],
        "median_ns": ordered[first + (count - 1) // 2],
        "max_ns": ordered[first + count - 1],
        "share": share(sums, int(duration.sum())),
    }


def _unions(frame: pd.DataFrame, codes: Ints, groups: int) -> Ints:
    """Devices run side by side, so each is united alone."""
    start, end = spans(frame)
    places = frame.groupby([C.RANK, C.DEVICE]).ngroup().to_numpy().astype(np.int64)
    lanes = int(places.max()) + 1 if len(places) else 1
    lengths = union_by(codes * lanes + places, groups * lanes, start, end)
    total: Ints = lengths.reshape(groups, lanes).sum(axis=1)
    return total
