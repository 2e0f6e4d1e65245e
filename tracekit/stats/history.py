"""Steps in the history of a metric: places where the level of its sessions changed for good.

Runs of one session share its level, so that sessions, not runs, are the samples. A step is found by
E-divisive, which assumes no distribution: the place that separates the sessions before it best from those
after it, if none of 999 random orders of the sessions has a place that separates as well. Both parts are then
searched in the same way.

Sources: Matteson and James 2014 (E-divisive); Daly et al. 2020 (its use for the history of a benchmark).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tracekit.stats.comparison import Values
from tracekit.stats.effects import Floats
from tracekit.stats.noise import Noise, estimate_noise

MAX_P = 0.001
ORDERS = 999
"""Random orders: as few as show a probability of `MAX_P`."""
MIN_LEVELS = 16
"""Sessions of the shortest history with a step: of fewer, too many random orders separate as well."""
MAX_ENDS = 64
"""In a long history about this many ends of the sessions after a step are tried."""
_SEED = 20140


@dataclass(frozen=True)
class Segment:
    """Sessions between two steps."""

    start: int  # number of its first session
    end: int  # number of the session after its last
    level: float  # median of its sessions
    ratio: float = 1.0  # its level over that of the segment before; 1 for the first


def find_segments(levels: Values) -> tuple[Segment, ...]:
    """Divide a history at its steps.

    Args:
        levels: Level of each session, above 0, in order.

    Returns:
        The segments in order; one if there is no step, none without sessions.

    Example:
        >>> before, after = [100, 101, 99, 100, 102, 98, 100, 101], [120, 121, 119, 120, 122, 118, 121, 120]
        >>> [(part.start, part.level, round(part.ratio, 2)) for part in find_segments(before + after)]
        [(0, 100.0, 1.0), (8, 120.0, 1.2)]
        >>> len(find_segments(before))
        1
    """
    values = np.asarray(levels, float)
    if not values.size:
        return ()
    edges = [0, *_find_steps(np.log(values), np.random.default_rng(_SEED)), values.size]
    segments: list[Segment] = []
    for start, end in pairwise(edges):
        level = float(np.median(values[start:end]))
        segments.append(Segment(start, end, level, level / segments[-1].level if segments else 1.0))
    return tuple(segments)


def noise_between_sessions(levels: Sequence[float], segments: Sequence[Segment]) -> Noise:
    """Return the noise of the level of a session, without the steps."""
    return estimate_noise([levels[segment.start : segment.end] for segment in segments])


def _find_steps(logs: Floats, rng: np.random.Generator) -> list[int]:
    """Return the first session after each step."""
    if logs.size < MIN_LEVELS:
        return []
    distances = np.abs(logs[:, None] - logs[None, :])
    place, separation = _best_division(distances)
    for _ in range(ORDERS):
        order = rng.permutation(logs.size)
        # Orders that only exchange equal values separate as well, up to rounding.
        if _best_division(distances[np.ix_(order, order)])[1] >= separation * (1 - 1e-9):
            return []
    later = [place + step for step in _find_steps(logs[place:], rng)]
    return [*_find_steps(logs[:place], rng), place, *later]


def _best_division(distances: Floats) -> tuple[int, float]:
    """Return the place that separates the sessions before it best from following ones, and how well.

    Those after it need not reach to the end, so that a level that returns is found too.
    """
    count = len(distances)
    # sums[i, j] is the sum over the first i rows and j columns, so that each division takes a few additions.
    sums = np.zeros((count + 1, count + 1))
    sums[1:, 1:] = distances.cumsum(axis=0).cumsum(axis=1)
    # Of a long history, fewer ends: only what a level that returns is compared with depends on them.
    ends = np.arange(count, 1, -max(1, count // MAX_ENDS))
    places = np.arange(1, count)[:, None]
    before, after = places, np.maximum(ends - places, 1)
    within_before = sums.diagonal()[1:count, None]
    across = sums[1:count, ends] - within_before
    within_after = sums.diagonal()[None, ends] - within_before - 2 * across
    energy = 2 * across / (before * after) - within_before / before**2 - within_after / after**2
    separation = np.where(ends > places, before * after / (before + after) * energy, 0.0)
    best = int(separation.argmax())
    return best // ends.size + 1, float(separation.flat[best])
