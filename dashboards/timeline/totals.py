"""What lies in a range of time: counts and sums by label, exact, over millions of intervals."""

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
    """Of each label: how many intervals, the sum and the maximum of their parts in the range, and which.

    Attributes:
        longest: Position of the interval with the longest part; `NOWHERE` where there is none.
        first: Position of the first one; `NOWHERE` where there is none.
    """

    count: Ints
    sum_ns: Ints
    max_ns: Ints
    longest: Ints
    first: Ints


def totals(index: Index, lanes: Sequence[Lane], start: int, end: int) -> Totals:
    """Totals of lanes in a range of time."""
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
    """Positions, labels and lengths within the range, some at a time."""
    for lane in lanes:
        first, after = index.within(lane, start, end)
        for low in range(first, after, _STRIPE):
            high = min(low + _STRIPE, after)
            at = np.arange(low, high)
            label = index.labels(at) if lane.track.kind == IDLE else index.label[low:high]
            begun = index.start[low:high]
            ended = begun + np.diff(index.total[low : high + 1])
            part = np.minimum(ended, end) - np.maximum(begun, start)
            yield at, label.astype(np.int64), part


def _longest(found: Totals, at: Ints, label: Ints, part: Ints) -> None:
    before = found.max_ns.copy()
    np.maximum.at(found.max_ns, label, part)
    most = found.max_ns[label]
    hit = np.flatnonzero((part == most) & (most > before[label]))[::-1]
    found.longest[label[hit]] = at[hit]  # backwards, so that of equals the first stays


def _first(index: Index, found: Totals, at: Ints, label: Ints) -> None:
    own = np.full(len(found.first), NOWHERE)
    own[label[::-1]] = at[::-1]
    met = np.flatnonzero(own != NOWHERE)
    known = found.first[met]
    earlier = (known == NOWHERE) | (index.start[own[met]] < index.start[known])
    found.first[met[earlier]] = own[met[earlier]]


def rows(index: Index, found: Totals, *, limit: int | None = None) -> tuple[list[dict[str, Any]], int]:
    """The table of totals, the largest sums first, and how many rows it has in all."""
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
