"""Range-maximum pyramid over durations: the longest interval of any range in a few reads.

A pyramid of blocks of 16. The 16-bit mask of an element marks the elements of its block, up to itself, that
are longer than all later elements up to itself. The lowest set bit at or above a position is then the
longest of the range that starts there. The longest of each block is an element of the next level. Ties go
to the first element. This takes 2.9 bytes per interval, and a query reads at most two blocks per level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tracekit.runs.intervals import Ints

Masks: TypeAlias = npt.NDArray[np.uint16]
Places: TypeAlias = npt.NDArray[np.uint32]
Found: TypeAlias = "tuple[Ints, Ints]"
"""Positions, and the values at them."""

_BITS = 4
BLOCK = 1 << _BITS
_STRIPE = 1 << 18


@dataclass(frozen=True)
class Peaks:
    """Range-maximum pyramid."""

    masks: Masks  # masks of all levels, concatenated
    places: Places  # position in the values of each element, for the levels above the first
    lengths: Ints  # values at these positions, for locality
    sizes: tuple[int, ...]  # number of elements of each level


def sizes(count: int) -> tuple[int, ...]:
    """Return the number of elements of each level.

    Example:
        >>> sizes(300), sizes(0)
        ((300, 19, 2), (0,))
    """
    counts = [count]
    while counts[-1] > BLOCK:
        counts.append(-(-counts[-1] // BLOCK))
    return tuple(counts)


def build(values: Ints) -> Peaks:
    """Build the pyramid over values."""
    levels = sizes(len(values))
    masks = np.empty(sum(levels), np.uint16)
    places = np.empty(sum(levels[1:]), np.uint32)
    lengths = np.empty(len(places), np.int64)
    below: Places | None = None
    current, done, placed = values, 0, 0
    for level, count in enumerate(levels):
        winners = _level(current, masks[done : done + count])
        done += count
        if level + 1 == len(levels):
            break
        below = (winners if below is None else below[winners]).astype(np.uint32)
        places[placed : placed + len(below)] = below
        current = lengths[placed : placed + len(below)]
        current[:] = values[below]
        placed += len(below)
    return Peaks(masks, places, lengths, levels)


def _level(values: Ints, masks: Masks) -> Ints:
    """Fill the masks of a level; return the position of each block's longest element."""
    winners = np.empty(-(-len(values) // BLOCK), np.int64)
    for first in range(0, len(values), _STRIPE):
        part = values[first : first + _STRIPE]
        blocks = -(-len(part) // BLOCK)
        # below every value, so that padding never wins
        padded = np.full(blocks * BLOCK, np.iinfo(np.int64).min)
        padded[: len(part)] = part
        made = _blocks(np.ascontiguousarray(padded.reshape(blocks, BLOCK).T))
        masks[first : first + len(part)] = made.T.reshape(-1)[: len(part)]
        lowest = _lowest()[made[BLOCK - 1]]
        winners[first // BLOCK : first // BLOCK + blocks] = first + np.arange(blocks) * BLOCK + lowest
    return winners


def _blocks(columns: Ints) -> Masks:
    """Return the masks of blocks, with elements along the rows."""
    made = np.zeros(columns.shape, np.uint16)
    for row in range(BLOCK):
        for above in range(row):
            # of equal ones the first stays: it wins a tie
            stays = columns[above] >= columns[row]
            made[row] |= (stays.astype(np.uint16) << above) & made[row - 1]
        made[row] |= np.uint16(1 << row)
    return made


def longest_intervals(peaks: Peaks, values: Callable[[Ints], Ints], first: Ints, last: Ints) -> Ints:
    """Return the position of the longest in each inclusive range; the first on a tie.

    Args:
        peaks: The pyramid over the values.
        values: Gives the values at positions.
        first: First positions.
        last: Last positions, not less than the first.
    """
    best = first.copy()
    most = np.full(len(first), np.iinfo(np.int64).min)
    positions: Ints | slice = slice(None)
    done = placed = 0
    for level, count in enumerate(peaks.sizes):
        if level:
            done += peaks.sizes[level - 1]
            placed += peaks.sizes[level - 1] if level > 1 else 0
            # whole blocks inside the range; its partial ends were read on the level below
            first, last = (first >> _BITS) + 1, (last >> _BITS) - 1
            more = np.flatnonzero(first <= last)
            if not len(more):
                break
            first, last = first[more], last[more]
            positions = more if isinstance(positions, slice) else positions[more]
        block_ends = _ends(peaks.masks[done : done + count], first, last)
        places = peaks.places[placed : placed + count]
        lengths = peaks.lengths[placed : placed + count]
        head, tail = (
            (places[positions_here].astype(np.int64), lengths[positions_here])
            if level
            else (positions_here, values(positions_here))
            for positions_here in block_ends
        )
        best[positions], most[positions] = _better(head, tail, (best[positions], most[positions]))
    return best


def _ends(masks: Masks, first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Return the longest in the first and in the last block of each range, which may be the same."""
    lowest = _lowest()
    head_end = np.minimum(first | (BLOCK - 1), last)
    tail_start = np.maximum(last & ~(BLOCK - 1), first)
    head = first + lowest[masks[head_end] >> (first & (BLOCK - 1)).astype(np.uint16)]
    tail = tail_start + lowest[masks[last] >> (tail_start & (BLOCK - 1)).astype(np.uint16)]
    return head, tail


def _better(head: Found, tail: Found, best: Found) -> Found:
    """Return the longest of the candidates of a level and earlier levels; the first on a tie."""
    place = np.where(tail[1] > head[1], tail[0], head[0])
    length = np.maximum(head[1], tail[1])
    better = (length > best[1]) | ((length == best[1]) & (place < best[0]))
    return np.where(better, place, best[0]), np.maximum(length, best[1])


@cache
def _lowest() -> npt.NDArray[np.uint8]:
    """Return the index of the lowest set bit of every 16-bit number."""
    numbers = np.arange(1 << 16)
    numbers[0] = 1
    return np.log2(numbers & -numbers).astype(np.uint8)
