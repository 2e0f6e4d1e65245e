"""Match the work items of two runs, strongest evidence first; unmatched ones are added or removed.

Match levels, each over what the levels before it left on both sides:

* `hash`: the whole subtree of the outermost op is alike: names, shapes, launched kernels (canonical names).
* `op+shape`: the path of launching ops with their input shapes is alike; equal canonical names first, then
  whatever of the same sort (kernel, memset, copies by direction) the same op launched.
* `op`: the same without shapes.
* `launcher`: the same by the name of the launching op alone.
* `canonical`: equal canonical names, within the innermost op that both runs have first, then anywhere.
* `role`: equal roles, in the same order, where the role says what is computed (gemm, conv, collective, ...).
* `group`: what is left within the innermost op that both runs have, or within the same module: N kernels
  became M there, as fusion does.

Items without a known op skip the levels that ask for one.

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
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analysis.modules import MARKER
from tracekit.diff import naming
from tracekit.diff.breakdowns import (
    NO_OP,
    NOTHING,
    Amount,
    Cause,
    Changed,
    Group,
    Matched,
    MatchLevel,
    Range,
    Terms,
    WorkBreakdown,
)
from tracekit.diff.naming import PATH_ARROW, RULES_VERSION, SPECIFIC, Hashes
from tracekit.diff.work_items import (
    CANONICAL,
    COUNT,
    ITEM,
    LAUNCHER,
    LONGEST_ROW,
    MODULE_KEY,
    NO_ROW,
    OP_PLACE,
    PATH,
    ROLE,
    SHAPED,
    SORT,
    SUBTREE,
    TOTAL_NS,
    WHAT,
    WINDOW,
    OpTree,
    WorkItems,
)
from tracekit.ingest.link import nesting
from tracekit.runs.intervals import Ints
from tracekit.schema import C, DeviceKind

Flags: TypeAlias = npt.NDArray[np.bool_]
_Rows: TypeAlias = list[dict[Hashable, Any]]

UNMATCHED = ""
SIDE, MATCH_LEVEL, GROUP = "side", "match_level", "group"
_ANCHOR, _MODULE = "anchor", "module"

MATCH_LEVELS = ("hash", "op+shape", "op", "launcher", "canonical", "role", "group")


@dataclass(frozen=True)
class _Key:
    """A rule of a match level: items with equal values in all columns match; `by_op` asks for a known op."""

    level: str
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


def match(base: WorkItems, head: WorkItems, *, by_module: bool = False) -> pd.DataFrame:
    """Assign each item its group and the matching rule that made it.

    Args:
        base: Items of the run compared with.
        head: Items of the run in question.
        by_module: Match within modules, so that no group spans modules that both runs have: what only one
            place of a model gains is then not set against what another place loses.

    Returns:
        The items of both: their columns, the side (0 is base), the match level (empty for what only one side
        has) and the group, numbered from 0.
    """
    items = pd.concat([base.table.assign(**{SIDE: 0}), head.table.assign(**{SIDE: 1})], ignore_index=True)
    items[MATCH_LEVEL] = UNMATCHED
    group = np.full(len(items), -1, np.int64)
    if by_module:
        items[_MODULE] = _common_modules(items)
    # The strongest evidence first: a group that a level made is never reopened, so that the order decides.
    for key in (*_BY_PATH, *_BY_NAME):
        # Anchors take longest to compute, and mostly every item is matched before one is needed.
        if _ANCHOR in key.columns and _ANCHOR not in items and (group < 0).any():
            items[_ANCHOR] = np.concatenate([_find_anchors(base, head), _find_anchors(head, base)])
        _match_level(items, group, replace(key, columns=(_MODULE, *key.columns)) if by_module else key)
    return _number_groups(items, group)


def _common_modules(items: pd.DataFrame) -> Hashes:
    """Return the module of each item if both sides have it, else `NOTHING`."""
    module = items[MODULE_KEY].to_numpy(np.uint64)
    at_base = items[SIDE].to_numpy() == 0
    in_both = np.isin(module, np.intersect1d(module[at_base], module[~at_base]))
    return np.asarray(np.where(in_both, module, naming.NOTHING))


def _match_level(items: pd.DataFrame, group: Ints, key: _Key) -> None:
    """Match the unmatched items by one rule."""
    free = np.flatnonzero(group < 0)
    free = free[_applies_to(items.iloc[free], key)] if len(free) else free
    if not len(free):
        return
    codes = items.iloc[free].groupby(list(key.columns), sort=False).ngroup().to_numpy()
    side = items[SIDE].to_numpy()[free]
    size = int(codes.max()) + 1
    both = (np.bincount(codes[side == 0], minlength=size) > 0) & (
        np.bincount(codes[side == 1], minlength=size) > 0
    )
    matched = free[both[codes]]
    # Numbers above those of earlier levels, with holes; `_number_groups` closes them.
    group[matched] = codes[both[codes]] + int(group.max()) + 1
    items.loc[matched, MATCH_LEVEL] = key.level


def _applies_to(items: pd.DataFrame, key: _Key) -> Flags:
    """Tell of each item whether it has what the level asks for."""
    applies = np.ones(len(items), bool)
    if key.by_op:
        applies &= items[OP_PLACE].to_numpy() != NO_ROW
    if key.level == "role":
        applies &= items[ROLE].isin([str(role) for role in SPECIFIC]).to_numpy(bool)
    if _ANCHOR in key.columns:
        applies &= items[_ANCHOR].to_numpy(np.uint64) != naming.NOTHING
    return applies


def _number_groups(items: pd.DataFrame, group: Ints) -> pd.DataFrame:
    """Return the group of each matched item; unmatched items are grouped by path and name."""
    alone = np.flatnonzero(group < 0)
    if len(alone):
        codes = items.iloc[alone].groupby([SIDE, MODULE_KEY, PATH, WHAT], sort=False).ngroup().to_numpy()
        group[alone] = codes + int(group.max()) + 1
    dense = np.unique(group, return_inverse=True)[1].reshape(-1)
    return items.assign(**{GROUP: dense}).drop(columns=[_ANCHOR, _MODULE], errors="ignore")


def _find_anchors(side: WorkItems, other: WorkItems) -> Hashes:
    """Return for each item the path of the innermost op in both runs, else its module if both have it."""
    modules = np.intersect1d(side.table[MODULE_KEY], other.table[MODULE_KEY])
    # Code between two ops may have gone from one run: an op around them, which both have, still says where.
    innermost = nesting.nearest(side.tree.parent, np.isin(side.tree.path, other.tree.path))
    place = np.append(innermost, NO_ROW)[side.table[OP_PLACE].to_numpy(np.int64)]  # the last: no op
    path = np.append(side.tree.path, naming.NOTHING)[place]
    module = side.table[MODULE_KEY].to_numpy(np.uint64)
    fallback = np.where(np.isin(module, modules), module, naming.NOTHING)
    return np.asarray(np.where(place == NO_ROW, fallback, path))


MAX_ROWS = 5
"""Maximum rows listed per group and side."""
MAX_PATHS = 500
"""Maximum items per side whose paths are compared for common parts."""
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
    # Exact fractions: floats would round, and the terms must add up to the difference.
    means = Fraction(a.total_ns, a.count) + Fraction(b.total_ns, b.count)
    count = round((b.count - a.count) * means / 2)
    return Terms(count=count, rate=b.total_ns - a.total_ns - count)


def groups(items: pd.DataFrame, base: WorkItems, head: WorkItems) -> tuple[Group, ...]:
    """Return the groups that differ, the largest difference first.

    Args:
        items: What `matching.match` returns.
        base: Where the paths of the base's items are.
        head: Where those of the head's are.
    """
    changed = _select_changed(items)
    ordered = changed.sort_values([GROUP, SIDE, TOTAL_NS, LONGEST_ROW], ascending=[True, True, False, True])
    columns = [GROUP, SIDE, MATCH_LEVEL, CANONICAL, C.KIND, ROLE, OP_PLACE, COUNT, TOTAL_NS, LONGEST_ROW]
    records: dict[int, _Rows] = {}
    for row in ordered[columns].to_dict("records"):
        records.setdefault(int(row[GROUP]), []).append(row)
    return tuple(sorted((_group(rows, (base.tree, head.tree)) for rows in records.values()), key=_order))


def _order(group: Group) -> tuple[object, ...]:
    weight = max(abs(group.terms.count), abs(group.terms.rate))
    return (-abs(group.terms.delta), -weight, group.path, group.name_a, group.name_b, group.shapes)


def _select_changed(items: pd.DataFrame) -> pd.DataFrame:
    """Return the items of groups whose number or time differs between the sides."""
    group = items[GROUP].to_numpy(np.int64)
    sign = np.where(items[SIDE].to_numpy() == 0, -1, 1)
    size = int(group.max(initial=-1)) + 1
    differs = np.zeros(size, bool)
    for column in (COUNT, TOTAL_NS):
        sums = np.zeros(size, np.int64)  # not bincount with weights, which sums floats
        np.add.at(sums, group, sign * items[column].to_numpy(np.int64))
        differs |= sums != 0
    changed: pd.DataFrame = items[differs[group]]
    return changed


def _group(rows: _Rows, trees: tuple[OpTree, OpTree]) -> Group:
    sides = [[row for row in rows if row[SIDE] == side] for side in (0, 1)]
    a, b = (sum((Amount(row[COUNT], row[TOTAL_NS]) for row in side), NOTHING) for side in sides)
    # Names and places are those of the head where it has the work, as that is the code in question.
    shown = max(rows, key=lambda row: (row[SIDE], row[TOTAL_NS]) if sides[1] else (0, row[TOTAL_NS]))
    tree, place = trees[shown[SIDE]], shown[OP_PLACE]
    name_a, name_b = (str(side[0][CANONICAL]) if side else "" for side in sides)
    kind = str(shown[C.KIND])
    return Group(
        path=_path(sides, trees) or tuple(tree.names_to(place)),
        shapes=_text(tree, place, C.INPUT_SHAPES),
        module=_text(tree, place, C.MODULE).removeprefix(MARKER),
        name_a=name_a,
        name_b=name_b,
        sort=str(shown[CANONICAL]) if kind == DeviceKind.MEMCPY else kind,
        role=str(shown[ROLE]),
        match_level=str(shown[MATCH_LEVEL]),
        a=a,
        b=b,
        terms=terms(a, b),
        evidence={
            key: [row[LONGEST_ROW] for row in side[:MAX_ROWS]]
            for key, side in zip("ab", sides, strict=True)
            if side
        },
        number=int(shown[GROUP]),
    )


def _path(sides: Sequence[_Rows], trees: tuple[OpTree, OpTree]) -> tuple[str, ...]:
    """Return the common end, or else the common start, of the paths of a group."""
    rows = [row for side in sides for row in side[:MAX_PATHS]]
    if rows[0][MATCH_LEVEL] not in _SPANNING:
        return ()
    paths = list(dict.fromkeys(tuple(trees[row[SIDE]].names_to(row[OP_PLACE])) for row in rows))
    if len(paths) == 1:
        return paths[0]
    # The end is what launched; where the ends differ, the start at least says in which part of the model.
    end = _common_start([path[::-1] for path in paths])[::-1]
    start = _common_start([path[: len(path) - len(end)] for path in paths])
    return (*start, BETWEEN, *end) if end else start or (_name_several(rows, trees),)


def _name_several(rows: _Rows, trees: tuple[OpTree, OpTree]) -> str:
    """Name the launching op with most time on both sides, and count the others."""
    sums: dict[str, int] = {}
    for row in rows:
        name = (trees[row[SIDE]].names_to(row[OP_PLACE]) or [NO_OP])[-1]
        sums[name] = sums.get(name, 0) + row[TOTAL_NS]
    most = min(sums, key=lambda name: (name == NO_OP, -sums[name], name))
    others = len(sums) - 1
    return SEVERAL.format(most, others, "s" * (others != 1)) if others else most


def _common_start(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names with which all paths begin."""
    columns = zip(*paths, strict=False)
    return tuple(names[0] for names in takewhile(lambda names: len(set(names)) == 1, columns))


def _text(tree: OpTree, place: int, column: str) -> str:
    return "" if place == NO_ROW else tree.text(column, place)


def sum_work(items: pd.DataFrame, groups: Sequence[Group]) -> WorkBreakdown:
    """Return the time of all items on both sides, and the terms of its difference."""
    total = sum((group.terms for group in groups), Terms())
    a, b = (int(items.loc[items[SIDE] == side, TOTAL_NS].sum()) for side in (0, 1))
    return WorkBreakdown(a, b, total)


def coverage(items: pd.DataFrame) -> Matched:
    """Return the time matched by each matching rule."""
    levels = []
    for name in (*MATCH_LEVELS, UNMATCHED):
        of_level = items[items[MATCH_LEVEL] == name]
        a, b = (int(of_level.loc[of_level[SIDE] == side, TOTAL_NS].sum()) for side in (0, 1))
        if len(of_level):
            levels.append(MatchLevel(name, int(of_level[GROUP].nunique()), a, b))
    shares = []
    for column in ("a_ns", "b_ns"):
        total = sum(getattr(level, column) for level in levels)
        unmatched = sum(getattr(level, column) for level in levels if level.name == UNMATCHED)
        shares.append(1 - unmatched / total if total else None)
    return Matched(shares[0], shares[1], tuple(levels), RULES_VERSION)


VIEWS = ("op", "module", "kernel")
NO_MODULE = "(no module recorded)"
_MAX_NAMES = 3


def path_of(group: Group) -> str:
    """Return the ops that lead to a group's work, in one text."""
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
    causes = [
        replace(_line(label, members, by), steps=(steps or {}).get(label)) for label, members in lines.items()
    ]

    def order(line: Cause) -> tuple[int, int, str]:
        terms = line.terms
        weight = max(terms.added, terms.removed, abs(terms.count), abs(terms.rate))
        return -abs(terms.delta), -weight, line.label

    return tuple(sorted(causes, key=order))


def step_ranges(
    matched: pd.DataFrame, sides: tuple[WorkItems, WorkItems], groups: Sequence[Group], *, by: str
) -> dict[str, tuple[Range, Range]]:
    """Return the least and most time of each line in a compared step, of the base and of the head.

    Args:
        matched: What `match` returns.
        sides: The items it was given.
        groups: The groups that differ.
        by: One of `VIEWS`.
    """
    labels = list(dict.fromkeys(_label(group, by) for group in groups))
    number = {label: place for place, label in enumerate(labels)}
    # The line of each group, -1 for groups without a difference.
    line = np.full(int(matched[GROUP].max()) + 2 if len(matched) else 1, -1, np.int64)
    for group in groups:
        line[group.number] = number[_label(group, by)]
    line_of, size = line[matched[GROUP].to_numpy(np.int64)], len(sides[0].table)
    a, b = (
        _ranges(side, lines, len(labels))
        for side, lines in zip(sides, (line_of[:size], line_of[size:]), strict=True)
    )
    return {label: (a[place], b[place]) for label, place in number.items()}


def _ranges(side: WorkItems, line: Ints, lines: int) -> list[Range]:
    """Return the least and most time of each line over the steps; a step without any counts as 0."""
    number = line[side.intervals[ITEM].to_numpy(np.int64)]
    sums = side.intervals[number >= 0].groupby([number[number >= 0], WINDOW])[C.DUR_NS].sum()
    by_step = sums.unstack(fill_value=0).reindex(index=range(lines), columns=range(side.steps), fill_value=0)
    return list(zip(by_step.min(axis=1).tolist(), by_step.max(axis=1).tolist(), strict=True))


def _label(group: Group, by: str) -> str:
    if by == "module":
        return group.module or f"{group.label} {NO_MODULE}"
    return group.what if by == "kernel" else group.label


def _line(label: str, groups: Sequence[Group], by: str) -> Cause:
    seen = dict.fromkeys(path_of(group) if by == "kernel" else group.what for group in groups)
    names = [name for name in seen if name != label.rpartition(PATH_ARROW)[2]]
    shown = "; ".join(names[:_MAX_NAMES])
    return Cause(
        label=label,
        detail=shown + (f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""),
        a=sum((group.a for group in groups), NOTHING),
        b=sum((group.b for group in groups), NOTHING),
        terms=sum((group.terms for group in groups), Terms()),
        match_levels=tuple(dict.fromkeys(group.match_level for group in groups)),
        modules=tuple(dict.fromkeys(group.module for group in groups if group.module))[:_MAX_NAMES],
        evidence={
            side: rows
            for side in ("a", "b")
            if (rows := [row for group in groups for row in group.evidence.get(side, [])][:MAX_ROWS])
        },
    )


def counts(groups: Sequence[Group]) -> tuple[Changed, ...]:
    """Return changed counts, largest change first; they are exact and need no test."""
    sums: dict[tuple[str, str], list[int]] = {}
    for group in groups:
        both = sums.setdefault((path_of(group), group.what), [0, 0])
        both[0] += group.a.count
        both[1] += group.b.count
    changed = [Changed(path, name, a, b) for (path, name), (a, b) in sums.items() if a != b]
    return tuple(sorted(changed, key=lambda work: (-abs(work.b - work.a), work.label, work.name)))
