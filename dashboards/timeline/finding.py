"""Search intervals by name, and step to the next or previous one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .lanes import IDLE, STEPS
from .totals import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.intervals import Ints

    from .index import Index
    from .lanes import Lane
    from .totals import Totals

LONGEST = 500
"""Maximum characters of a query."""


def searched(index: Index) -> list[Lane]:
    """Return the searchable lanes: all but idle time and steps, which are also annotations."""
    return [lane for lane in index.lanes if lane.track.kind not in {STEPS, IDLE}]


def search(index: Index, found: Totals, query: str, limit: int) -> dict[str, Any]:
    """Find names that contain a text, ignoring case; largest sums first.

    Args:
        index: The index.
        found: Totals of the searched lanes.
        query: The text.
        limit: Maximum number of names.
    """
    wanted = query.casefold()[:LONGEST]
    matching = np.array([wanted in text for text in index.names.lowered], np.bool_)
    labels = np.flatnonzero((found.count > 0) & matching[index.names.name_of])
    names, place = np.unique(index.names.name_of[labels], return_inverse=True)
    count, total = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
    np.add.at(count, place, found.count[labels])
    np.add.at(total, place, found.sum_ns[labels])
    ranked = np.lexsort((names, -count, -total))
    matches = [
        {
            "name": index.names.texts[int(names[one])],
            "count": int(count[one]),
            "sum_ns": int(total[one]),
            "first": index.reference(_earliest(index, found.first[labels[place == one]])),
        }
        for one in ranked[:limit].tolist()
    ]
    return {"total": len(names), "names": matches}


def _earliest(index: Index, at: Ints) -> int:
    return int(at[np.argmin(index.start[at])])


def step(
    index: Index,
    lanes: Sequence[Lane],
    *,
    name: str = "",
    after: int | None = None,
    before: int | None = None,
) -> dict[str, Any] | None:
    """Return the first interval that starts after an instant, or the last before one; None without any.

    Args:
        index: The index.
        lanes: The lanes to search.
        name: Only intervals with exactly this name; default: any.
        after: The instant after which it starts.
        before: The instant before which it starts; used without `after`.
    """
    labels = _named(index, name) if name else None
    found = [_next(index, lane, labels, after=after, before=before) for lane in lanes]
    places = np.array([at for at in found if at != NOWHERE], np.int64)
    if not len(places):
        return None
    starts = index.start[places]
    return index.reference(int(places[np.argmin(starts) if after is not None else np.argmax(starts)]))


def _named(index: Index, name: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a mask of the labels with a name."""
    if name not in index.names.texts:
        return np.zeros(len(index.names.name_of), np.bool_)
    return index.names.name_of == index.names.texts.index(name)


def _next(
    index: Index,
    lane: Lane,
    labels: np.ndarray[tuple[int], np.dtype[np.bool_]] | None,
    *,
    after: int | None,
    before: int | None,
) -> int:
    own = index.start[lane.at : lane.at + lane.rows]
    if after is not None:
        low, high = lane.at + int(np.searchsorted(own, after, side="right")), lane.at + lane.rows
    else:
        low, high = lane.at, lane.at + int(np.searchsorted(own, before or 0))
    if low >= high:
        return NOWHERE
    if labels is None:
        return low if after is not None else high - 1
    hits = np.flatnonzero(labels[index.label[low:high]])
    return low + int(hits[0 if after is not None else -1]) if len(hits) else NOWHERE
