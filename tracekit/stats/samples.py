"""Blocks of two runs, one per side, made consecutively, so that drift affects both; comparison in cycles.

If a device runs base and head at different clocks, kernel times differ without a change of code, and changes
of code may be hidden. If the clocks differ by more than the tolerance, the verdict must hold in cycles as
well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from tracekit.stats.compare import compare
from tracekit.stats.comparison import Comparison, Metric, Verdict
from tracekit.stats.noise import Noise, Sessions

_A, _B = "A", "B"


def order(k: int, *, start: int = 0) -> str:
    """The sides of 2k runs in ABBA order, the base being A; each two runs are a block.

    Args:
        k: Runs per side.
        start: Blocks that were made before, whose order goes on.

    Example:
        >>> order(5), order(2, start=5)
        ('ABBAABBAAB', 'BAAB')
    """
    # In ABBA order a linear drift adds as much to the base as to the head, over every two blocks.
    return "".join(_B + _A if block % 2 else _A + _B for block in range(start, start + k))


class Blocks(NamedTuple):
    """Positions of the runs of base and head, block by block, and whether the base ran first in each."""

    a: list[int]
    b: list[int]
    base_first: list[bool]


MIN_BLOCKS = 3
"""Blocks that show that runs alternated, if other runs of both sides are in none."""


def pairs(times_a: Sequence[float], times_b: Sequence[float]) -> Blocks | None:
    """Return the blocks of stored runs: neighbors in time, one of each side.

    Further runs, such as older ones of the base, are in no block.

    Args:
        times_a: When each run of the base was made, in any unit.
        times_b: The same of the head.

    Returns:
        None where the sides did not alternate: most runs of each side are in no block.

    Example:
        >>> pairs([1, 4, 5], [2, 3, 6])
        Blocks(a=[0, 1, 2], b=[0, 1, 2], base_first=[True, False, True])
        >>> pairs([-2, -1, 0, 1, 4], [2, 3])
        Blocks(a=[3, 4], b=[0, 1], base_first=[True, False])
        >>> pairs([1, 2, 3], [4, 5, 6]) is None
        True
    """
    runs = sorted(
        (time, side, position)
        for side, times in ((_A, times_a), (_B, times_b))
        for position, time in enumerate(times)
    )
    blocks, place = [], 0
    while place < len(runs) - 1:
        is_block = runs[place][1] != runs[place + 1][1]
        blocks += [(runs[place], runs[place + 1])] if is_block else []
        place += 1 + is_block
    fewest = min(len(times_a), len(times_b))
    if len(blocks) < 2 or (len(blocks) < fewest and len(blocks) < max(MIN_BLOCKS, fewest / 2)):
        return None
    sides = {
        side: [position for block in blocks for _, side_of_run, position in block if side_of_run == side]
        for side in (_A, _B)
    }
    return Blocks(sides[_A], sides[_B], [first[1] == _A for first, _ in blocks])


Known: TypeAlias = "Sequence[float | None]"

TOLERANCE = 0.02
"""Relative difference of clocks that is none."""


def at_their_clocks(
    time: Comparison,
    times: tuple[Known, Known],
    clocks: tuple[Known, Known],
    *,
    base_first: Sequence[bool] | None = None,
    noise: Noise | Sessions | None = None,
) -> Comparison:
    """A comparison of times, judged in cycles too where the clocks of the sides differ.

    Args:
        time: The comparison in time.
        times: The times it compared, one per run of base and head; None where a run has none.
        clocks: Mean SM clock of the same runs, MHz; None where it is unknown.
        base_first: Whether the base ran first in each block that `time` paired.
        noise: Noise of one run that `time` was judged by, if any.

    Returns:
        `time` where a side knows no clock, or where they do not differ.
    """
    sides = [list(zip(*side, strict=True)) for side in zip(times, clocks, strict=True)]
    clocks_of_sides = [[c for t, c in side if t is not None and c is not None] for side in sides]
    if not all(clocks_of_sides):
        return time
    clock_a, clock_b = (sum(side) / len(side) for side in clocks_of_sides)
    in_cycles = None
    if not any(t is not None and c is None for side in sides for t, c in side):
        a, b = (
            [cycles(t, c) if t is not None and c is not None else None for t, c in side] for side in sides
        )
        metric = Metric(time.name, "cycles", time.direction)
        in_cycles = compare(
            metric,
            a,
            b,
            paired=time.paired,
            base_first=base_first,
            noise=None
            if isinstance(noise, Sessions)
            else noise,  # the clocks of earlier sessions are unknown
            threshold=time.threshold,
            alpha=time.alpha,
        )
    return reconcile(time, in_cycles, clock_a, clock_b)


def cycles(time_ns: float, clock_mhz: float) -> float:
    """Clock cycles in a time.

    Example:
        >>> cycles(1_000_000, 1_980)
        1980000.0
    """
    return time_ns * clock_mhz / 1000


def clocks_differ(clock_a: float, clock_b: float) -> bool:
    """Tell whether two clocks are too far apart to compare times alone.

    Example:
        >>> clocks_differ(1_980, 1_950), clocks_differ(1_980, 1_900)
        (False, True)
    """
    return max(clock_a, clock_b) / min(clock_a, clock_b) - 1 > TOLERANCE


def reconcile(time: Comparison, in_cycles: Comparison | None, clock_a: float, clock_b: float) -> Comparison:
    """The verdict in time, unless the clocks differ and cycles say otherwise.

    Args:
        time: The comparison in time.
        in_cycles: The same runs compared in cycles; None where a run has no clock.
        clock_a: Mean SM clock of the base's runs, MHz.
        clock_b: The same of the head's.

    Returns:
        `time`, with "cannot tell" where the clocks differ and the verdicts do not agree.
    """
    if time.ci95 is None or not clocks_differ(clock_a, clock_b):
        return time
    clocks = f"SM clock {clock_a:.0f} MHz against {clock_b:.0f} MHz"
    if in_cycles is None:
        reason = f"{clocks}, and without cycles their part in it is unknown"
    elif in_cycles.verdict is time.verdict:
        return replace(time, reason=f"{time.reason}; the same holds in cycles ({clocks})")
    else:
        reason = f"{clocks}: {time.verdict} in time, but {in_cycles.verdict} in cycles"
    return replace(time, verdict=Verdict.CANNOT_TELL, reason=reason)
