"""Which codes occur in a column."""

from __future__ import annotations

from tracekit.ingest.kineto.scan.codegen.intrinsics import compiled, peek, poke

_NONE = -1


@compiled
def distinct(count: int, codes: int, place: int, found: int, latest: int) -> int:
    """Number the codes of some rows as they come.

    Args:
        count: How many rows.
        codes: Address of their codes, -1 for none.
        place: Address of room for the number of each row's code, -1 for none.
        found: Address of room for the codes that occur.
        latest: Address of the number of every code there is, -1 for each; that is what they are afterwards.

    Returns:
        How many codes occur.
    """
    occur = 0
    for row in range(count):
        code = peek(codes, row)
        number = _NONE
        if code != _NONE:
            number = peek(latest, code)
            if number == _NONE:
                number = occur
                poke(latest, code, number)
                poke(found, number, code)
                occur += 1
        poke(place, row, number)
    for number in range(occur):
        poke(latest, peek(found, number), _NONE)
    return occur
