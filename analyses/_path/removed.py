"""Host time that is taken away: how much of it lies before an instant."""

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
"""Slices looked at together: what is made of them stays in the processor's cache."""


@dataclass(frozen=True)
class Removed:
    """One thing taken away, as far as it is asked about.

    Attributes:
        before: How much time of it lies before each slice that is asked about.
        inside: Whether it is that slice.
    """

    before: Ints
    inside: Bools

    def until(self, place: Small, part: Ints) -> Ints:
        """How much lies before instants, each in a slice of which this part is before it."""
        return self.before[place] + np.where(self.inside[place], part, 0)


def removed(slices: Slices, codes: Small, count: int, *, asked: Ints, steps: Union) -> list[Removed]:
    """What several things take away, as far as it lies in the steps, in one pass over the slices.

    Time of a thread before its first row and after its last has no end, and is none of it.

    Args:
        slices: The slices of the host.
        codes: Number from 1 on of what each row of the host is part of, 0 for none; at last that of time in
            no row.
        count: Number of things.
        asked: Numbers of the slices that are asked about, rising.
        steps: The steps.
    """
    before, inside = np.zeros((count, len(asked)), np.int64), np.zeros(len(asked), codes.dtype)
    passed = [0] * count
    for first in range(0, len(slices.row) if count else 0, BLOCK):
        cuts = slices.cuts[first : first + BLOCK + 1]
        own = codes[slices.row[first : first + BLOCK]]
        own[(cuts[:-1] == -FAR) | (cuts[1:] == -FAR)] = 0
        length = np.diff(covered_before(steps, cuts))
        here = slice(*np.searchsorted(asked, [first, first + BLOCK]))
        at = asked[here] - first
        inside[here] = own[at]
        for number in range(count):
            gone = np.where(own == number + 1, length, 0)
            total = np.cumsum(gone)
            before[number, here] = passed[number] + total[at] - gone[at]
            passed[number] += int(total[-1])
    return [Removed(before[number], inside == number + 1) for number in range(count)]
