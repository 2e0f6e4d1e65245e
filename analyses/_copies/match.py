"""Matching of the copies of two runs.

Groups are matched in the order of their first copies in a step, by the first of these keys that agrees: op,
shape, dtype, bytes, memory and the function of the source line; the same without the function; without the
memory; op and shape; op, dtype and every dimension but the first; op, dtype and number of dimensions; op and
number of dimensions (at least two).

If a shape is unknown the op must agree, and bytes decide: a ratio explained by the runs' settings, then equal
bytes, then the nearest; if bytes are unknown, the order. The rest is copied in only one run.
"""

from __future__ import annotations

from bisect import bisect
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from .groups import Group

    Key: TypeAlias = Callable[[Group], Any]
    Pairs: TypeAlias = list[tuple[Group, Group]]

_KEYS: tuple[Key, ...] = (
    lambda one: (one.op, one.shape, one.dtype, one.size, one.memory, one.function),
    lambda one: (one.op, one.shape, one.dtype, one.size, one.memory),
    lambda one: (one.op, one.shape, one.dtype, one.size),
    lambda one: (one.op, one.shape) if one.shape else None,
    lambda one: (one.op, one.dtype, one.dimensions[1:]) if one.shape else None,
    lambda one: (one.op, one.dtype, len(one.dimensions)) if one.shape else None,
    lambda one: (one.op, len(one.dimensions)) if len(one.dimensions) > 1 else None,
)


def matched(
    base: list[Group], head: list[Group], ratios: Collection[Fraction] = ()
) -> list[tuple[Group | None, Group | None]]:
    """Pair each group of one run with its counterpart in the other, None if there is none.

    Args:
        base: Groups of one run.
        head: Groups of the other.
        ratios: Bytes of a copy in base over those in head that the runs' settings explain.
    """
    pairs: Pairs = []
    left, right = base, head
    for key in _KEYS:
        left, right = _pair(pairs, left, right, key, key)
    for op in dict.fromkeys(one.op for one in left):
        for shaped in (False, True):
            ones = [one for one in left if one.op == op and bool(one.shape) is shaped]
            others = [one for one in right if one.op == op and not (shaped and one.shape)]
            found = _by_bytes(ones, others, ratios)
            pairs += found
            left, right = _rest(left, right, found)
    return [*pairs, *((one, None) for one in left), *((None, other) for other in right)]


def _pair(
    pairs: Pairs, left: list[Group], right: list[Group], key: Key, other_key: Key
) -> tuple[list[Group], list[Group]]:
    """Add groups with equal keys to the pairs, in their order; return the remaining groups of both sides."""
    unmatched: dict[Any, list[Group]] = {}
    for one in left:
        if (value := key(one)) is not None:
            unmatched.setdefault(value, []).append(one)
    found = [(queue.pop(0), other) for other in right if (queue := unmatched.get(other_key(other)))]
    pairs += found
    return _rest(left, right, found)


def _rest(left: list[Group], right: list[Group], pairs: Pairs) -> tuple[list[Group], list[Group]]:
    """Return the groups of both sides that are in no pair."""
    taken = {id(one) for pair in pairs for one in pair}
    return [one for one in left if id(one) not in taken], [one for one in right if id(one) not in taken]


def _by_bytes(ones: list[Group], others: list[Group], ratios: Collection[Fraction]) -> Pairs:
    """Pair groups of one op whose shapes cannot be compared."""
    pairs: Pairs = []
    for ratio in (*ratios, Fraction(1)):
        ones, others = _pair(pairs, ones, others, _size, _sized(ratio))
    near = _nearest(*([one for one in side if one.size is not None] for side in (ones, others)))
    left, right = _rest(ones, others, near)
    blank = list(zip([one for one in left if one.size is None], right, strict=False))
    left, right = _rest(left, right, blank)
    return [*pairs, *near, *blank, *zip(left, [one for one in right if one.size is None], strict=False)]


def _size(one: Group) -> int | None:
    return one.size


def _sized(ratio: Fraction) -> Key:
    """Key: bytes of a group of head, scaled to base."""
    return lambda one: None if one.size is None else one.size * ratio


def _nearest(ones: list[Group], others: list[Group]) -> Pairs:
    """Pair each group of the shorter side with the group of the other with the nearest ratio of bytes.

    Sides of equal length are matched in order of size, so that the result is symmetric.
    """
    few, many = sorted((ones, others), key=len)
    left = sorted(many, key=_bytes)
    if len(few) == len(many):
        found = list(zip(sorted(few, key=_bytes), left, strict=True))
    else:
        found = [(one, left.pop(_nearest_at(one, left))) for one in sorted(few, key=_bytes, reverse=True)]
    return found if few is ones else [(other, one) for one, other in found]


def _nearest_at(one: Group, by_size: list[Group]) -> int:
    place = bisect(by_size, _bytes(one), key=_bytes)
    near = range(max(place - 1, 0), min(place + 1, len(by_size)))
    return min(near, key=lambda at: _times(_bytes(one), _bytes(by_size[at])))


def _bytes(one: Group) -> int:
    return max(one.size or 0, 1)


def _times(one: int, other: int) -> Fraction:
    return Fraction(max(one, other), min(one, other))
