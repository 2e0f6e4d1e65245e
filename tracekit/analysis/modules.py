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
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.analysis.model import compute_shared, list_host_names
from tracekit.ingest.link.nesting import climb_to, depths
from tracekit.runs.selection import RowIndex
from tracekit.runs.tables import to_codes, to_integers
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from tracekit.runs.intervals import Ints
    from tracekit.runs.run import Run

    Bools = npt.NDArray[np.bool_]

MARKER = "nn.Module: "
OUTSIDE = -1
"""Node of rows outside of any module."""
_INSTANCE = re.compile(r"_\d+$")
_FEW = 64  # calls of a level below which they are numbered one by one
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

    @cached_property
    def _index(self) -> RowIndex:
        return RowIndex(self.row_id)

    def places(self, rows: pd.Series) -> Ints:
        """Positions of host rows by id, -1 for null and absent ones."""
        return self._index.of(np.asarray(rows.astype("Int64").fillna(-1), np.int64))

    def of(self, rows: pd.Series) -> Ints:
        """Node of each host row by id, `OUTSIDE` for null and absent ones."""
        places = self.places(rows)
        return np.where(places < 0, OUTSIDE, self.node.take(places, mode="wrap"))


def module_type(name: str) -> str:
    """Class of a module instance.

    Example:
        >>> module_type("Linear_3"), module_type("FusedMoE_v2_0")
        ('Linear', 'FusedMoE_v2')
    """
    return _INSTANCE.sub("", name)


def read_modules(run: Run) -> Modules | None:
    """Read the tree of modules; None if the run has no calls of modules.

    Example:
        >>> import tracekit
        >>> from tracekit.analysis.modules import read_modules
        >>> read_modules(tracekit.open("latest"))  # doctest: +SKIP
    """
    return compute_shared(run, _read_modules)


def _read_modules(run: Run) -> Modules | None:
    if not any(name.startswith(MARKER) for name in list_host_names(run)):
        return None
    rows = run.arrow("host_intervals", columns=_READ)
    ids = rows[C.ROW_ID].to_numpy()
    if (ids[1:] < ids[:-1]).any():
        rows = rows.take(np.argsort(ids, kind="stable"))
        ids = rows[C.ROW_ID].to_numpy()
    (kinds, kind_texts), (codes, labels) = (to_codes(rows[name]) for name in (C.KIND, C.NAME))
    is_python, is_op = (
        np.array([*(text == kind for text in kind_texts), False])[kinds]  # code -1 takes the last: False
        for kind in (HostKind.PYTHON, HostKind.OP)
    )
    call = np.array([*(text.startswith(MARKER) for text in labels), False])[codes] & is_python
    if not call.any():
        return None
    start = rows[C.START_NS].to_numpy()
    parent = RowIndex(ids).of_every(to_integers(rows[C.PARENT_ROW]))
    forward, unlinked = _forward_ops(rows, is_op, start)
    linked = forward >= 0
    # Anchors have a node of their own, or that of another row; all else has that of the anchor around it.
    anchors = np.flatnonzero(call | linked)
    number = np.full(len(ids) + 1, OUTSIDE, np.int32)
    number[anchors] = np.arange(len(anchors), dtype=np.int32)
    around = number[climb_to(np.arange(len(ids)), parent, call | linked)]
    above = np.append(around, np.int32(OUTSIDE))[parent]
    depends = np.where(linked, above[forward], above)[anchors]
    tree = _Tree(call[anchors], depends, codes[anchors], labels, start[anchors])
    by_link = climb_to(np.arange(len(anchors)), above[anchors], linked[anchors]) >= 0
    node = np.append(tree.node, OUTSIDE)[around]
    backward = np.append(by_link, np.False_)[around] & (node != OUTSIDE)
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


def levels(parent: Ints) -> list[Ints]:
    """Positions of rows by the number of rows around them; damaged rows, which form cycles, are left out.

    Rows without a row around have a negative parent.

    Example:
        >>> [level.tolist() for level in levels(np.array([-1, 0, 1, 0]))]
        [[0], [1, 3], [2]]
    """
    depth = depths(parent)
    rows = np.flatnonzero(depth >= 0)
    depth = depth[rows]
    small = depth.astype(np.min_scalar_type(int(depth.max(initial=0))))  # NumPy sorts small integers by radix
    rows = rows[np.argsort(small, kind="stable")]
    return np.split(rows, np.cumsum(np.bincount(small))[:-1]) if len(rows) else []


def _forward_ops(rows: pa.Table, is_op: Bools, start: Ints) -> tuple[Ints, int]:
    """Position of the forward op of each backward op, -1 for other rows; and how many have none."""
    sequence = to_integers(rows[C.SEQUENCE])
    numbered = np.flatnonzero(is_op & (sequence >= 0))
    ops, sequence, start = rows.select([C.FWD_TID, C.RANK, C.PID, C.TID]), sequence[numbered], start[numbered]
    if len(numbered) < len(rows):
        ops = ops.take(numbered)
    after = to_integers(ops[C.FWD_TID]) > 0
    keys = np.zeros(len(numbered), np.int64)
    for key in (ops[C.RANK].to_numpy(), ops[C.PID].to_numpy(), sequence):
        codes, distinct = pd.factorize(key)
        keys, _ = pd.factorize(keys * len(distinct) + codes)
    forward, backward, thread = np.flatnonzero(~after), np.flatnonzero(after), ops[C.TID].to_numpy()
    last = np.full(int(keys.max(initial=-1)) + 1, -1, np.int64)
    forward = forward[np.argsort(start[forward], kind="stable")]
    last[keys[forward]] = forward
    several = forward[thread[forward] != thread[last[keys[forward]]]]
    last[keys[several]] = -1
    found = last[keys[backward]]
    has_forward = (found >= 0) & (start[found] <= start[backward])
    forward_ops = np.full(len(rows), -1, np.int64)
    forward_ops[numbered[backward[has_forward]]] = numbered[found[has_forward]]
    return forward_ops, int((~has_forward).sum())


class _Tree:
    """Nodes of anchors, which are calls of modules and rows that have the node of another one.

    Args:
        call: Whether each anchor is a call of a module.
        depends: The anchor under which each one's node lies, `OUTSIDE` at the top.
        codes: Indices of their names.
        labels: The names.
        start: Their starts, ns.
    """

    def __init__(self, call: Bools, depends: Ints, codes: Ints, labels: list[str], start: Ints) -> None:
        # One more than anchors: position -1, on which anchors at the top depend, is always outside.
        node = np.full(len(call) + 1, OUTSIDE, np.int64)
        numbers: dict[tuple[int, int], int] = {}
        for ready in levels(depends):
            node[ready] = node[depends[ready]]
            called = ready[call[ready]]
            if len(called) < _FEW:  # of thousands of levels, a sort each takes most of the time
                for row, above in zip(called.tolist(), node[called].tolist(), strict=True):
                    node[row] = numbers.setdefault((above, int(codes[row])), len(numbers))
                continue
            inverse, keys = pd.factorize(node[called] * len(labels) + codes[called], sort=True)
            nodes = [numbers.setdefault(divmod(key, len(labels)), len(numbers)) for key in keys.tolist()]
            node[called] = np.array(nodes, np.int64)[inverse]
        of_nodes = np.array([*numbers], np.int64).reshape(-1, 2)
        first = np.full(len(of_nodes), np.iinfo(np.int64).max)
        np.minimum.at(first, node[:-1][call], start[call])
        order = np.lexsort((np.arange(len(of_nodes)), first))  # parents have the lower number of equal starts
        number = np.append(np.argsort(order), OUTSIDE)
        # Nodes in order of their first calls, a parent before its children.
        self.parent: Ints = number[of_nodes[order, 0]]
        self.names = tuple(labels[code].removeprefix(MARKER) for code in of_nodes[order, 1].tolist())
        self.node: Ints = number[node[:-1]]
