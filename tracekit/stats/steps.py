"""What a search for jumps is asked with, what it asks for, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.stats.bisection import CONFIDENCE


@dataclass(frozen=True)
class Options:
    """How sure a search has to be.

    Attributes:
        repeats: Measurements of every commit; at least 2 unless the noise is known.
        most: Measurements of one commit after which it is taken as undecided.
        confidence: Posterior from which a commit is on a side.
        extra: Posterior from which a half goes on that does not hold the greater part of a jump, and from
            which a step between commits is reported; higher, since a search asks it of many stretches.
        share: Part of the whole jump from which a part of it is searched for.
    """

    repeats: int = 3
    most: int = 12
    confidence: float = CONFIDENCE
    extra: float = 0.99
    share: float = 0.2


@dataclass(frozen=True)
class Measure:
    """Measure this commit so many times more."""

    commit: int
    repeats: int


@dataclass(frozen=True)
class Jump:
    """A jump of the series.

    Attributes:
        after: Last measured commit before it.
        at: First measured commit after it: the culprit, if `suspects` names no other.
        effect: Difference of the levels, as a rule a logarithm.
        low: Lower bound of its 95% interval.
        high: Upper bound.
        posterior: Probability that it is a jump in the direction of the whole.
        suspects: Commits that may have made it: `at`, and those before it that could not be measured.
    """

    after: int
    at: int
    effect: float
    low: float
    high: float
    posterior: float
    suspects: tuple[int, ...]


@dataclass(frozen=True)
class Found:
    """The end of a search.

    Attributes:
        jumps: Jumps that are sure, in order of commits.
        undecided: Steps that may be jumps, but repeats did not make sure.
        reason: Why there is none, where there is none.
    """

    jumps: tuple[Jump, ...]
    undecided: tuple[Jump, ...] = ()
    reason: str = ""
