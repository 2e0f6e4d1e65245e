"""Blocks of two runs, one of each side, made right after one another: what drifts is common to both."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    return "".join(_B + _A if block % 2 else _A + _B for block in range(start, start + k))


def pairs(times_a: Sequence[float], times_b: Sequence[float]) -> tuple[list[int], list[int]] | None:
    """Stored runs as blocks, if that is how they were made.

    Args:
        times_a: When each run of the base was made, in any unit.
        times_b: The same of the head.

    Returns:
        Positions of the runs of base and head, block by block; None where the sides did not alternate.

    Example:
        >>> pairs([1, 4, 5], [2, 3, 6])
        ([0, 1, 2], [0, 1, 2])
        >>> pairs([1, 2, 3], [4, 5, 6]) is None
        True
    """
    runs = _in_order(times_a, times_b)
    found = list(zip(runs[::2], runs[1::2], strict=False))
    if len(times_a) != len(times_b) or any(first[1] == second[1] for first, second in found):
        return None
    sides = {side: [at for block in found for _, own, at in block if own == side] for side in (_A, _B)}
    return sides[_A], sides[_B]


def apart(times_a: Sequence[float], times_b: Sequence[float]) -> bool:
    """Whether all runs of one side were made before all of the other: what drifted looks like an effect then.

    Example:
        >>> apart([1, 2, 3], [4, 5, 6]), apart([1, 4], [2, 3])
        (True, False)
    """
    return bool(times_a and times_b) and (max(times_a) < min(times_b) or max(times_b) < min(times_a))


def _in_order(times_a: Sequence[float], times_b: Sequence[float]) -> list[tuple[float, str, int]]:
    """All runs by time: time, side, position among the runs of the side."""
    sides = ((_A, times_a), (_B, times_b))
    return sorted((time, side, at) for side, times in sides for at, time in enumerate(times))
