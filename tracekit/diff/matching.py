"""Match the pieces of two runs, strongest evidence first; unmatched ones are added or removed.

Rungs, each over what the rungs before it left on both sides:

* `hash`: the whole subtree of the outermost op is alike: names, shapes, launched kernels (canonical names).
* `op+shape`: the path of launching ops with their input shapes is alike; equal canonical names first, then
  whatever of the same sort (kernel, memset, copies by direction) the same op launched.
* `op`: the same without shapes.
* `launcher`: the same by the name of the launching op alone.
* `canonical`: equal canonical names, within the innermost op that both runs have first, then anywhere.
* `role`: equal roles, in the same order, where the role says what is computed (gemm, conv, collective, ...).
* `group`: what is left within the innermost op that both runs have, or within the same module: N kernels
  became M there, as fusion does.

Pieces without a known op skip the rungs that ask for one.

Of a matched group with n intervals of mean duration m on each side:
Δ = (n_B − n_A)(m_A + m_B)/2 + (m_B − m_A)(n_A + n_B)/2, a term for the number and one for the duration. The
first is rounded to whole nanoseconds (half to even, so that exchanging the sides changes only signs) and the
second is the rest, so that no residual is left. What only one side has is added or removed as a whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analysis.modules import MARKER
from tracekit.diff import naming
from tracekit.diff.ledgers import NO_OP, NOTHING, Amount, Cause, Changed, Group, Matched, Rung, Terms, Work
from tracekit.diff.naming import PATH_ARROW, RULES_VERSION, SPECIFIC
from tracekit.diff.pieces import (
    CANONICAL,
    COUNT,
    LAUNCHER,
    LONGEST_ROW,
    MODULE_KEY,
    NO_ROW,
    OP_PLACE,
    PATH,
    PIECE,
    ROLE,
    SHAPED,
    SORT,
    SUBTREE,
    TOTAL_NS,
    WHAT,
    WINDOW,
)
from tracekit.runs.intervals import Ints
from tracekit.schema import C, DeviceKind

if TYPE_CHECKING:
    from tracekit.diff.ledgers import Range
    from tracekit.diff.naming import Hashes
    from tracekit.diff.pieces import OpTree, Pieces

    Flags = npt.NDArray[np.bool_]

UNMATCHED = ""
SIDE, RUNG, GROUP = "side", "rung", "group"
_ANCHOR, _ROOM = "anchor", "room"

RUNGS = ("hash", "op+shape", "op", "launcher", "canonical", "role", "group")


@dataclass(frozen=True)
class _Key:
    rung: str
    columns: tuple[str, ...]
    by_op: bool = True


_BY_PATH = (
    _Key("hash", (SUBTREE, SHAPED, WHAT)),
    _Key("op+shape", (SHAPED, WHAT)),
    _Key("op+shape", (SHAPED, SORT)),
    _Key("op", (PATH, WHAT)),
    _Key("op", (PATH, SORT)),
    _Key("launcher", (LAUNCHER, WHAT)),
    _Key("launcher", (LAUNCHER, SORT)),
)
_BY_NAME = (
    _Key("canonical", (WHAT, _ANCHOR), by_op=False),
    _Key("canonical", (WHAT,), by_op=False),
    _Key("role", (ROLE, _ANCHOR), by_op=False),
    _Key("role", (ROLE,), by_op=False),
    _Key("group", (_ANCHOR,), by_op=False),
)


def match(base: Pieces, head: Pieces, *, by_module: bool = False) -> pd.DataFrame:
    """Assign each piece its group and the matching rule that made it.

    Args:
        base: Pieces of the run compared with.
        head: Pieces of the run in question.
        by_module: Match within modules, so that no group spans modules that both runs have: what only one
            place of a model gains is then not set against what another place loses.

    Returns:
        The pieces of both: their columns, the side (0 is base), the rung (empty for what only one side has)
        and the group, numbered from 0.
    """
    pieces = pd.concat([base.table.assign(**{SIDE: 0}), head.table.assign(**{SIDE: 1})], ignore_index=True)
    pieces[RUNG] = UNMATCHED
    group = np.full(len(pieces), -1, np.int64)
    if by_module:
        pieces[_ROOM] = _common_modules(pieces)
    for key in (*_BY_PATH, *_BY_NAME):
        if _ANCHOR in key.columns and _ANCHOR not in pieces and (group < 0).any():
            pieces[_ANCHOR] = np.concatenate(_anchors(base, head))
        _climb(pieces, group, replace(key, columns=(_ROOM, *key.columns)) if by_module else key)
    return _numbered(pieces, group)


def _common_modules(pieces: pd.DataFrame) -> Hashes:
    """Return the module of each piece if both sides have it, else `NOTHING`."""
    module = pieces[MODULE_KEY].to_numpy(np.uint64)
    at_base = pieces[SIDE].to_numpy() == 0
    rooms: Hashes = np.where(
        np.isin(module, np.intersect1d(module[at_base], module[~at_base])), module, naming.NOTHING
    )
    return rooms


def _climb(pieces: pd.DataFrame, group: Ints, key: _Key) -> None:
    """Match the unmatched pieces by one rule."""
    free = np.flatnonzero(group < 0)
    free = free[_has(pieces.iloc[free], key)] if len(free) else free
    if not len(free):
        return
    codes = pieces.iloc[free].groupby(list(key.columns), sort=False).ngroup().to_numpy()
    side = pieces[SIDE].to_numpy()[free]
    size = int(codes.max()) + 1
    both = (np.bincount(codes[side == 0], minlength=size) > 0) & (
        np.bincount(codes[side == 1], minlength=size) > 0
    )
    matched = free[both[codes]]
    group[matched] = codes[both[codes]] + int(group.max()) + 1
    pieces.loc[matched, RUNG] = key.rung


def _has(pieces: pd.DataFrame, key: _Key) -> Flags:
    """Whether each piece has what the rung asks for."""
    able = np.ones(len(pieces), bool)
    if key.by_op:
        able &= pieces[OP_PLACE].to_numpy() != NO_ROW
    if key.rung == "role":
        able &= pieces[ROLE].isin([str(one) for one in SPECIFIC]).to_numpy(bool)
    if _ANCHOR in key.columns:
        able &= pieces[_ANCHOR].to_numpy(np.uint64) != naming.NOTHING
    return able


def _numbered(pieces: pd.DataFrame, group: Ints) -> pd.DataFrame:
    """Return the group of each matched piece; unmatched pieces are grouped by path and name."""
    alone = np.flatnonzero(group < 0)
    if len(alone):
        codes = pieces.iloc[alone].groupby([SIDE, MODULE_KEY, PATH, WHAT], sort=False).ngroup().to_numpy()
        group[alone] = codes + int(group.max()) + 1
    dense = np.unique(group, return_inverse=True)[1].reshape(-1)
    return pieces.assign(**{GROUP: dense}).drop(columns=[_ANCHOR, _ROOM], errors="ignore")


def _anchors(base: Pieces, head: Pieces) -> tuple[Hashes, Hashes]:
    """Return for each piece the path of the innermost op in both runs, else its module if both have it."""
    paths = np.intersect1d(base.tree.path, head.tree.path)
    modules = np.intersect1d(base.table[MODULE_KEY], head.table[MODULE_KEY])
    return _anchored(base, paths, modules), _anchored(head, paths, modules)


def _anchored(side: Pieces, paths: Hashes, modules: Hashes) -> Hashes:
    at = side.table[OP_PLACE].to_numpy(np.int64).copy()
    known = np.append(np.isin(side.tree.path, paths), [True])  # the last place answers for "no op"
    parent = np.append(side.tree.parent, [NO_ROW])
    while (climbing := ~known[at]).any():
        at[climbing] = parent[at[climbing]]
    found = np.append(side.tree.path, naming.NOTHING)[at]
    module = side.table[MODULE_KEY].to_numpy(np.uint64)
    fallback = np.where(np.isin(module, modules), module, naming.NOTHING)
    anchors: Hashes = np.where(at == NO_ROW, fallback, found)
    return anchors


if TYPE_CHECKING:
    _Rows: TypeAlias = list[dict[Hashable, Any]]

NAMED_ROWS = 5
"""Maximum rows listed per group and side."""
SEEN_PATHS = 500
"""Maximum pieces per side whose paths are compared for common parts."""
SEVERAL = "{} and {} more op{}"
"""Text in place of a path for work of ops without a common path: the op with most time, and the others."""
BETWEEN = "…"
"""Placeholder in a path for ops that differ within a group."""
_SPANNING = ("launcher", "canonical", "role", "group")
"""Matching rules whose groups may contain several op paths."""


def terms(a: Amount, b: Amount) -> Terms:
    """Return the terms of a group's difference.

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
        module=_text(tree, place, C.MODULE).removeprefix(MARKER),
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
        number=int(shown[GROUP]),
    )


def _path(sides: Sequence[_Rows], trees: tuple[OpTree, OpTree]) -> tuple[str, ...]:
    """Return the common end, or else the common start, of the paths of a group."""
    seen = [row for own in sides for row in own[:SEEN_PATHS]]
    if seen[0][RUNG] not in _SPANNING:
        return ()
    paths = list(dict.fromkeys(tuple(trees[row[SIDE]].names_to(row[OP_PLACE])) for row in seen))
    if len(paths) == 1:
        return paths[0]
    end = _alike([path[::-1] for path in paths])[::-1]
    start = _alike([path[: len(path) - len(end)] for path in paths])
    return (*start, BETWEEN, *end) if end else start or (_several(seen, trees),)


def _several(rows: _Rows, trees: tuple[OpTree, OpTree]) -> str:
    """Name the launching op with most time on both sides, and count the others."""
    sums: dict[str, int] = {}
    for row in rows:
        name = (trees[row[SIDE]].names_to(row[OP_PLACE]) or [NO_OP])[-1]
        sums[name] = sums.get(name, 0) + row[TOTAL_NS]
    most = min(sums, key=lambda name: (name == NO_OP, -sums[name], name))
    others = len(sums) - 1
    return SEVERAL.format(most, others, "s" * (others != 1)) if others else most


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
    """Return the time matched by each matching rule."""
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


VIEWS = ("op", "module", "kernel")
NO_MODULE = "(no module recorded)"
_NAMED = 3


def path_of(group: Group) -> str:
    """The ops that lead to a group's work, in one text."""
    return PATH_ARROW.join(group.path) or NO_OP


def causes(
    groups: Sequence[Group], *, by: str, steps: Mapping[str, tuple[Range, Range]] | None = None
) -> tuple[Cause, ...]:
    """Sum groups into lines, the largest difference first.

    Args:
        groups: The groups that differ.
        by: One of `VIEWS`.
        steps: Result of `step_ranges` for the same groups and view.
    """
    lines: dict[str, list[Group]] = {}
    for group in groups:
        lines.setdefault(_label(group, by), []).append(group)
    known = steps or {}
    summed = [replace(_line(label, own, by), steps=known.get(label)) for label, own in lines.items()]
    return tuple(sorted(summed, key=_module_place))


def step_ranges(
    matched: pd.DataFrame, sides: tuple[Pieces, Pieces], groups: Sequence[Group], *, by: str
) -> dict[str, tuple[Range, Range]]:
    """Return the least and most time of each line in a compared step, of the base and of the head.

    Args:
        matched: What `match` returns.
        sides: The pieces it was given.
        groups: The groups that differ.
        by: One of `VIEWS`.
    """
    labels = list(dict.fromkeys(_label(group, by) for group in groups))
    number = {label: place for place, label in enumerate(labels)}
    line = np.full(int(matched[GROUP].max()) + 2 if len(matched) else 1, -1, np.int64)
    for group in groups:
        line[group.number] = number[_label(group, by)]
    of_piece, size = line[matched[GROUP].to_numpy(np.int64)], len(sides[0].table)
    a, b = (
        _ranges(side, own, len(labels))
        for side, own in zip(sides, (of_piece[:size], of_piece[size:]), strict=True)
    )
    return {label: (a[place], b[place]) for label, place in number.items()}


def _ranges(side: Pieces, line: Ints, lines: int) -> list[Range]:
    """Return the least and most time of each line over the steps; a step without any counts as 0."""
    at = line[side.intervals[PIECE].to_numpy(np.int64)]
    window, length = (side.intervals[name].to_numpy(np.int64)[at >= 0] for name in (WINDOW, C.DUR_NS))
    steps = side.steps
    places, key = np.unique(at[at >= 0] * steps + window, return_inverse=True)
    sums = np.zeros(len(places), np.int64)
    np.add.at(sums, key, length)
    by_line = pd.Series(sums).groupby(places // max(steps, 1))
    found = by_line.agg(["min", "max", "count"])
    least = found["min"].where(found["count"] == steps, 0)
    ranges = [(0, 0)] * lines
    for place, low, high in zip(found.index.tolist(), least.tolist(), found["max"].tolist(), strict=True):
        ranges[place] = (int(low), int(high))
    return ranges


def _module_place(line: Cause) -> tuple[int, int, str]:
    terms = line.terms
    weight = max(terms.added, terms.removed, abs(terms.count), abs(terms.rate))
    return -abs(terms.delta), -weight, line.label


def _label(group: Group, by: str) -> str:
    if by == "module":
        return group.module or f"{group.label} {NO_MODULE}"
    return group.what if by == "kernel" else group.label


def _line(label: str, groups: Sequence[Group], by: str) -> Cause:
    seen = dict.fromkeys(path_of(group) if by == "kernel" else group.what for group in groups)
    names = [name for name in seen if name != label.rpartition(PATH_ARROW)[2]]
    shown = "; ".join(names[:_NAMED])
    return Cause(
        label=label,
        detail=shown + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""),
        a=_sum([group.a for group in groups]),
        b=_sum([group.b for group in groups]),
        terms=sum((group.terms for group in groups), Terms()),
        rungs=tuple(dict.fromkeys(group.rung for group in groups)),
        modules=tuple(dict.fromkeys(group.module for group in groups if group.module))[:_NAMED],
        evidence={
            side: rows
            for side in ("a", "b")
            if (rows := [row for group in groups for row in group.evidence.get(side, [])][:NAMED_ROWS])
        },
    )


def _sum(amounts: Sequence[Amount]) -> Amount:
    return Amount(sum(one.count for one in amounts), sum(one.total_ns for one in amounts))


def counts(groups: Sequence[Group]) -> tuple[Changed, ...]:
    """Return changed counts, largest change first; they are exact and need no test."""
    sums: dict[tuple[str, str], list[int]] = {}
    for group in groups:
        both = sums.setdefault((path_of(group), group.what), [0, 0])
        both[0] += group.a.count
        both[1] += group.b.count
    changed = [Changed(path, name, a, b) for (path, name), (a, b) in sums.items() if a != b]
    return tuple(sorted(changed, key=lambda one: (-abs(one.b - one.a), one.label, one.name)))
