"""Find the part of a sequence that repeats most.

A repeat is a sequence of p elements that follows itself directly, k ≥ 2 times; it covers k·p elements. Where
it repeats, every element equals the one p later. Candidates for p are the distances between successive equal
subsequences of 1, 2, 4, ... elements, most frequent first: a subsequence that occurs once per repeat has the
next one p later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tracekit.runs.intervals import Ints

CANDIDATES = 16
"""Distances that are tried for each length of a subsequence, the most frequent ones."""


class Repeat(NamedTuple):
    """A repeated part of a sequence.

    Attributes:
        start: Position of its first element.
        period: Number of its elements.
        repeats: How often it occurs in succession.
    """

    start: int
    period: int
    repeats: int

    @property
    def end(self) -> int:
        """Position after the last repeat."""
        return self.start + self.period * self.repeats


def largest_repeat(sequence: Ints) -> Repeat | None:
    """Return the repeat that covers most elements: the shortest of these, and the first of equals.

    Args:
        sequence: Codes of the elements.

    Returns:
        None if no element follows itself and no part does.

    Example:
        >>> largest_repeat(np.array([9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 8]))
        Repeat(start=1, period=3, repeats=3)
    """
    best: Repeat | None = None
    tried: set[int] = set()
    for period in _periods(sequence):
        if period in tried:
            continue
        tried.add(period)
        found = _with_period(sequence, period)
        if found and (best is None or _rank(found) < _rank(best)):
            best = found
    return best


def _rank(found: Repeat) -> tuple[int, int, int]:
    return -found.period * found.repeats, found.period, found.start


def _periods(sequence: Ints) -> Iterator[int]:
    """Yield candidates of the period, for subsequences of each length."""
    _, codes = np.unique(sequence, return_inverse=True)
    length = 1
    while len(codes) > 1:
        order = np.argsort(codes, kind="stable")
        same = codes[order[1:]] == codes[order[:-1]]
        distances, counts = np.unique(np.diff(order)[same], return_counts=True)
        if not len(distances):
            return  # no subsequence of this length occurs twice, so no longer one does
        yield from distances[np.lexsort((distances, -counts))[:CANDIDATES]].tolist()
        pairs = codes[:-length] * (int(codes.max()) + 1) + codes[length:]
        _, codes = np.unique(pairs, return_inverse=True)
        length *= 2


def _with_period(sequence: Ints, period: int) -> Repeat | None:
    """Return the repeat of a period that covers most; the first of equals."""
    equal = np.concatenate(([False], sequence[period:] == sequence[:-period], [False]))
    turns = np.diff(equal.astype(np.int8))
    begin, end = np.flatnonzero(turns > 0), np.flatnonzero(turns < 0)
    count = (end - begin) // period + 1
    if not len(count) or count.max() < 2:
        return None
    at = int(np.argmax(count))
    return Repeat(int(begin[at]), period, int(count[at]))
