"""Names of work that only one of two runs has, whether or not it was matched with work of another name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.diff.ledgers import OneSided
from tracekit.diff.matching import GROUP, SIDE
from tracekit.diff.pieces import CANONICAL, COUNT, ROLE, TOTAL_NS
from tracekit.schema import C

if TYPE_CHECKING:
    import pandas as pd

NAMED = 3
"""Names that stand for a name on the other side, told at most."""
_MATCHED_NS, _OTHER = "matched_ns", "_other"


def names(pieces: pd.DataFrame) -> tuple[tuple[OneSided, ...], tuple[OneSided, ...]]:
    """The names that only the base has and those that only the head has, most time first.

    Args:
        pieces: What `matching.match` returns.
    """
    sides = [pieces[pieces[SIDE] == side] for side in (0, 1)]
    base, head = sides
    return _only(base, head), _only(head, base)


def _only(own: pd.DataFrame, other: pd.DataFrame) -> tuple[OneSided, ...]:
    alone = own[~own[CANONICAL].isin(other[CANONICAL].unique())]
    matched = np.isin(alone[GROUP], other[GROUP].unique())
    alone = alone.assign(**{_MATCHED_NS: np.where(matched, alone[TOTAL_NS], 0)})
    instead = _counterparts(alone, other)
    together = alone.sort_values([TOTAL_NS, ROLE]).groupby([CANONICAL, C.KIND], sort=True)
    sums = together.agg({ROLE: "last", COUNT: "sum", TOTAL_NS: "sum", _MATCHED_NS: "sum"})
    found = [
        OneSided(str(name), str(kind), role, int(count), int(total), int(with_other), instead.get(name, ()))
        for (name, kind), role, count, total, with_other in sums.itertuples(name=None)
    ]
    return tuple(sorted(found, key=lambda one: (-one.total_ns, one.name, one.kind)))


def _counterparts(alone: pd.DataFrame, other: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """Of each name those of the other side that it was matched with, most time first."""
    here = alone[[CANONICAL, GROUP]].drop_duplicates()
    there = other.loc[other[GROUP].isin(here[GROUP]), [CANONICAL, GROUP, TOTAL_NS]]
    pairs = here.merge(there, on=GROUP, suffixes=("", _OTHER))
    sums = pairs.groupby([CANONICAL, CANONICAL + _OTHER], sort=True)[TOTAL_NS].sum()
    found: dict[str, list[tuple[int, str]]] = {}
    for name, instead, total in sums.reset_index().itertuples(index=False, name=None):
        found.setdefault(name, []).append((-int(total), instead))
    return {name: tuple(instead for _, instead in sorted(own)[:NAMED]) for name, own in found.items()}
