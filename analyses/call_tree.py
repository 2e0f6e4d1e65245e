"""Call tree: ops and annotations by call path, over all steps and threads.

Calls with the same name and the same parent node are one node, so every step and layer adds to the same tree.
Sums are exact at every node: total = self + sum of the children's totals. Device times are missing, not zero,
if no device interval can be linked to its launch. Ops that captured a graph are nodes without calls under the
node that launches the graph.

Sources: Gregg 2016: The Flame Graph; torch.profiler's events.

Example:
    >>> tracekit.analyze(run, "call_tree").tables["nodes"].query("parent.isna()")  # doctest: +SKIP
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Column, Remark, Result, TableSpec
from tracekit.analysis.modules import levels
from tracekit.ingest.link.nesting import climb_to
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.schema import C, HostKind

from .shared.common import (
    NO_PARENT,
    RANK,
    UNLINKED,
    Bools,
    absent_device_note,
    ids_or_absent,
    ints,
    sum_subtrees,
)
from .shared.groups import sum_by_code
from .shared.host_columns import Parents, read_parents
from .shared.host_rows import MODULE, PATH_SEPARATOR
from .shared.intervals_by_class import drop_overruns, note_overruns

PROFILED, UNPROFILED = "profiled steps", "steps that were not profiled"
"""Roots of the samples in them."""
SHORTEST_DISTANCE_NS = 10_000_000
"""Distance of samples where there is one only."""
_FEW_KEYS = 1_000
"""Keys up to which sorting them takes less time than pandas' hash table."""
NO_CALLS = (
    "no ops or annotations in this capture: CPU activity was not recorded; record with `--collector torch`"
)


@dataclass(frozen=True)
class _Calls:
    """The calls of a run."""

    frame: pd.DataFrame  # every host row
    parents: Parents  # the nearest enclosing row of each
    selected: Bools  # whether each row is of a kind that the tree shows: ops with annotations or Python calls
    parent: Ints  # position of the nearest enclosing selected row of each row, or `NO_PARENT`
    names: Ints  # code of each row's name, in alphabetical order
    labels: pd.Index  # name of each code


@dataclass(frozen=True)
class _Tree:
    """Nodes, parents before children."""

    of_row: Ints  # node of each host row, `NO_PARENT` if it is not selected
    parent: Ints  # parent of each node
    depth: Ints  # number of ancestors of each node
    name: Ints  # code of each node's name
    rank: Ints  # rank of each node


def compute(run: Run) -> Result:
    """Compute the table of nodes."""
    # With the starts, so that rows are in the order of `read_parents`.
    frame = run.table("host_intervals", columns=[C.START_NS, C.KIND, C.NAME, C.DUR_NS, C.RANK])
    parents = read_parents(run)
    calls = _select(frame, parents, (HostKind.OP, HostKind.ANNOTATION))
    if not calls.selected.any():
        return Result(notes=(NO_CALLS,))
    nodes, notes = _nodes(run, calls)
    del calls  # of millions of rows, both would take 100 MB more
    tables = {"nodes": nodes}
    if (frame[C.KIND] == HostKind.PYTHON).any():
        tables["stacks"], _ = _nodes(run, _select(frame, parents, (HostKind.PYTHON, HostKind.OP)))
    if run.rows("host_samples"):
        tables["samples"] = _sample_nodes(run)
    return Result(tables, notes=(*notes, *note_overruns(run)))


def _sample_nodes(run: Run) -> pd.DataFrame:
    """Count samples of Python stacks by call path, below a root for profiled steps and one for others."""
    frame = run.table("host_samples", columns=[C.T_NS, C.RANK, C.STACK, C.PROFILED, C.RAN_NS])
    frame = frame[frame[C.RAN_NS].isna()]  # of the thread of the steps
    node_of: dict[tuple[int, int, str], int] = {}
    nodes: list[tuple[int, int | None, int, str]] = []
    weights: list[tuple[int, int, int, int]] = []
    steps = frame[C.PROFILED].fillna(1).eq(1).map({True: PROFILED, False: UNPROFILED})
    for rank in sorted(frame[C.RANK].unique().tolist()):
        for root in (PROFILED, UNPROFILED):
            rows = frame[(frame[C.RANK] == rank) & (steps == root)]
            distances = np.diff(ints(rows, C.T_NS))  # tables are sorted by time
            distance = int(np.median(distances)) if len(distances) else SHORTEST_DISTANCE_NS
            for stack, count in sorted(Counter(rows[C.STACK].astype(str)).items()):
                path, parent = [root, *reversed(stack.split(";"))], NO_PARENT
                for depth, name in enumerate(path):
                    node = node_of.setdefault((rank, parent, name), len(nodes))
                    if node == len(nodes):
                        nodes.append((rank, None if parent == NO_PARENT else parent, depth, name))
                    is_leaf = depth == len(path) - 1
                    weights.append((node, count, count * distance * is_leaf, count * distance))
                    parent = node
    table = pd.DataFrame(nodes, columns=[C.RANK, "parent", C.DEPTH, C.NAME]).astype({"parent": "Int64"})
    node, *sums = np.array(weights, np.int64).T
    names = ("calls", "host_self_ns", "host_total_ns")
    table = table.assign(
        node=np.arange(len(table)),
        **{name: sum_by_code(node, len(table), of_node) for name, of_node in zip(names, sums, strict=True)},
        **dict.fromkeys(("device_self_ns", "device_total_ns"), pd.array([pd.NA] * len(table), dtype="Int64")),
    )
    return table[[column.name for column in _COLUMNS]]


def _nodes(run: Run, calls: _Calls) -> tuple[pd.DataFrame, tuple[str, ...]]:
    tree = _build(calls)
    calls, tree, device, notes = _sum_launched(run, calls, tree)
    return _table(calls, tree, device), notes


def _select(frame: pd.DataFrame, parents: Parents, kinds: tuple[HostKind, ...]) -> _Calls:
    selected = frame[C.KIND].isin([str(kind) for kind in kinds]).to_numpy(bool)
    parent = climb_to(parents.parent, parents.parent, selected)
    raw = frame[C.NAME].astype("category").cat
    merged = raw.categories.astype(str).str.replace(r"#\d+$", "", regex=True)
    codes, labels = pd.factorize(np.asarray(merged, dtype=object), sort=True)
    return _Calls(frame, parents, selected, parent, codes.astype(np.int64)[raw.codes], pd.Index(labels))


def _build(calls: _Calls) -> _Tree:
    """Build the tree level by level: one node per name and parent node."""
    rows = np.flatnonzero(calls.selected)
    above, place = calls.parent[rows], np.cumsum(calls.selected, dtype=np.int32) - 1
    parent_call = np.where(above == NO_PARENT, NO_PARENT, place[above])
    del above, place
    name, rank = calls.names[rows], ints(calls.frame, C.RANK)[rows]
    of_call, count, width = np.full(len(rows), NO_PARENT, np.int64), 0, len(calls.labels)
    nodes: list[tuple[Ints, Ints, Ints, Ints]] = []
    # Whole levels at once: a Python call per row would be slow.
    for level in levels(parent_call):
        key = of_call[parent_call[level]] if nodes else rank[level]
        node, keys = _number(key * width + name[level])
        of_call[level] = count + node
        first = np.empty(len(keys), np.int64)
        first[node[::-1]] = level[::-1]
        parent = keys // width if nodes else np.full(len(keys), NO_PARENT, np.int64)
        depth = np.full(len(keys), len(nodes), np.int64)
        nodes.append((parent, depth, keys % width, rank[first]))
        count += len(keys)
    of_row = np.full(len(calls.parent), NO_PARENT, np.int64)
    of_row[rows] = of_call
    return _Tree(of_row, *(np.concatenate(parts) for parts in zip(*nodes, strict=True)))


def _number(keys: Ints) -> tuple[Ints, Ints]:
    """The number of each key among the distinct ones, and those, sorted."""
    if len(keys) < _FEW_KEYS:  # each level of a deep tree has few
        distinct, numbers = np.unique(keys, return_inverse=True)
        return numbers, distinct
    numbers, distinct = pd.factorize(keys, sort=True)
    return numbers, distinct


def _sum_launched(run: Run, calls: _Calls, tree: _Tree) -> tuple[_Calls, _Tree, Ints | None, tuple[str, ...]]:
    """Sum the device time launched by each node, or return a note why it is unknown; add captured ops."""
    columns = [C.ROW_ID, C.RANK, C.DUR_NS, C.OP_ROW, C.LAUNCH_ROW, C.CAPTURED_OP, C.CAPTURED_PATH]
    frame = drop_overruns(run, busy(run, columns))
    if frame.empty:
        return calls, tree, None, (absent_device_note(run),)
    op, call = (calls.parents.index.of(ids_or_absent(frame[name])) for name in (C.OP_ROW, C.LAUNCH_ROW))
    captured = np.flatnonzero((op == NO_PARENT) & frame[C.CAPTURED_OP].notna().to_numpy(bool))
    op = np.where((op == NO_PARENT) & (call != NO_PARENT), calls.parent[call], op)
    node = np.where(op == NO_PARENT, NO_PARENT, tree.of_row[op])
    if len(captured):
        calls, tree, node[captured] = _with_captured(calls, tree, frame.iloc[captured], node[captured])
    has_node = node != NO_PARENT
    duration = ints(frame, C.DUR_NS)
    if not has_node.any():
        return calls, tree, None, (UNLINKED,)
    sums = sum_by_code(node[has_node], len(tree.parent), duration[has_node])
    unlinked = int(duration[~has_node].sum())
    share = unlinked / max(1, int(duration.sum()))
    note = Remark(f"{share:.1%} of the device time is not linked to an op or annotation")
    return calls, tree, sums, (note,) if unlinked else ()


def _with_captured(calls: _Calls, tree: _Tree, rows: pd.DataFrame, above: Ints) -> tuple[_Calls, _Tree, Ints]:
    """Add the ops that captured these intervals below the nodes that launched their graphs, -1 at the top.

    Returns also the node of each interval.
    """
    names = {str(name): code for code, name in enumerate(calls.labels)}
    new_nodes: dict[tuple[int, int, int], int] = {}
    added: list[tuple[int, int, int, int]] = []
    paths = rows[[C.RANK, C.CAPTURED_PATH, C.CAPTURED_OP]].itertuples(index=False, name=None)
    nodes = np.empty(len(rows), np.int64)
    for place, (node, (rank, path, op)) in enumerate(zip(above.tolist(), paths, strict=True)):
        around = path.split(PATH_SEPARATOR) if isinstance(path, str) else []
        for name in [*(name for name in around if not name.startswith(MODULE)), op]:
            key = (node, names.setdefault(name, len(names)), rank)
            if key not in new_nodes:
                new_nodes[key] = len(tree.parent) + len(added)
                first = len(tree.parent)
                depth = tree.depth[node] if node < first else added[node - first][1]
                added.append((node, 0 if node == NO_PARENT else int(depth) + 1, key[1], rank))
            node = new_nodes[key]
        nodes[place] = node
    more = np.array(added, np.int64).T
    columns = zip((tree.parent, tree.depth, tree.name, tree.rank), more, strict=True)
    grown = _Tree(tree.of_row, *(np.concatenate(both) for both in columns))
    return replace(calls, labels=pd.Index(list(names))), grown, nodes


def _table(calls: _Calls, tree: _Tree, device: Ints | None) -> pd.DataFrame:
    size = len(tree.parent)
    nodes_of_calls = tree.of_row[calls.selected]
    total = sum_by_code(nodes_of_calls, size, ints(calls.frame, C.DUR_NS)[calls.selected])
    inside = tree.parent != NO_PARENT
    self_ns = total - sum_by_code(tree.parent[inside], size, total[inside])
    missing = [pd.NA] * size
    return pd.DataFrame(
        {
            "node": np.arange(size),
            "parent": pd.array(tree.parent, dtype="Int64"),
            C.DEPTH: tree.depth,
            C.NAME: calls.labels[tree.name],
            "calls": np.bincount(nodes_of_calls, minlength=size),
            "host_self_ns": self_ns,
            "host_total_ns": total,
            "device_self_ns": pd.array(missing if device is None else device, dtype="Int64"),
            "device_total_ns": pd.array(
                missing if device is None else sum_subtrees(tree.parent, device), dtype="Int64"
            ),
            C.RANK: tree.rank,
        }
    ).assign(parent=lambda table: table["parent"].mask(table["parent"] == NO_PARENT))


_COLUMNS = (
    Column("node", "", "number of the node"),
    Column("parent", "", "number of the parent node; missing for a root"),
    Column(C.DEPTH, "", "number of ancestors"),
    Column(C.NAME, "", "name of the op, annotation or Python function"),
    Column("calls", "count", "number of calls"),
    Column("host_self_ns", "ns", "host total minus the total of its child nodes"),
    Column("host_total_ns", "ns", "Σ of durations of its calls"),
    Column("device_self_ns", "ns", "Σ of the device intervals launched by it directly"),
    Column("device_total_ns", "ns", "Σ of the device intervals launched by it and its descendants"),
    RANK,
)

ANALYSIS = Analysis(
    name="call_tree",
    title="Call tree",
    question="Which call paths take host and device time?",
    definition=(
        "A node is one name under one parent node: all ops and annotations with the same call path, over all "
        "steps and threads, ignoring a number at the end of a name (`#12`). host total = Σ of durations; "
        "host self = total − total of the child nodes; device self = Σ of the device intervals (kernels, "
        "copies, memsets, graphs) whose innermost launching op or annotation is the node; device total = "
        "self + total of the child nodes. Self times sum to the totals of the roots. Each rank has its own "
        "roots. `stacks` has the calls of Python functions and modules as nodes in place of annotations, "
        "which may cross them. Ops that captured a CUDA or HIP graph are nodes with 0 calls below the node "
        "that launched it, if that is no op. `samples` has the Python functions in the agent's samples as "
        "nodes, below a root for profiled steps and one for others; its calls are samples, and its times "
        "these times their median distance."
    ),
    tables=(
        TableSpec("nodes", "Nodes, parents before children", _COLUMNS),
        TableSpec("stacks", "Nodes with Python calls; parents before children", _COLUMNS),
        TableSpec("samples", "Nodes of sampled Python functions; parents before children", _COLUMNS),
    ),
    sources=("Gregg 2016: The Flame Graph", "torch.profiler events"),
    order=43,
    shares=(read_parents,),
    compute=compute,
)
