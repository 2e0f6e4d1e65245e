"""Self and total time of ops on the host.

The self time of an op is its duration minus the durations of its direct child *ops*; runtime calls,
annotations and Python frames inside it are not subtracted, so the cost of a launch is attributed to its
op, and the self times of all ops sum to the time ops cover. The total time of a name counts only calls
that are not inside another call of the same name, so recursion is not counted twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.analysis import Column
from tracekit.schema import C, HostKind

from .common import NO_PARENT, ints, op_parents, positions, share

if TYPE_CHECKING:
    from tracekit.intervals import Ints
    from tracekit.run import Run

COLUMNS = (
    Column(C.NAME, "", "name of the op"),
    Column("calls", "count", "calls of the op"),
    Column("self_ns", "ns", "Σ of duration minus direct child ops"),
    Column("total_ns", "ns", "Σ of duration, without calls inside a call of the same op"),
    Column("self_share", "share", "self time over the self time of all ops"),
)


@dataclass(frozen=True)
class Ops:
    """The ops of a run as arrays, with their nesting.

    Attributes:
        frame: The rows of kind op.
        parent: Position of the nearest enclosing op, `NO_PARENT` without one.
        names: Code of each op's name.
        labels: Name of each code.
    """

    frame: pd.DataFrame
    parent: Ints
    names: Ints
    labels: pd.Index

    @cached_property
    def self_ns(self) -> Ints:
        """Duration minus direct child ops."""
        own = ints(self.frame, C.DUR_NS).copy()
        inside = self.parent != NO_PARENT
        np.subtract.at(own, self.parent[inside], ints(self.frame, C.DUR_NS)[inside])
        return own

    @cached_property
    def outermost(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether no other op of the same name encloses each op."""
        return self.outermost_by(self.names)

    def outermost_by(self, groups: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether no other op of the same group encloses each op."""
        alone = np.ones(len(self.parent), bool)
        above = self.parent.copy()
        while (climbing := above != NO_PARENT).any():
            at = np.flatnonzero(climbing)
            alone[at] &= groups[above[at]] != groups[at]
            above[at] = self.parent[above[at]]
        return alone


def read_ops(run: Run, *, columns: tuple[str, ...] = ()) -> Ops:
    """Read the ops of a run, with additional columns."""
    every = run.table("host_intervals", columns=[C.ROW_ID, C.PARENT_ROW, C.KIND, C.NAME, C.DUR_NS, *columns])
    is_op = (every[C.KIND] == HostKind.OP).to_numpy(bool)
    above = op_parents(is_op, positions(every[C.ROW_ID], every[C.PARENT_ROW]))[is_op]
    renumbered = np.append(np.cumsum(is_op) - 1, NO_PARENT)  # index -1 gives NO_PARENT
    frame = every[is_op].reset_index(drop=True)
    codes, labels = pd.factorize(frame[C.NAME].astype(object), sort=True)
    return Ops(frame, renumbered[above], codes.astype(np.int64), pd.Index(labels))


def total_by(codes: Ints, groups: int, values: Ints) -> Ints:
    """Exact integer sums per group."""
    sums = np.zeros(groups, np.int64)
    np.add.at(sums, codes, values)
    return sums


def by_op(run: Run) -> pd.DataFrame:
    """Host time by op name, longest self time first."""
    ops = read_ops(run)
    groups = len(ops.labels)
    duration = ints(ops.frame, C.DUR_NS)
    own = total_by(ops.names, groups, ops.self_ns)
    table = pd.DataFrame(
        {
            C.NAME: ops.labels,
            "calls": np.bincount(ops.names, minlength=groups),
            "self_ns": own,
            "total_ns": total_by(ops.names[ops.outermost], groups, duration[ops.outermost]),
            "self_share": share(own, int(own.sum())),
        }
    )
    return table.sort_values(["self_ns", C.NAME], ascending=[False, True], ignore_index=True)
