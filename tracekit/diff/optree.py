"""The ops of a run as a tree, and what identifies each: its path, with and without shapes, and its subtree.

The subtree hash covers the name and input shapes of the op, what it launched (kind and canonical name) and
the subtree hashes of its children as a multiset: the order of siblings does not count, as time stamps of
whole microseconds leave it open.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.diff import hashing
from tracekit.diff.names import op_name
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from tracekit.diff.hashing import Hashes
    from tracekit.intervals import Ints
    from tracekit.run import Run

NO_ROW = -1
PATH_ARROW = " > "
_COLUMNS = (C.ROW_ID, C.NAME, C.RANK, C.START_NS, C.DUR_NS, C.STEP, C.INPUT_SHAPES, C.MODULE)


@dataclass(frozen=True)
class OpTree:
    """The ops of a run as arrays with one place per op.

    Attributes:
        frame: The rows of kind op, with `_COLUMNS`.
        parent: Place of the nearest enclosing op, `NO_ROW` without one.
        levels: Places of the ops at each depth, the outermost first.
        top: Place of the outermost op around each.
        path: Hash of the names from the outermost op to it.
        shaped: The same with input shapes.
    """

    frame: pd.DataFrame
    parent: Ints
    levels: tuple[Ints, ...]
    top: Ints
    path: Hashes
    shaped: Hashes

    @property
    def self_ns(self) -> Ints:
        """Duration of each op minus that of its direct child ops."""
        duration = self.frame[C.DUR_NS].to_numpy(np.int64)
        own = duration.copy()
        inside = self.parent != NO_ROW
        np.subtract.at(own, self.parent[inside], duration[inside])
        return own

    def text(self, column: str, place: int) -> str:
        """Name, shapes or module of an op; empty where unknown."""
        value = self._texts[column][place]
        return value if isinstance(value, str) else ""

    @cached_property
    def _texts(self) -> dict[str, list[Any]]:
        """Columns as lists: of many groups each asks for a few texts."""
        return {name: self.frame[name].astype(object).tolist() for name in (C.NAME, C.INPUT_SHAPES, C.MODULE)}

    def names_to(self, place: int) -> list[str]:
        """Names from the outermost op to this one; an op inside one of its name is not named again."""
        names: list[str] = []
        while place != NO_ROW:
            names.append(op_name(self.text(C.NAME, place)))
            place = int(self.parent[place])
        return [name for name, _ in groupby(reversed(names))]

    def subtrees(self, launched_by: Ints, launched: Hashes) -> Hashes:
        """Subtree hash of the outermost op around each op.

        Args:
            launched_by: Place of the launching op of each device interval.
            launched: Hash of what each device interval is.
        """
        inner = np.zeros(len(self.frame), np.uint64)
        np.add.at(inner, launched_by, hashing.mixed(launched))
        own = hashing.joined(_name_hashes(self.frame), hashing.of_texts(self.frame[C.INPUT_SHAPES]))
        whole = own.copy()
        for places in reversed(self.levels):
            whole[places] = hashing.joined(own[places], inner[places])
            inside = places[self.parent[places] != NO_ROW]
            np.add.at(inner, self.parent[inside], hashing.mixed(whole[inside]))
        found: Hashes = whole[self.top]
        return found


def read(run: Run) -> OpTree:
    """Read the ops of a run and how they nest."""
    links = run.table("host_intervals", columns=[C.ROW_ID, C.KIND, C.PARENT_ROW])
    is_op = (links[C.KIND] == HostKind.OP).to_numpy(bool)
    ids = links[C.ROW_ID].to_numpy(np.int64)
    above = places_of(ids, links[C.PARENT_ROW])
    found = _nearest_ops(above, is_op)
    frame = run.table("host_intervals", columns=list(_COLUMNS), where=pc.field(C.KIND) == str(HostKind.OP))
    order = places_of(frame[C.ROW_ID].to_numpy(np.int64), pd.Series(ids[is_op], dtype="Int64"))
    parent = np.full(len(frame), NO_ROW, np.int64)
    renumbered = np.full(len(ids) + 1, NO_ROW, np.int64)
    renumbered[np.flatnonzero(is_op)] = order
    parent[order] = renumbered[found]
    return _tree(frame, parent)


def places_of(ids: Ints, wanted: pd.Series) -> Ints:
    """Where rows with the wanted ids stand, `NO_ROW` for null and for ids that are not there.

    Example:
        >>> places_of(np.array([7, 9]), pd.Series([9, None, 8], dtype="Int64"))
        array([ 1, -1, -1])
    """
    asked = wanted.fillna(NO_ROW).to_numpy(dtype=np.int64)
    if not len(ids):
        return np.full(len(asked), NO_ROW, np.int64)
    if (np.diff(ids) > 0).all():  # as in most runs
        return _places_in(ids, asked)
    order = np.argsort(ids, kind="stable")
    place = _places_in(ids[order], asked)
    found: Ints = np.append(order, NO_ROW)[place]
    return found


def _places_in(ordered: Ints, asked: Ints) -> Ints:
    place = np.minimum(np.searchsorted(ordered, asked), len(ordered) - 1)
    found: Ints = np.where(ordered[place] == asked, place, NO_ROW)
    return found


def _nearest_ops(above: Ints, is_op: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ints:
    """Of each op, the place of the nearest enclosing op among all rows."""
    found: Ints = above[is_op]
    climbing = np.flatnonzero(found != NO_ROW)
    while len(climbing := climbing[~is_op[found[climbing]]]):
        found[climbing] = above[found[climbing]]
        climbing = climbing[found[climbing] != NO_ROW]
    return found


def _tree(frame: pd.DataFrame, parent: Ints) -> OpTree:
    levels = _levels(parent)
    names = _name_hashes(frame)
    shaped_names = hashing.joined(names, hashing.of_texts(frame[C.INPUT_SHAPES]))
    top = np.arange(len(parent), dtype=np.int64)
    path, shaped = hashing.mixed(names), hashing.mixed(shaped_names)
    for places in levels[1:]:
        outer = parent[places]
        top[places] = top[outer]
        path[places] = hashing.joined(path[outer], names[places])
        shaped[places] = hashing.joined(shaped[outer], shaped_names[places])
    return OpTree(frame, parent, levels, top, path, shaped)


def _levels(parent: Ints) -> tuple[Ints, ...]:
    depth = np.zeros(len(parent), np.int64)
    deeper = np.flatnonzero(parent != NO_ROW)
    above = parent[deeper]
    while len(deeper):
        depth[deeper] += 1
        above = parent[above]
        deeper, above = deeper[above != NO_ROW], above[above != NO_ROW]
    order = np.argsort(depth, kind="stable")
    ends = np.searchsorted(depth[order], np.arange(depth.max(initial=-1) + 2))
    return tuple(order[start:end] for start, end in pairwise(ends.tolist()))


def _name_hashes(frame: pd.DataFrame) -> Hashes:
    return hashing.of_texts(frame[C.NAME], op_name)
