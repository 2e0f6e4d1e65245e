"""What ran in the compared steps, summed into pieces that are alike: the units that are matched.

A piece is all intervals of one op path with shapes, one subtree and one name. On devices the intervals are
kernels, copies, memsets and opaque graphs; where nothing ran on a device they are ops, with their self time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.diff import hashing, optree
from tracekit.diff.names import op_name, op_role, role
from tracekit.diff.spans import inside
from tracekit.kernel_names import family
from tracekit.run import busy
from tracekit.schema import C, DeviceKind, HostKind

if TYPE_CHECKING:
    from tracekit.diff.hashing import Hashes
    from tracekit.diff.optree import OpTree
    from tracekit.diff.spans import Span
    from tracekit.intervals import Ints
    from tracekit.run import Run

SUBTREE, SHAPED, PATH, LAUNCHER, MODULE_KEY = "subtree", "shaped", "path", "launcher", "module_key"
WHAT, SORT, CANONICAL, ROLE, OP_PLACE = "what", "sort", "canonical", "role", "op_place"
COUNT, TOTAL_NS, LONGEST_ROW = "count", "total_ns", "longest_row"
HASHES = (SUBTREE, SHAPED, PATH, LAUNCHER, MODULE_KEY, WHAT, SORT)
_READ = (C.ROW_ID, C.KIND, C.NAME, C.RANK, C.STEP, C.START_NS, C.DUR_NS, C.OP_ROW)
_COPIES = (C.COPY_KIND, C.SRC_MEMORY, C.DST_MEMORY)


@dataclass(frozen=True)
class Pieces:
    """The pieces of one run.

    Attributes:
        table: One row per piece: the hashes, name, canonical name, role, place of an op it stands for,
            count, total time, and row of the longest interval.
        tree: The ops that the places refer to.
        on_device: Whether the pieces ran on devices; else they are ops of the host.
        unassigned_ns: Device time of the ranks compared that belongs to no step at all.
    """

    table: pd.DataFrame
    tree: OpTree
    on_device: bool
    unassigned_ns: int = 0

    @property
    def total_ns(self) -> int:
        """Time of all pieces."""
        return int(self.table[TOTAL_NS].sum())


def read(run: Run, span: Span, *, on_device: bool) -> Pieces:
    """Sum what ran in the compared steps of a run."""
    tree = optree.read(run)
    return _of_device(run, span, tree) if on_device else _of_host(span, tree)


def _of_device(run: Run, span: Span, tree: OpTree) -> Pieces:
    frame = busy(run, [*_READ, *_COPIES])
    compared = inside(frame, span)
    stepless = frame[C.STEP].isna().to_numpy(bool) & ~compared if span.marked else np.zeros(len(frame), bool)
    unassigned = int(frame[C.DUR_NS].to_numpy(np.int64)[stepless].sum())
    frame = frame[compared].reset_index(drop=True)
    op = optree.places_of(tree.frame[C.ROW_ID].to_numpy(np.int64), frame[C.OP_ROW])
    labels = _device_labels(frame)
    what = hashing.of_texts(labels[CANONICAL])
    known = op != optree.NO_ROW
    subtree = tree.subtrees(op[known], what[known])
    rows = _Rows(op, labels, what, hashing.of_texts(labels[SORT]), frame[C.DUR_NS].to_numpy(np.int64))
    table = _summed(rows, frame[C.ROW_ID].to_numpy(np.int64), tree, subtree)
    names = tree.frame[C.NAME].astype(object).to_numpy(object)
    launchers = [str(names[place]) if place >= 0 else "" for place in table[OP_PLACE]]
    table[ROLE] = [
        str(role(name, launcher)) if sort == DeviceKind.KERNEL else _ROLES.get(sort, "copy")
        for name, launcher, sort in zip(table[C.NAME], launchers, table[C.KIND], strict=True)
    ]
    return Pieces(table, tree, on_device=True, unassigned_ns=unassigned)


_ROLES = {str(DeviceKind.MEMSET): "fill", str(DeviceKind.GRAPH): "other"}


def _of_host(span: Span, tree: OpTree) -> Pieces:
    compared = np.flatnonzero(inside(tree.frame, span))
    nothing = np.empty(0, np.int64)
    subtree = tree.subtrees(nothing, np.empty(0, np.uint64))
    names = tree.frame[C.NAME].iloc[compared].reset_index(drop=True)
    canonical = names.cat.rename_categories(str).map(op_name).astype("category")
    labels = pd.DataFrame({C.NAME: names, CANONICAL: canonical})
    labels[SORT] = pd.Categorical([str(HostKind.OP)] * len(labels))
    what = hashing.of_texts(labels[CANONICAL])
    rows = _Rows(compared, labels, what, hashing.of_texts(labels[SORT]), tree.self_ns[compared])
    ids = tree.frame[C.ROW_ID].to_numpy(np.int64)[compared]
    table = _summed(rows, ids, tree, subtree)
    table[ROLE] = [str(op_role(str(name))) for name in table[C.NAME]]
    return Pieces(table, tree, on_device=False)


@dataclass(frozen=True)
class _Rows:
    """Intervals: launching op, labels, hash of what and of which sort each is, and its time."""

    op: Ints
    labels: pd.DataFrame
    what: Hashes
    sort: Hashes
    dur_ns: Ints


def _device_labels(frame: pd.DataFrame) -> pd.DataFrame:
    """Of each row its name, its canonical name, and its sort: the kind, and the direction of a copy."""
    copied = frame[list(_COPIES)].astype(object).fillna("unknown")
    is_copy = (frame[C.KIND] == DeviceKind.MEMCPY).to_numpy(bool)
    canonical = frame[C.NAME].map({name: family(str(name)) for name in frame[C.NAME].cat.categories})
    between = copied[C.SRC_MEMORY] + " to " + copied[C.DST_MEMORY]
    described = "Memcpy " + copied[C.COPY_KIND] + " (" + between + ")"
    sort = frame[C.KIND].astype(object).where(~is_copy, "memcpy " + copied[C.COPY_KIND])
    return pd.DataFrame(
        {
            C.NAME: frame[C.NAME],
            CANONICAL: canonical.astype(object).where(~is_copy, described).astype("category"),
            SORT: sort.astype("category"),
            C.KIND: frame[C.KIND],
        }
    )


def _summed(rows: _Rows, ids: Ints, tree: OpTree, subtree: Hashes) -> pd.DataFrame:
    """One row per piece, in an order that does not depend on the order of the rows."""
    keys = _keys(rows, tree, subtree)
    codes = _codes(keys)
    size = int(codes.max(initial=-1)) + 1
    order = np.lexsort((-ids, rows.dur_ns, codes))  # the last of each piece is its longest, first row
    last = np.flatnonzero(np.append(np.diff(codes[order]) != 0, [True] * bool(len(order))))
    longest = order[last]
    total = np.zeros(size, np.int64)
    np.add.at(total, codes, rows.dur_ns)
    picked = rows.labels.iloc[longest]
    table = pd.DataFrame({name: keys[name][longest] for name in HASHES})
    table[C.NAME] = picked[C.NAME].astype(object).to_numpy()
    table[CANONICAL] = picked[CANONICAL].astype(object).to_numpy()
    table[C.KIND] = picked[C.KIND].astype(str).to_numpy() if C.KIND in picked else str(HostKind.OP)
    table[OP_PLACE] = rows.op[longest]
    table[COUNT] = np.bincount(codes, minlength=size).astype(np.int64)
    table[TOTAL_NS] = total
    table[LONGEST_ROW] = ids[longest]
    return table


def _keys(rows: _Rows, tree: OpTree, subtree: Hashes) -> dict[str, Hashes]:
    """The hashes of each row; those of ops are `NOTHING` where no op is known."""
    of_op = {
        SUBTREE: subtree,
        SHAPED: tree.shaped,
        PATH: tree.path,
        LAUNCHER: hashing.of_texts(tree.frame[C.NAME], op_name),
        MODULE_KEY: hashing.of_texts(tree.frame[C.MODULE]),
    }
    found = {name: np.append(values, hashing.NOTHING)[rows.op] for name, values in of_op.items()}
    return {**found, WHAT: rows.what, SORT: rows.sort}


def _codes(keys: dict[str, Hashes]) -> Ints:
    together = np.zeros(len(keys[WHAT]), np.uint64)
    for name in HASHES:
        together = hashing.joined(together, keys[name])
    codes: Ints = np.unique(together, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return codes
