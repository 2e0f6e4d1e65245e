"""What stands between values, remembered: the members of events come in the same order again and again.

From the end of a value to the start of the next one the text is mostly one that stood there before: a comma,
white space, a key. A gap that was read once is known by its bytes and by the gap before it, which tells where
in the event it lies; so the same bytes there lead to the same place, and need only be compared.
"""

from __future__ import annotations

from tracekit.ingest.kineto.scan.codegen.intrinsics import compiled, peek, poke, same
from tracekit.ingest.kineto.scan.layout import GAP_FIELDS, GAP_WAYS, MOST_GAPS
from tracekit.ingest.kineto.split import ROOM

UNKNOWN, START = 0, 1
"""No gap that is known; what stands for the one before an event."""
_COUNT = 0
"""Place of how many there are: the unknown one has no text there."""
_TEXT, _LENGTH, _SLOT, _LEVEL, _FOLLOWERS = range(GAP_FIELDS - GAP_WAYS + 1)


@compiled
def forget(gaps: int) -> None:
    """Begin with a text: know no gap in it."""
    for gap in (UNKNOWN, START):
        _open(gaps, gap)
    poke(gaps, _COUNT, START + 1)


@compiled
def _open(gaps: int, gap: int) -> None:
    for way in range(GAP_WAYS):
        poke(gaps, gap * GAP_FIELDS + _FOLLOWERS + way, UNKNOWN)


@compiled
def slot_behind(gaps: int, gap: int) -> int:
    """The slot of the value behind a gap."""
    return peek(gaps, gap * GAP_FIELDS + _SLOT)


@compiled
def level_behind(gaps: int, gap: int) -> int:
    """Where in the event that value is."""
    return peek(gaps, gap * GAP_FIELDS + _LEVEL)


@compiled
def length_of_gap(gaps: int, gap: int) -> int:
    """How many bytes a gap has."""
    return peek(gaps, gap * GAP_FIELDS + _LENGTH)


@compiled
def follower(gaps: int, last: int, at: int) -> int:
    """The gap that is here, if it is one that followed the last one before; else `UNKNOWN`."""
    followers = last * GAP_FIELDS + _FOLLOWERS
    for way in range(GAP_WAYS):
        gap = peek(gaps, followers + way)
        if gap == UNKNOWN:
            return UNKNOWN
        if same(peek(gaps, gap * GAP_FIELDS + _TEXT), at, length_of_gap(gaps, gap)):
            if way > 0:
                _put_first(gaps, followers, way, gap)
            return gap
    return UNKNOWN


@compiled
def _put_first(gaps: int, followers: int, way: int, gap: int) -> None:
    """Have a follower looked at first; those before it move on by one."""
    while way > 0:
        poke(gaps, followers + way, peek(gaps, followers + way - 1))
        way -= 1
    poke(gaps, followers, gap)


@compiled
def remember(gaps: int, last: int, at: int, end: int, slot: int, level: int) -> int:
    """Remember the gap between two addresses, which follows the last one; `UNKNOWN` where that cannot be.

    A longer one might be looked for beyond the room behind a text.
    """
    gap = peek(gaps, _COUNT)
    if last == UNKNOWN or gap == MOST_GAPS or end - at > ROOM:
        return UNKNOWN
    poke(gaps, _COUNT, gap + 1)
    first = gap * GAP_FIELDS
    poke(gaps, first + _TEXT, at)
    poke(gaps, first + _LENGTH, end - at)
    poke(gaps, first + _SLOT, slot)
    poke(gaps, first + _LEVEL, level)
    _open(gaps, gap)
    _put_first(gaps, last * GAP_FIELDS + _FOLLOWERS, GAP_WAYS - 1, gap)
    return gap
