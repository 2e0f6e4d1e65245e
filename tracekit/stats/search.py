"""Search for the commit of a jump of a metric, from noisy measurements.

A measurement's logarithm is normal about its commit's level with one spread for all commits, estimated from
the repeats (and from history). Levels have flat priors, so that comparisons of levels (whether a level is
above the midpoint of two others, whether two levels differ by more than an amount) have Student's t as their
exact posterior.

The search is independent of git: commits are numbered from 0 (good) to `last` (bad). It is a pure function of
the measurements, so it can be stopped and resumed from a cache of them.

A range between two measured commits is halved at the buildable commit nearest to its middle. The half whose
ends are on different sides of the midpoint of the range continues; so does the other half if its own ends
differ by more than a share of the whole jump, which finds jumps in two commits. Uncertain commits are
measured again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.errors import UnusableInputError
from tracekit.stats.effects import Floats, quantile

REPEATS = 3
"""Measurements of every commit; at least 2 unless they repeat exactly."""
MAX_REPEATS = 12
"""Measurements of one commit after which it is taken as undecided."""
CONFIDENCE = 0.95
"""Posterior from which a commit is on a side."""
SURE = 0.99
"""Posterior from which a half goes on that does not hold the greater part of a jump, and from which a step
between commits is reported; higher, since a search asks it of many stretches."""
MIN_SHARE = 0.2
"""Part of the whole jump from which a part of it is searched for."""


@dataclass(frozen=True)
class Level:
    """Measurements of a commit: mean of the values (usually logarithms) and their number."""

    mean: float
    count: int


@dataclass(frozen=True)
class Spread:
    """Spread of one measurement: standard deviation and degrees of freedom."""

    sigma: float
    df: float


def level(values: Floats) -> Level:
    """Return the level of a commit from its measurements."""
    return Level(float(values.mean()), int(values.size))


EXACT = Spread(0.0, np.inf)
"""Spread of counts, which repeat exactly."""


def pool_spread(measured: Iterable[Floats]) -> Spread:
    """Return the common spread of the measurements of each commit around its level.

    Example:
        >>> pool_spread([np.array([1.0, 3.0]), np.array([5.0, 7.0])])
        Spread(sigma=1.4142135623730951, df=2.0)
    """
    squares, df = 0.0, 0.0
    for values in measured:
        squares += float(((values - values.mean()) ** 2).sum())
        df += values.size - 1
    return Spread(float(np.sqrt(squares / df)) if df else float("nan"), df)


def posterior_bad(good: Level, bad: Level, commit: Level, spread: Spread) -> float:
    """Probability that a commit's level is on the bad side of the midpoint of good and bad.

    Args:
        good: Level before the jump.
        bad: Level after it, in either direction.
        commit: Level of the commit in question.
        spread: Of one measurement.

    Example:
        >>> round(posterior_bad(Level(0.0, 3), Level(0.1, 3), Level(0.09, 3), Spread(0.02, 6)), 3)
        0.985
    """
    sign = np.sign(bad.mean - good.mean) or 1.0
    distance = commit.mean - (good.mean + bad.mean) / 2
    variance = 1 / commit.count + 1 / (4 * good.count) + 1 / (4 * bad.count)
    return _above(float(sign * distance), variance, spread)


def posterior_jump(
    left: Level, right: Level, spread: Spread, *, least: float = 0.0, sign: float = 1.0
) -> float:
    """Probability that the level rises by more than `least` from one commit to a later one.

    Args:
        left: Level of the earlier commit.
        right: Level of the later one.
        spread: Of one measurement.
        least: Rise in question.
        sign: -1 to ask for a fall instead.
    """
    rise = sign * (right.mean - left.mean) - least
    return _above(rise, 1 / left.count + 1 / right.count, spread)


def further_repeats(
    good: Level, bad: Level, commit: Level, spread: Spread, *, most: int = MAX_REPEATS
) -> int:
    """Return the measurements (1 to `most`) that would decide a commit's side at its estimated level.

    Args:
        good: Level before the jump.
        bad: Level after it.
        commit: Level of the commit in question.
        spread: Of one measurement.
        most: Maximum number of measurements.

    Example:
        >>> further_repeats(Level(0.0, 3), Level(0.1, 3), Level(0.06, 3), Spread(0.02, 6))
        12
    """
    for more in range(1, most + 1):
        repeated = Level(commit.mean, commit.count + more)
        posterior = posterior_bad(good, bad, repeated, spread)
        if max(posterior, 1 - posterior) >= CONFIDENCE:
            return more
    return most


def _above(distance: float, variance: float, spread: Spread) -> float:
    """Return the posterior probability that a contrast is above 0; without spread, its sign decides."""
    from scipy.special import ndtr, stdtr

    if spread.sigma == 0:
        return 0.5 if distance == 0 else float(distance > 0)
    t = distance / (spread.sigma * np.sqrt(variance))
    return float(ndtr(t) if np.isinf(spread.df) else stdtr(spread.df, t))


@dataclass(frozen=True)
class Measure:
    """Request for further measurements of a commit."""

    commit: int
    repeats: int


@dataclass(frozen=True)
class Jump:
    """Change point of the series."""

    after: int  # last measured commit before it
    at: int  # first measured commit after it: the culprit, if `suspects` names no other
    effect: float  # difference of the levels, as a rule a logarithm
    low: float  # lower bound of its 95% interval
    high: float
    posterior: float  # probability that it is a jump in the direction of the whole
    # commits that may have made it: `at`, and those before it that could not be measured
    suspects: tuple[int, ...]


@dataclass(frozen=True)
class Found:
    """The end of a search."""

    jumps: tuple[Jump, ...]  # jumps that are sure, in order of commits
    undecided: tuple[Jump, ...] = ()  # steps that may be jumps, but repeats did not make sure
    reason: str = ""  # why there is none, where there is none


def next_step(
    measured: Mapping[int, Sequence[float]],
    *,
    last: int,
    broken: frozenset[int] = frozenset(),
    repeats: int = REPEATS,
    exact: bool = False,
) -> Measure | Found:
    """Return the next action of a search for change points.

    Args:
        measured: Values measured of each commit so far; empty at the start.
        last: Number of the bad anchor; 0 is the good one.
        broken: Commits that cannot be measured; no anchor.
        repeats: Measurements of every commit.
        exact: Whether values are counts, which repeat exactly and may be 0; else logarithms are compared.

    Returns:
        The commit to measure and how often, or what was found.

    Raises:
        UnusableInputError: There is nothing between the anchors to search, or a value is not above 0.

    Example:
        >>> next_step({}, last=64)
        Measure(commit=0, repeats=3)
        >>> found = next_step({0: [1], 2: [161], 1: [161]}, last=2, repeats=1, exact=True)
        >>> [(jump.after, jump.at) for jump in found.jumps]
        [(0, 1)]
    """
    if last < 1:
        raise UnusableInputError("there is no commit after the good one", hint="choose an older good commit")
    values = {commit: np.array(raw, float) for commit, raw in sorted(measured.items()) if raw}
    if not exact:
        if any((numbers <= 0).any() for numbers in values.values()):
            raise UnusableInputError("a measured value is not above 0", hint="search counts with --signature")
        values = {commit: np.log(numbers) for commit, numbers in values.items()}
    for anchor in (0, last):
        missing = repeats - (values[anchor].size if anchor in values else 0)
        if missing > 0:
            return Measure(anchor, missing)
    levels = {commit: level(numbers) for commit, numbers in values.items()}
    spread = EXACT if exact else pool_spread(values.values())
    return _from_anchors(_Search(levels, spread, last, broken, repeats))


@dataclass(frozen=True)
class _Search:
    """State of a search: what `next_step` was given, as levels."""

    levels: dict[int, Level]
    spread: Spread
    last: int
    broken: frozenset[int]
    repeats: int

    @property
    def jump(self) -> float:
        """The whole jump, from anchor to anchor."""
        return self.levels[self.last].mean - self.levels[0].mean

    def holds(self, left: int, right: int) -> bool:
        """Whether a stretch surely holds a part of the jump that is worth finding."""
        return self.posterior(left, right) >= SURE

    def posterior(self, left: int, right: int) -> float:
        """Probability that a stretch holds a part of the jump that is worth finding."""
        ends, least = (self.levels[left], self.levels[right]), MIN_SHARE * abs(self.jump)
        return posterior_jump(*ends, self.spread, least=least, sign=float(np.sign(self.jump)))

    def weaker(self, left: int, right: int) -> int:
        """The commit of two that was measured less often."""
        return min((left, right), key=lambda commit: (self.levels[commit].count, commit))

    def repeats_left(self, commit: int) -> int:
        """Return how often a commit may still be measured; exact metrics need no repetition."""
        return max(0, MAX_REPEATS - self.levels[commit].count) if self.spread.sigma else 0

    def again(self, left: int, right: int) -> Measure:
        """More measurements of the commit of two that has fewer."""
        commit = self.weaker(left, right)
        return Measure(commit, min(self.repeats, self.repeats_left(commit)))


def _from_anchors(search: _Search) -> Measure | Found:
    """Search between the anchors once they differ significantly."""
    good, bad = search.levels[0], search.levels[search.last]
    sure = posterior_jump(good, bad, search.spread, sign=float(np.sign(search.jump)))
    # The direction is that of the data, so that noise alone reaches a posterior of 0.95 in 1 of 10 cases:
    # half of the remaining doubt is asked for, as in a two-sided test.
    if search.jump and sure >= (1 + CONFIDENCE) / 2:
        step = _search(search, 0, search.last)
        if isinstance(step, Measure):
            return step
        jumps = tuple(jump for jump in step if jump.posterior >= SURE)
        undecided = tuple(jump for jump in step if jump.posterior < SURE)
        return Found(jumps, undecided, "" if jumps else "no single commit makes the jump for sure")
    if search.repeats_left(search.weaker(0, search.last)):
        return search.again(0, search.last)
    return Found((), reason="measured again, the good and the bad commit do not differ")


def _search(search: _Search, left: int, right: int) -> Measure | list[Jump]:
    """Return what to measure in a range with a change point, or the change points found in it."""
    candidates = [commit for commit in range(left + 1, right) if commit not in search.broken]
    middle = min(candidates, key=lambda commit: (abs(2 * commit - left - right), commit), default=None)
    if middle is None:
        return _adjacent(search, left, right)
    missing = search.repeats - (search.levels[middle].count if middle in search.levels else 0)
    if missing > 0:
        return Measure(middle, missing)
    halves = _halves(search, left, middle, right)
    if isinstance(halves, Measure):
        return halves
    jumps: list[Jump] = []
    for start, end in halves:
        step = _search(search, start, end)
        if isinstance(step, Measure):
            return step
        jumps += step
    return jumps


def _halves(search: _Search, left: int, middle: int, right: int) -> Measure | list[tuple[int, int]]:
    """Return the halves that contain a change point, or the repeats needed to decide."""
    halves = [(left, middle), (middle, right)]
    ends = search.levels[left], search.levels[right], search.levels[middle]
    bad = posterior_bad(*ends, search.spread)
    if max(bad, 1 - bad) < CONFIDENCE:
        missing = search.repeats_left(middle)
        # A commit between two jumps lies near the midpoint of both ends: no repetition puts it on a side.
        if missing and not all(search.holds(*half) for half in halves):
            return Measure(middle, further_repeats(*ends, search.spread, most=missing))
        return halves
    # The side of the middle says which half holds the greater part of the jump; the other may hold a second.
    main, other = halves if bad >= CONFIDENCE else halves[::-1]
    if 0.5 <= search.posterior(*other) < SURE and search.repeats_left(search.weaker(*other)):
        return search.again(*other)
    return sorted([main, other]) if search.holds(*other) else [main]


def _adjacent(search: _Search, left: int, right: int) -> Measure | list[Jump]:
    """Decide the step between two adjacent commits, measuring until it is significant."""
    if not search.holds(left, right) and search.repeats_left(search.weaker(left, right)):
        return search.again(left, right)
    a, b, spread = search.levels[left], search.levels[right], search.spread
    half = float(quantile(0.975, spread.df)) * spread.sigma * (1 / a.count + 1 / b.count) ** 0.5
    effect = b.mean - a.mean
    suspects = tuple(range(left + 1, right + 1))  # those between could not be measured
    return [Jump(left, right, effect, effect - half, effect + half, search.posterior(left, right), suspects)]
