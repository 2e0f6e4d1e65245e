"""The call tree: ops and annotations by the path of calls that led to them, over all steps and threads.

Calls of one name under the same parent node are one node, so every step and layer adds to the same tree.
A number at the end of an annotation's name, as in `ProfilerStep#12`, is left out.

* host total = Σ of the durations of the node's calls; host self = total minus that of its child nodes.
* device self = Σ of the durations of the intervals (kernels, copies, memsets, graphs) whose launch the node
  is the innermost op or annotation of; device total adds those of its child nodes.

Both are exact: total = self + Σ of the children's totals at every node, so all self times sum to the totals
of the roots. Roots are told apart by rank. Missing, not zero, where no device interval can be linked to its
launch.

Sources: Gregg 2016: The Flame Graph; torch.profiler's events.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "call_tree")  # doctest: +SKIP
    >>> result.tables["nodes"].query("parent.isna()")  # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Column, Remark, Result, TableSpec
from tracekit.run import busy
from tracekit.schema import C, HostKind

from ._shared.common import NO_PARENT, RANK, UNLINKED, absent_device_note, ints, op_parents, positions
from ._shared.host_time import total_by

if TYPE_CHECKING:
    from tracekit.intervals import Ints
    from tracekit.run import Run

NO_CALLS = (
    "no ops or annotations in this capture: the CPU activity was off; "
    "record with `--collector torch`, which has it on"
)
_NUMBER = r"#\d+$"


@dataclass(frozen=True)
class _Calls:
    """The calls of a run.

    Attributes:
        frame: Every host row.
        kept: Whether each row is an op or annotation.
        above: Position of the nearest enclosing one of each row, `NO_PARENT` without one.
        names: Code of each row's name, in alphabetical order.
        labels: Name of each code.
    """

    frame: pd.DataFrame
    kept: np.ndarray[tuple[int], np.dtype[np.bool_]]
    above: Ints
    names: Ints
    labels: pd.Index


@dataclass(frozen=True)
class _Tree:
    """Nodes in order of depth, parents before children.

    Attributes:
        of_row: Node of each host row, `NO_PARENT` for those that are neither op nor annotation.
        parent: Parent of each node.
        depth: Number of nodes above each.
        name: Code of each node's name.
        rank: Rank of each node.
    """

    of_row: Ints
    parent: Ints
    depth: Ints
    name: Ints
    rank: Ints


def compute(run: Run) -> Result:
    """Make the table of nodes."""
    calls = _read(run)
    if not calls.kept.any():
        return Result(notes=(NO_CALLS,))
    tree = _grow(calls)
    device, notes = _launched(run, calls, tree)
    return Result({"nodes": _table(calls, tree, device)}, notes=notes)


def _read(run: Run) -> _Calls:
    columns = [C.ROW_ID, C.PARENT_ROW, C.KIND, C.NAME, C.DUR_NS, C.RANK]
    frame = run.table("host_intervals", columns=columns)
    kept = frame[C.KIND].isin([str(HostKind.OP), str(HostKind.ANNOTATION)]).to_numpy(bool)
    above = op_parents(kept, positions(frame[C.ROW_ID], frame[C.PARENT_ROW]))
    raw = frame[C.NAME].astype("category").cat
    merged = raw.categories.astype(str).str.replace(_NUMBER, "", regex=True)
    codes, labels = pd.factorize(np.asarray(merged, dtype=object), sort=True)
    return _Calls(frame, kept, above, codes.astype(np.int64)[raw.codes], pd.Index(labels))


def _grow(calls: _Calls) -> _Tree:
    """Nodes level by level: one for each name under each node of the level above."""
    of_row = np.full(len(calls.above), NO_PARENT, np.int64)
    level = np.flatnonzero(calls.kept & (calls.above == NO_PARENT))
    waiting = np.flatnonzero(calls.kept & (calls.above != NO_PARENT))
    rank = ints(calls.frame, C.RANK)
    count, width = 0, len(calls.labels)
    parents: list[Ints] = []
    depths: list[Ints] = []
    names: list[Ints] = []
    ranks: list[Ints] = []
    while len(level):
        over = of_row[calls.above[level]] if depths else rank[level]
        keys, first, inverse = np.unique(
            over * width + calls.names[level], return_index=True, return_inverse=True
        )
        of_row[level] = count + inverse
        parents.append(keys // width if depths else np.full(len(keys), NO_PARENT, np.int64))
        names.append(keys % width)
        ranks.append(rank[level][first])
        depths.append(np.full(len(keys), len(depths), np.int64))
        count += len(keys)
        ready = of_row[calls.above[waiting]] != NO_PARENT
        level, waiting = waiting[ready], waiting[~ready]
    return _Tree(of_row, *(np.concatenate(each) for each in (parents, depths, names, ranks)))


def _launched(run: Run, calls: _Calls, tree: _Tree) -> tuple[Ints | None, tuple[str, ...]]:
    """Device time each node launched itself, or why it is not known."""
    frame = busy(run, [C.DUR_NS, C.OP_ROW, C.LAUNCH_ROW])
    if frame.empty:
        return None, (absent_device_note(run),)
    rows = calls.frame[C.ROW_ID]
    at, call = positions(rows, frame[C.OP_ROW]), positions(rows, frame[C.LAUNCH_ROW])
    at = np.where((at == NO_PARENT) & (call != NO_PARENT), calls.above[call], at)
    known = at != NO_PARENT
    duration = ints(frame, C.DUR_NS)
    if not known.any():
        return None, (UNLINKED,)
    sums = total_by(tree.of_row[at[known]], len(tree.parent), duration[known])
    lost = int(duration[~known].sum())
    share = lost / max(1, int(duration.sum()))
    return sums, (Remark(f"{share:.1%} of the device time is linked to no op or annotation"),) if lost else ()


def _table(calls: _Calls, tree: _Tree, device: Ints | None) -> pd.DataFrame:
    size = len(tree.parent)
    of_kept = tree.of_row[calls.kept]
    total = total_by(of_kept, size, ints(calls.frame, C.DUR_NS)[calls.kept])
    inside = tree.parent != NO_PARENT
    own = total - total_by(tree.parent[inside], size, total[inside])
    missing = pd.array([pd.NA] * size, dtype="Int64")
    return pd.DataFrame(
        {
            "node": np.arange(size),
            "parent": pd.array(tree.parent, dtype="Int64"),
            C.DEPTH: tree.depth,
            C.NAME: calls.labels[tree.name],
            "calls": np.bincount(of_kept, minlength=size),
            "host_self_ns": own,
            "host_total_ns": total,
            "device_self_ns": missing if device is None else pd.array(device, dtype="Int64"),
            "device_total_ns": missing if device is None else pd.array(_summed(tree, device), dtype="Int64"),
            C.RANK: tree.rank,
        }
    ).assign(parent=lambda table: table["parent"].mask(table["parent"] == NO_PARENT))


def _summed(tree: _Tree, own: Ints) -> Ints:
    """Each node's own and what is below it."""
    total = own.copy()
    for depth in range(int(tree.depth.max()), 0, -1):
        level = np.flatnonzero(tree.depth == depth)
        np.add.at(total, tree.parent[level], total[level])
    return total


ANALYSIS = Analysis(
    name="call_tree",
    title="Call tree",
    question="Through which calls does the host's and the device's time go?",
    definition=(
        "A node is one name under one parent node: ops and annotations of all steps and threads with the "
        "same path, numbers at the end of a name (`#12`) left out. host total = Σ of durations; host self = "
        "total − that of the child nodes; device self = Σ of the intervals it is the innermost op or "
        "annotation around the launch of; device total = self + that of the child nodes. All self times sum "
        "to the roots' totals."
    ),
    tables=(
        TableSpec(
            "nodes",
            "Nodes, parents before children",
            (
                Column("node", "", "number of the node"),
                Column("parent", "", "number of the node around it; missing for a root"),
                Column(C.DEPTH, "", "number of nodes around it"),
                Column(C.NAME, "", "name of the op or annotation"),
                Column("calls", "count", "calls"),
                Column("host_self_ns", "ns", "host total minus that of its child nodes"),
                Column("host_total_ns", "ns", "Σ of durations of its calls"),
                Column("device_self_ns", "ns", "Σ of the device intervals it launched itself"),
                Column("device_total_ns", "ns", "Σ of the device intervals launched by it and below it"),
                RANK,
            ),
        ),
    ),
    sources=("Gregg 2016: The Flame Graph", "torch.profiler events"),
    order=43,
    compute=compute,
)
