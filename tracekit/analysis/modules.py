"""Tree of the `torch.nn.Module` calls of a run, and the module of each host row.

torch.profiler records a range `nn.Module: Linear_3` around each call of a module if it records Python stacks.
A node of the tree is a module instance at its place: all calls of one name under the same parent node, over
all steps, threads and ranks. A row belongs to the node of the innermost module call around it on its thread.

An op of the backward pass, with all that runs in it, belongs to the node of its forward op instead: the last
one to start with the same sequence number in the same process, as the profiler links them. A sequence number
that several threads of a process gave out identifies no forward op: such backward ops stay where they ran,
like those without a sequence number (`AccumulateGrad`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracekit.runs.intervals import Ints
    from tracekit.runs.run import Run

    Bools = npt.NDArray[np.bool_]

MARKER = "nn.Module: "
OUTSIDE = -1
"""Node of rows outside of any module."""
_INSTANCE = re.compile(r"_\d+$")
_FEW = 64
"""Calls of a level below which they are numbered one by one."""
_READ = (C.ROW_ID, C.PARENT_ROW, C.KIND, C.NAME, C.RANK, C.PID, C.TID, C.START_NS, C.SEQUENCE, C.FWD_TID)


@dataclass(frozen=True)
class Modules:
    """Tree of modules: nodes in order of their first calls, so that parents precede children."""

    parent: Ints  # parent of each node, `OUTSIDE` at the top
    names: tuple[str, ...]  # name of each node's instance, as `Linear_3`
    row_id: Ints  # ids of the host rows, ascending
    node: Ints  # node of each host row; of a call of a module, its own
    backward: Bools  # whether each row belongs to its node by a sequence number
    call: Bools  # whether each row is a call of a module
    unlinked: int  # number of backward ops with a sequence number but without a known forward op

    def places(self, rows: pd.Series) -> Ints:
        """Positions of host rows by id, -1 for null and absent ones."""
        if not len(self.row_id):
            return np.full(len(rows), -1, np.int64)
        return _positions(self.row_id, rows.astype("Int64"))

    def of(self, rows: pd.Series) -> Ints:
        """Node of each host row by id, `OUTSIDE` for null and absent ones."""
        nodes: Ints = np.append(self.node, OUTSIDE)[self.places(rows)]
        return nodes


def module_type(name: str) -> str:
    """Class of a module instance.

    Example:
        >>> module_type("Linear_3"), module_type("FusedMoE_v2_0")
        ('Linear', 'FusedMoE_v2')
    """
    return _INSTANCE.sub("", name)


def has_module_calls(run: Run) -> bool:
    """Whether the run has calls of modules."""
    python = pc.field(C.KIND) == str(HostKind.PYTHON)
    names = run.table("host_intervals", columns=[C.NAME], where=python)[C.NAME]
    return bool(_is_module_call(names).any())


def _is_module_call(names: pd.Series) -> Bools:
    """Whether each name is that of a call of a module."""
    coded = names.astype("category").cat
    has_marker = np.array([*(str(name).startswith(MARKER) for name in coded.categories), False])
    calls: Bools = has_marker[coded.codes.to_numpy()]  # code -1, a missing name, takes the last: False
    return calls


def read_modules(run: Run) -> Modules | None:
    """Read the tree of modules; None if the run has no calls of modules.

    Example:
        >>> import tracekit
        >>> from tracekit.analysis.modules import read_modules
        >>> read_modules(tracekit.open("latest"))  # doctest: +SKIP
    """
    if not has_module_calls(run):
        return None
    rows = run.table("host_intervals", columns=list(_READ))
    if not rows[C.ROW_ID].is_monotonic_increasing:
        rows = rows.sort_values(C.ROW_ID, kind="stable", ignore_index=True)
    ids, kinds = rows[C.ROW_ID].to_numpy(np.int64), rows[C.KIND]
    call = (kinds == HostKind.PYTHON).to_numpy(bool) & _is_module_call(rows[C.NAME])
    parent = _positions(ids, rows[C.PARENT_ROW])
    forward, unlinked = _forward_ops(rows, (kinds == HostKind.OP).to_numpy(bool))
    linked = forward >= 0
    above = find_enclosing(call | linked, parent)
    start = rows[C.START_NS].to_numpy(np.int64)
    tree = _Tree(call, np.where(linked, above[forward], above), rows[C.NAME], start)
    anchors = tree.nodes(np.flatnonzero(call | linked))
    anchored = np.where(call | linked, np.arange(len(ids)), above)
    node = np.append(anchors, OUTSIDE)[anchored]
    by_link = find_enclosing(linked, parent)
    backward = (linked | (by_link >= 0)) & (node != OUTSIDE)
    return Modules(tree.parent, tree.names, ids, node, backward, call, unlinked)


def assign_modules(run: Run, ops: pd.DataFrame) -> pd.Series:
    """Module of each op, as in the column `module`, and of backward ops that of their forward op."""
    modules = read_modules(run)
    if modules is None or not modules.backward.any():
        return ops[C.MODULE]
    node = modules.of(ops[C.ROW_ID])
    names = pd.Index([MARKER + name for name in modules.names], dtype=object)
    labels, codes = np.unique(names.to_numpy(), return_inverse=True)
    coded = pd.Categorical.from_codes(np.append(codes, -1)[node], pd.Index(labels))
    return pd.Series(coded, index=ops.index, name=C.MODULE)


def _positions(ids: Ints, wanted: pd.Series) -> Ints:
    values = wanted.fillna(-1).to_numpy(np.int64)
    is_consecutive = ids[-1] - ids[0] == len(ids) - 1  # as those of one trace: no search is needed
    nearest = np.clip(values - ids[0], 0, None) if is_consecutive else np.searchsorted(ids, values)
    nearest = np.minimum(nearest, len(ids) - 1)
    positions: Ints = np.where(ids[nearest] == values, nearest, -1)
    return positions


def find_enclosing(wanted: Bools, parent: Ints) -> Ints:
    """Position of the nearest enclosing wanted row of each row, -1 without one.

    Example:
        >>> find_enclosing(np.array([True, False, True]), np.array([-1, 0, 1]))
        array([-1,  0,  0])
    """
    if not wanted.any():
        return np.full(len(parent), -1, np.int64)
    jump = np.append(np.where(wanted, np.arange(len(parent)), parent), -1)
    for _ in range(len(parent).bit_length()):  # pointer doubling; damaged rows may form cycles
        further = jump[jump]
        if np.array_equal(further, jump):
            break
        jump = further
    nearest = jump[parent]
    return np.where(np.append(wanted, False)[nearest], nearest, -1)


def levels(parent: Ints) -> list[Ints]:
    """Positions of rows by the number of rows around them; damaged rows, which form cycles, are left out.

    Rows without a row around have a negative parent.

    Example:
        >>> [level.tolist() for level in levels(np.array([-1, 0, 1, 0]))]
        [[0], [1, 3], [2]]
    """
    jump = np.append(parent, -1)
    depth = (jump >= 0).astype(np.int64)
    for _ in range(len(parent).bit_length()):  # pointer doubling
        if (jump < 0).all():
            break
        depth, jump = depth + depth[jump], jump[jump]
    rows = np.flatnonzero(jump[:-1] < 0)
    rows = rows[np.argsort(depth[rows], kind="stable")]
    return np.split(rows, np.flatnonzero(np.diff(depth[rows])) + 1) if len(rows) else []


def _forward_ops(rows: pd.DataFrame, is_op: Bools) -> tuple[Ints, int]:
    """Position of the forward op of each backward op, -1 for other rows; and how many have none."""
    numbered = is_op & (rows[C.SEQUENCE].fillna(-1).to_numpy(np.int64) >= 0)
    after = rows[C.FWD_TID].fillna(0).to_numpy(np.int64) > 0
    forward_ops = np.full(len(rows), -1, np.int64)
    keys = [C.RANK, C.PID, C.SEQUENCE]
    forward = rows.loc[numbered & ~after, [*keys, C.TID, C.START_NS]]
    forward = forward.assign(at=forward.index).sort_values([C.START_NS, "at"], kind="stable")
    one_thread = forward.groupby(keys)[C.TID].transform("nunique") == 1
    last = forward[one_thread].drop_duplicates(keys, keep="last")[[*keys, C.START_NS, "at"]]
    backward = rows.loc[numbered & after, [*keys, C.START_NS]]
    joined = backward.merge(last, on=keys, how="left", suffixes=("", "_forward"))
    has_forward = (joined["at"].notna() & (joined[f"{C.START_NS}_forward"] <= joined[C.START_NS])).to_numpy(
        bool
    )
    places = backward.index.to_numpy(np.int64)
    forward_ops[places[has_forward]] = joined.loc[has_forward, "at"].to_numpy(np.int64)
    return forward_ops, int((~has_forward).sum())


class _Tree:
    """Nodes of module calls.

    Args:
        call: Whether each row is a call of a module; other anchors take the node of what they depend on.
        depends: Position of the anchor under which each row's node lies, -1 at the top.
        names: Names of the rows.
        start: Starts of the rows, ns.
    """

    def __init__(self, call: Bools, depends: Ints, names: pd.Series, start: Ints) -> None:
        self._call, self._depends, self._start = call, depends, start
        coded = names.astype("category").cat
        self._codes, self._labels = coded.codes.to_numpy(np.int64), coded.categories.astype(str)
        self.parent: Ints = np.empty(0, np.int64)
        self.names: tuple[str, ...] = ()

    def nodes(self, anchors: Ints) -> Ints:
        """Node of each anchor by position of its row; `OUTSIDE` for all other rows."""
        # One more than rows: position -1, on which anchors at the top depend, is always outside.
        node = np.full(len(self._call) + 1, OUTSIDE, np.int64)
        numbers: dict[tuple[int, int], int] = {}
        at = np.full(len(self._call) + 1, OUTSIDE, np.int64)  # place of each row among the anchors
        at[anchors] = np.arange(len(anchors))
        for level in levels(at[self._depends[anchors]]):
            ready = anchors[level]
            node[ready] = node[self._depends[ready]]
            called = ready[self._call[ready]]
            if len(called) < _FEW:  # of thousands of levels, a sort each takes most of the time
                for row, above in zip(called.tolist(), node[called].tolist(), strict=True):
                    node[row] = numbers.setdefault((above, int(self._codes[row])), len(numbers))
                continue
            keys, inverse = np.unique(
                np.stack((node[called], self._codes[called])), axis=1, return_inverse=True
            )
            nodes = [numbers.setdefault((above, code), len(numbers)) for above, code in keys.T.tolist()]
            node[called] = np.array(nodes, np.int64)[inverse.reshape(-1)]
        return self._in_order(node[:-1], np.array([*numbers], np.int64).reshape(-1, 2))

    def _in_order(self, node: Ints, keys: Ints) -> Ints:
        """Number the nodes by their first calls, a parent before its children."""
        first = np.full(len(keys), np.iinfo(np.int64).max)
        np.minimum.at(first, node[self._call], self._start[self._call])
        order = np.lexsort((np.arange(len(keys)), first))  # parents have the lower number of equal starts
        number = np.append(np.argsort(order), OUTSIDE)
        self.parent = number[keys[order, 0]]
        self.names = tuple(self._labels[code].removeprefix(MARKER) for code in keys[order, 1].tolist())
        renumbered: Ints = number[node]
        return renumbered
