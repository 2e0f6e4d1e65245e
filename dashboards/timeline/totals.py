"""Exact counts and sums by label in a time range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .categories import CATEGORIES
from .lanes import IDLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracekit.intervals import Ints

    from .index import Index
    from .lanes import Lane

NOWHERE = -1
_STRIPE = 1 << 18


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Per label: number of intervals, and sum and maximum of their parts in the range.

    Attributes:
        longest: Position of the interval with the longest part; `NOWHERE` without any.
        first: Position of the first interval; `NOWHERE` without any.
    """

    count: Ints
    sum_ns: Ints
    max_ns: Ints
    longest: Ints
    first: Ints


def totals(index: Index, lanes: Sequence[Lane], start: int, end: int) -> Totals:
    """Compute the totals of lanes in a time range."""
    size = len(index.names.name_of)
    found = Totals(
        count=np.zeros(size, np.int64),
        sum_ns=np.zeros(size, np.int64),
        max_ns=np.full(size, -1),
        longest=np.full(size, NOWHERE),
        first=np.full(size, NOWHERE),
    )
    for at, label, part in _stripes(index, lanes, start, end):
        found.count[:] += np.bincount(label, minlength=size)
        np.add.at(found.sum_ns, label, part)
        _longest(found, at, label, part)
        _first(index, found, at, label)
    return found


def _stripes(index: Index, lanes: Sequence[Lane], start: int, end: int) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield positions, labels and lengths within the range, in chunks."""
    for lane in lanes:
        first, after = index.within(lane, start, end)
        for low in range(first, after, _STRIPE):
            high = min(low + _STRIPE, after)
            at = np.arange(low, high)
            label = index.labels(at) if lane.track.kind == IDLE else index.label[low:high]
            starts = index.start[low:high]
            ends = starts + np.diff(index.total[low : high + 1])
            part = np.minimum(ends, end) - np.maximum(starts, start)
            yield at, label.astype(np.int64), part


def _longest(found: Totals, at: Ints, label: Ints, part: Ints) -> None:
    before = found.max_ns.copy()
    np.maximum.at(found.max_ns, label, part)
    most = found.max_ns[label]
    hit = np.flatnonzero((part == most) & (most > before[label]))[::-1]
    found.longest[label[hit]] = at[hit]  # in reverse, so that the first wins a tie


def _first(index: Index, found: Totals, at: Ints, label: Ints) -> None:
    own = np.full(len(found.first), NOWHERE)
    own[label[::-1]] = at[::-1]
    present = np.flatnonzero(own != NOWHERE)
    known = found.first[present]
    earlier = (known == NOWHERE) | (index.start[own[present]] < index.start[known])
    found.first[present[earlier]] = own[present[earlier]]


def rows(index: Index, found: Totals, *, limit: int | None = None) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of totals, largest sums first, and their total number."""
    labels = np.flatnonzero(found.count)
    order = np.lexsort((labels, -found.count[labels], -found.sum_ns[labels]))
    ranked = labels[order]
    return [_row(index, found, label) for label in ranked[:limit].tolist()], len(ranked)


def _row(index: Index, found: Totals, label: int) -> dict[str, Any]:
    count, total = int(found.count[label]), int(found.sum_ns[label])
    return {
        "name": index.names.texts[int(index.names.name_of[label])],
        "category": CATEGORIES[int(index.names.category_of[label])],
        "count": count,
        "sum_ns": total,
        "mean_ns": total / count,
        "max_ns": int(found.max_ns[label]),
        "max": index.reference(int(found.longest[label])),
    }
