"""Which interval encloses which, row by row: the compiled twin of `ingest.nesting`."""

from __future__ import annotations

from tracekit.ingest.kineto.scan.codegen.intrinsics import compiled, peek, poke

_NONE = -1


@compiled
def nest(
    count: int, known: int, thread: int, start: int, end: int, parent: int, depth: int, latest: int
) -> int:
    """Find parents and depths.

    Args:
        count: How many rows.
        known: Of so many of the first ones the depth is there already.
        thread: Address of their threads' numbers; rows of one come by start and then falling end.
        start: Address of their starts.
        end: Address of their ends.
        parent: Address of room for the place of each row's innermost enclosing row, -1 at the top.
        depth: Address of room for the number of rows that enclose each.
        latest: Address of the latest row of each thread, -1 without any.
    """
    for row in range(count):
        lane = peek(thread, row)
        above = peek(latest, lane)
        first, last = peek(start, row), peek(end, row)
        # no row of the thread between a row and the one looked at encloses it, so that one's parent is next
        while above != _NONE and (peek(end, above) < last or peek(end, above) <= first):
            above = peek(parent, above)
        poke(parent, row, above)
        poke(latest, lane, row)
        if row >= known:
            poke(depth, row, 0 if above == _NONE else peek(depth, above) + 1)
    return count


@compiled
def inherit(count: int, parent: int, values: int) -> int:
    """Give rows without a value, -1, that of the innermost enclosing row that has one.

    Args:
        count: How many rows.
        parent: Address of their parents.
        values: Address of their values, which are changed.
    """
    for row in range(count):
        above = peek(parent, row)
        if above != _NONE and peek(values, row) == _NONE:
            poke(values, row, peek(values, above))
    return count
