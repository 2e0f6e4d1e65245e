"""The work ledger: what the change of the sum of durations is made of, exact in integer nanoseconds.

Of a matched group with n intervals of mean duration m on each side:
Δ = (n_B − n_A)(m_A + m_B)/2 + (m_B − m_A)(n_A + n_B)/2, a term for the number and one for the duration. The
first is rounded to whole nanoseconds (half to even, so that exchanging the sides changes only signs) and the
second is the rest, so that no residual is left. What only one side has is added or removed as a whole.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tracekit.diff.ledgers import NOTHING, Amount, Group, Matched, Rung, Terms, Work
from tracekit.diff.matching import GROUP, RUNG, RUNGS, SIDE, UNMATCHED
from tracekit.diff.names import RULES_VERSION
from tracekit.diff.optree import NO_ROW
from tracekit.diff.pieces import CANONICAL, COUNT, LONGEST_ROW, OP_PLACE, ROLE, TOTAL_NS
from tracekit.schema import C, DeviceKind

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import pandas as pd

    from tracekit.diff.optree import OpTree
    from tracekit.diff.pieces import Pieces

    _Rows: TypeAlias = list[dict[Hashable, Any]]

NAMED_ROWS = 5
"""Rows a group names of each side at most."""
SEEN_PATHS = 500
"""Pieces of each side whose paths are read to say what they have in common."""
SEVERAL = "(several ops: {})"
"""In place of a path, for work of ops that have none in common: what it does."""
BETWEEN = "…"
"""In a path, for ops between its beginning and its end that differ within a group."""
_SPANNING = ("launcher", "canonical", "role", "group")
"""Rungs whose groups may hold work of several op paths."""


def terms(a: Amount, b: Amount) -> Terms:
    """What the difference of a group is made of.

    Example:
        >>> terms(Amount(161, 161_000), Amount(1, 1_000))
        Terms(added=0, removed=0, count=-160000, rate=0)
        >>> terms(Amount(2, 20), Amount(2, 313)), terms(Amount(0, 0), Amount(1, 7))
        (Terms(added=0, removed=0, count=0, rate=293), Terms(added=7, removed=0, count=0, rate=0))
    """
    if not a.count or not b.count:
        return Terms(added=b.total_ns, removed=a.total_ns)
    means = Fraction(a.total_ns, a.count) + Fraction(b.total_ns, b.count)
    count = round((b.count - a.count) * means / 2)
    return Terms(count=count, rate=b.total_ns - a.total_ns - count)


def groups(pieces: pd.DataFrame, base: Pieces, head: Pieces) -> tuple[Group, ...]:
    """The groups that differ, the largest difference first.

    Args:
        pieces: What `matching.match` returns.
        base: Where the paths of the base's pieces are.
        head: Where those of the head's are.
    """
    changed = _changed(pieces)
    ordered = changed.sort_values([GROUP, SIDE, TOTAL_NS, LONGEST_ROW], ascending=[True, True, False, True])
    found = [_group(rows, (base.tree, head.tree)) for _, rows in _runs_of(ordered)]
    return tuple(sorted(found, key=_place))


def _place(group: Group) -> tuple[object, ...]:
    weight = max(abs(group.terms.count), abs(group.terms.rate))
    return (-abs(group.terms.delta), -weight, group.path, group.name_a, group.name_b, group.shapes)


def _changed(pieces: pd.DataFrame) -> pd.DataFrame:
    """The pieces of groups whose number or time differs between the sides."""
    groups_ = pieces[GROUP].to_numpy(np.int64)
    sign = np.where(pieces[SIDE].to_numpy() == 0, -1, 1)
    size = int(groups_.max(initial=-1)) + 1
    moved = np.zeros(size, bool)
    for column in (COUNT, TOTAL_NS):
        sums = np.zeros(size, np.int64)
        np.add.at(sums, groups_, sign * pieces[column].to_numpy(np.int64))
        moved |= sums != 0
    changed: pd.DataFrame = pieces[moved[groups_]]
    return changed


def _runs_of(ordered: pd.DataFrame) -> list[tuple[int, _Rows]]:
    """The rows of each group, as records."""
    columns = [GROUP, SIDE, RUNG, C.NAME, CANONICAL, C.KIND, ROLE, OP_PLACE, COUNT, TOTAL_NS, LONGEST_ROW]
    found: dict[int, _Rows] = {}
    for row in ordered[columns].to_dict("records"):
        found.setdefault(int(row[GROUP]), []).append(row)
    return list(found.items())


def _group(rows: _Rows, trees: tuple[OpTree, OpTree]) -> Group:
    sides = [[row for row in rows if row[SIDE] == side] for side in (0, 1)]
    a, b = (_amount(own) for own in sides)
    shown = max(rows, key=lambda row: (row[SIDE], row[TOTAL_NS]) if sides[1] else (0, row[TOTAL_NS]))
    tree, place = trees[shown[SIDE]], shown[OP_PLACE]
    name_a, name_b = (str(own[0][CANONICAL]) if own else "" for own in sides)
    return Group(
        path=_path(sides, trees) or tuple(tree.names_to(place)),
        shapes=_text(tree, place, C.INPUT_SHAPES),
        module=_text(tree, place, C.MODULE),
        name_a=name_a,
        name_b=name_b,
        sort=_sort(shown),
        role=str(shown[ROLE]),
        rung=str(shown[RUNG]),
        a=a,
        b=b,
        terms=terms(a, b),
        evidence={
            key: [row[LONGEST_ROW] for row in own[:NAMED_ROWS]]
            for key, own in zip("ab", sides, strict=True)
            if own
        },
    )


def _path(sides: Sequence[_Rows], trees: tuple[OpTree, OpTree]) -> tuple[str, ...]:
    """What the paths of a group that spans several have in common: how they end, and how they begin."""
    seen = [row for own in sides for row in own[:SEEN_PATHS]]
    if seen[0][RUNG] not in _SPANNING:
        return ()
    paths = list(dict.fromkeys(tuple(trees[row[SIDE]].names_to(row[OP_PLACE])) for row in seen))
    if len(paths) == 1:
        return paths[0]
    end = _alike([path[::-1] for path in paths])[::-1]
    start = _alike([path[: len(path) - len(end)] for path in paths])
    return (*start, BETWEEN, *end) if end else start or (SEVERAL.format(seen[0][ROLE]),)


def _alike(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The names with which all paths begin."""
    return tuple(names[0] for names in takewhile(lambda at: len(set(at)) == 1, zip(*paths, strict=False)))


def _amount(rows: _Rows) -> Amount:
    if not rows:
        return NOTHING
    return Amount(sum(row[COUNT] for row in rows), sum(row[TOTAL_NS] for row in rows))


def _sort(row: dict[Hashable, Any]) -> str:
    kind = str(row[C.KIND])
    return str(row[CANONICAL]) if kind == DeviceKind.MEMCPY else kind


def _text(tree: OpTree, place: int, column: str) -> str:
    if place == NO_ROW:
        return ""
    return tree.text(column, place)


def ledger(pieces: pd.DataFrame, found: Sequence[Group]) -> Work:
    """The work ledger of all pieces."""
    total = sum((group.terms for group in found), Terms())
    a, b = (int(pieces.loc[pieces[SIDE] == side, TOTAL_NS].sum()) for side in (0, 1))
    return Work(a, b, total)


def matched(pieces: pd.DataFrame) -> Matched:
    """How much time was matched on which rung."""
    rungs = []
    for rung in (*RUNGS, UNMATCHED):
        own = pieces[pieces[RUNG] == rung]
        a, b = (int(own.loc[own[SIDE] == side, TOTAL_NS].sum()) for side in (0, 1))
        if len(own):
            rungs.append(Rung(rung, int(own[GROUP].nunique()), a, b))
    shares = []
    for total, unmatched in zip(
        (sum(rung.a_ns for rung in rungs), sum(rung.b_ns for rung in rungs)),
        (_unmatched(rungs, "a_ns"), _unmatched(rungs, "b_ns")),
        strict=True,
    ):
        shares.append(1 - unmatched / total if total else None)
    return Matched(shares[0], shares[1], tuple(rungs), RULES_VERSION)


def _unmatched(rungs: Sequence[Rung], side: str) -> int:
    return sum(getattr(rung, side) for rung in rungs if rung.rung == UNMATCHED)
