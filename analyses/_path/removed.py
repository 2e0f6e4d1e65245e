"""Removed host time: its amount before an instant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.intervals import covered_before

from .host import FAR

if TYPE_CHECKING:
    from tracekit.intervals import Ints, Union

    from .host import Bools, Slices, Small

BLOCK = 1 << 17
"""Slices per block, so that intermediate arrays fit the CPU cache."""


@dataclass(frozen=True)
class Removed:
    """Removed host time of one candidate, at the queried slices.

    Attributes:
        before: Removed time before each queried slice.
        inside: Whether the slice is removed.
    """

    before: Ints
    inside: Bools

    def until(self, place: Small, part: Ints) -> Ints:
        """Removed time before instants, given the part of the slice before each of them."""
        return self.before[place] + np.where(self.inside[place], part, 0)


def removed(slices: Slices, codes: Small, count: int, *, queried: Ints, steps: Union) -> list[Removed]:
    """Removed time of several candidates in steps, in one pass over the slices.

    Unbounded time of a thread before its first row and after its last is excluded.

    Args:
        slices: The slices of the host.
        codes: Candidate number of each host row from 1 on, 0 for none; the last entry is that of time in no
            row.
        count: Number of candidates.
        queried: Sorted numbers of the queried slices.
        steps: The steps.
    """
    before, inside = np.zeros((count, len(queried)), np.int64), np.zeros(len(queried), codes.dtype)
    totals = [0] * count
    for first in range(0, len(slices.row) if count else 0, BLOCK):
        cuts = slices.cuts[first : first + BLOCK + 1]
        own = codes[slices.row[first : first + BLOCK]]
        own[(cuts[:-1] == -FAR) | (cuts[1:] == -FAR)] = 0
        length = np.diff(covered_before(steps, cuts))
        here = slice(*np.searchsorted(queried, [first, first + BLOCK]))
        at = queried[here] - first
        inside[here] = own[at]
        for number in range(count):
            removed_ns = np.where(own == number + 1, length, 0)
            total = np.cumsum(removed_ns)
            before[number, here] = totals[number] + total[at] - removed_ns[at]
            totals[number] += int(total[-1])
    return [Removed(before[number], inside == number + 1) for number in range(count)]
