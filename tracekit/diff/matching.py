"""Match the pieces of two runs, the strongest evidence first; whatever is left is added or removed.

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
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.diff import hashing
from tracekit.diff.names import SPECIFIC
from tracekit.diff.optree import NO_ROW
from tracekit.diff.pieces import LAUNCHER, MODULE_KEY, OP_PLACE, PATH, ROLE, SHAPED, SORT, SUBTREE, WHAT

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracekit.diff.hashing import Hashes
    from tracekit.diff.pieces import Pieces
    from tracekit.intervals import Ints

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
    """Give each piece its group and the rung that made it.

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
    """Of each piece its module where both sides have that, else nothing: modules of one side share a room."""
    module = pieces[MODULE_KEY].to_numpy(np.uint64)
    at_base = pieces[SIDE].to_numpy() == 0
    rooms: Hashes = np.where(
        np.isin(module, np.intersect1d(module[at_base], module[~at_base])), module, hashing.NOTHING
    )
    return rooms


def _climb(pieces: pd.DataFrame, group: Ints, key: _Key) -> None:
    """Match on one rung what is still unmatched."""
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
        able &= pieces[_ANCHOR].to_numpy(np.uint64) != hashing.NOTHING
    return able


def _numbered(pieces: pd.DataFrame, group: Ints) -> pd.DataFrame:
    """What is matched by its group; the rest one group per path and name, so that its parts stay together."""
    alone = np.flatnonzero(group < 0)
    if len(alone):
        codes = pieces.iloc[alone].groupby([SIDE, MODULE_KEY, PATH, WHAT], sort=False).ngroup().to_numpy()
        group[alone] = codes + int(group.max()) + 1
    dense = np.unique(group, return_inverse=True)[1].reshape(-1)
    return pieces.assign(**{GROUP: dense}).drop(columns=[_ANCHOR, _ROOM], errors="ignore")


def _anchors(base: Pieces, head: Pieces) -> tuple[Hashes, Hashes]:
    """Of each piece the path of the innermost op that both runs have, else its module if both have it."""
    paths = np.intersect1d(base.tree.path, head.tree.path)
    modules = np.intersect1d(base.table[MODULE_KEY], head.table[MODULE_KEY])
    return _anchored(base, paths, modules), _anchored(head, paths, modules)


def _anchored(side: Pieces, paths: Hashes, modules: Hashes) -> Hashes:
    at = side.table[OP_PLACE].to_numpy(np.int64).copy()
    known = np.append(np.isin(side.tree.path, paths), [True])  # the last place answers for "no op"
    parent = np.append(side.tree.parent, [NO_ROW])
    while (climbing := ~known[at]).any():
        at[climbing] = parent[at[climbing]]
    found = np.append(side.tree.path, hashing.NOTHING)[at]
    module = side.table[MODULE_KEY].to_numpy(np.uint64)
    fallback = np.where(np.isin(module, modules), module, hashing.NOTHING)
    anchors: Hashes = np.where(at == NO_ROW, fallback, found)
    return anchors
