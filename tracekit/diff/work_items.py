"""Ops of a run as a tree, and its work items: the work of one op path with shapes.

Ops are identified by their path, with and without shapes, and by a hash of their subtree: name and input
shapes, kinds and canonical names of launched work, and the hashes of the children as a multiset. The order of
siblings does not count, as time stamps of whole microseconds may leave it open.

Generated kernels whose source both runs have, under different names, go by one name in both: the hash of a
source decides, which does not depend on the name that the compiler gave it.

An item is all intervals of one op path with shapes, one subtree and one name. On devices the intervals are
kernels, copies, memsets and opaque graphs; without device work they are ops, with their self time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis.kernel_names import shared_family
from tracekit.analysis.modules import assign_modules
from tracekit.diff import naming
from tracekit.diff.compared_steps import StepRange, window_of
from tracekit.diff.naming import Hashes, op_name, op_role, role
from tracekit.ingest.link import nesting
from tracekit.runs import kernel_sources
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.schema import C, DeviceKind, HostKind

NO_ROW = -1
_OPS = pc.field(C.KIND) == str(HostKind.OP)
_COLUMNS = (C.ROW_ID, C.NAME, C.RANK, C.START_NS, C.DUR_NS, C.STEP, C.INPUT_SHAPES, C.MODULE, C.KERNEL_HASH)
RECORDED = "recorded_name"


@dataclass(frozen=True)
class OpTree:
    """The ops of a run as arrays with one place per op."""

    # the rows of kind op, with `_COLUMNS`, and `RECORDED` where shared names replaced names
    frame: pd.DataFrame
    parent: Ints  # place of the nearest enclosing op, `NO_ROW` without one
    levels: tuple[Ints, ...]  # places of the ops at each depth, the outermost first
    top: Ints  # place of the outermost op around each
    path: Hashes  # hash of the names from the outermost op to it
    shaped: Hashes  # the same with input shapes

    @property
    def self_ns(self) -> Ints:
        """Duration of each op minus that of its direct child ops."""
        duration = self.frame[C.DUR_NS].to_numpy(np.int64)
        self_ns = duration.copy()
        inside = self.parent != NO_ROW
        np.subtract.at(self_ns, self.parent[inside], duration[inside])
        return self_ns

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
        """Subtree hash of the outermost op around each op, given op and hash of each device interval."""
        inner = np.zeros(len(self.frame), np.uint64)
        np.add.at(inner, launched_by, naming.mix(launched))
        ops = naming.combine(_name_hashes(self.frame), naming.hash_texts(self.frame[C.INPUT_SHAPES]))
        subtree = ops.copy()
        for places in reversed(self.levels):
            subtree[places] = naming.combine(ops[places], inner[places])
            inside = places[self.parent[places] != NO_ROW]
            # Sums of mixed hashes identify a multiset: the order of siblings does not count.
            np.add.at(inner, self.parent[inside], naming.mix(subtree[inside]))
        of_top: Hashes = subtree[self.top]
        return of_top


def find_shared_names(base: Run, head: Run) -> dict[str, str]:
    """Return one name for each source of a kernel that the runs have under different names.

    Returns:
        The first of its names, canonical and in order, by the identity of `tracekit.runs.kernel_sources`.
    """
    sides = [_names_of_sources(run) for run in (base, head)]
    shared = sides[0].keys() & sides[1].keys()
    return {
        source: min(sides[0][source] | sides[1][source])
        for source in shared
        if sides[0][source] != sides[1][source]
    }


def _names_of_sources(run: Run) -> dict[str, set[str]]:
    if not kernel_sources.are_known(run):
        return {}
    ops = run.arrow("host_intervals", columns=[C.NAME, C.KERNEL_HASH], where=_OPS)
    distinct = ops.unify_dictionaries().group_by(ops.column_names).aggregate([]).to_pandas()
    names: dict[str, set[str]] = {}
    sources = kernel_sources.identities(run, distinct[C.NAME], distinct[C.KERNEL_HASH])
    for name, source in zip(distinct[C.NAME], sources, strict=True):
        if isinstance(source, str):
            names.setdefault(source, set()).add(op_name(str(name)))
    return names


def _apply_shared_names(run: Run, frame: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Give ops that are or launch a kernel of a shared source its shared name."""
    if not names:
        return frame
    shared = kernel_sources.identities(run, frame[C.NAME], frame[C.KERNEL_HASH]).map(names).astype(object)
    plain = frame[C.NAME].astype(object)
    return frame.assign(**{RECORDED: frame[C.NAME], C.NAME: shared.fillna(plain).astype("category")})


def _read_tree(run: Run, names: Mapping[str, str]) -> OpTree:
    """Read the ops of a run and how they nest."""
    links = run.table("host_intervals", columns=[C.ROW_ID, C.KIND, C.PARENT_ROW])
    is_op = (links[C.KIND] == HostKind.OP).to_numpy(bool)
    ids = links[C.ROW_ID].to_numpy(np.int64)
    above = places_of(ids, links[C.PARENT_ROW])
    enclosing = np.append(nesting.nearest(above, is_op), NO_ROW)[above[is_op]]
    frame = _apply_shared_names(run, run.table("host_intervals", columns=list(_COLUMNS), where=_OPS), names)
    frame[C.MODULE] = assign_modules(run, frame)
    order = places_of(frame[C.ROW_ID].to_numpy(np.int64), pd.Series(ids[is_op], dtype="Int64"))
    parent = np.full(len(frame), NO_ROW, np.int64)
    renumbered = np.full(len(ids) + 1, NO_ROW, np.int64)
    renumbered[np.flatnonzero(is_op)] = order
    parent[order] = renumbered[enclosing]
    return _tree(frame, parent)


def places_of(ids: Ints, wanted: pd.Series) -> Ints:
    """Return the positions of row ids; `NO_ROW` for null and for absent ids."""
    keys = wanted.fillna(NO_ROW).to_numpy(dtype=np.int64)
    if not len(ids):
        return np.full(len(keys), NO_ROW, np.int64)
    if (np.diff(ids) > 0).all():  # as in most runs
        return _search(ids, keys)
    order = np.argsort(ids, kind="stable")
    places: Ints = np.append(order, NO_ROW)[_search(ids[order], keys)]
    return places


def _search(ordered: Ints, keys: Ints) -> Ints:
    place = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    matching: Ints = np.where(ordered[place] == keys, place, NO_ROW)
    return matching


def _tree(frame: pd.DataFrame, parent: Ints) -> OpTree:
    levels = _levels(parent)
    names = _name_hashes(frame)
    shaped_names = naming.combine(names, naming.hash_texts(frame[C.INPUT_SHAPES]))
    top = np.arange(len(parent), dtype=np.int64)
    path, shaped = naming.mix(names), naming.mix(shaped_names)
    for places in levels[1:]:  # level by level: all parents of a level are done before it
        outer = parent[places]
        top[places] = top[outer]
        path[places] = naming.combine(path[outer], names[places])
        shaped[places] = naming.combine(shaped[outer], shaped_names[places])
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
    return naming.hash_texts(frame[C.NAME], op_name)


SUBTREE, SHAPED, PATH, LAUNCHER, MODULE_KEY = "subtree", "shaped", "path", "launcher", "module_key"
WHAT, SORT, CANONICAL, ROLE, OP_PLACE = "what", "sort", "canonical", "role", "op_place"
COUNT, TOTAL_NS, LONGEST_ROW = "count", "total_ns", "longest_row"
WINDOW, ITEM = "window", "item"
HASHES = (SUBTREE, SHAPED, PATH, LAUNCHER, MODULE_KEY, WHAT, SORT)
_READ = (C.ROW_ID, C.KIND, C.NAME, C.RANK, C.STEP, C.START_NS, C.DUR_NS, C.OP_ROW)
_COPIES = (C.COPY_KIND, C.SRC_MEMORY, C.DST_MEMORY)


@dataclass(frozen=True)
class WorkItems:
    """The work items of one run."""

    # one row per item: the hashes, name, canonical name, role, place of an op it stands for, count, total
    # time, and row of the longest interval
    table: pd.DataFrame
    tree: OpTree  # the ops that the places refer to
    on_device: bool  # whether the items ran on devices; else they are ops of the host
    # row id, start and time (of ops their self time) of each interval, the position in `StepRange.windows` of
    # its step, and the position in `table` of its item
    intervals: pd.DataFrame
    steps: int
    unassigned_ns: int = 0  # device time of the ranks compared that belongs to no step at all

    @property
    def total_ns(self) -> int:
        """Time of all items."""
        return int(self.table[TOTAL_NS].sum())


def read_items(run: Run, steps: StepRange, names: Mapping[str, str], *, on_device: bool) -> WorkItems:
    """Sum what ran in the compared steps of a run.

    Args:
        run: The run.
        steps: Its compared steps.
        names: Result of `find_shared_names` of the compared runs.
        on_device: Whether to sum device work; else ops of the host.
    """
    tree = _read_tree(run, names)
    return _of_device(run, steps, tree) if on_device else _of_host(steps, tree)


def _of_device(run: Run, steps: StepRange, tree: OpTree) -> WorkItems:
    frame = busy(run, [*_READ, *_COPIES])
    window = window_of(frame, steps)
    compared = window >= 0
    stepless = steps.has_step_marks & frame[C.STEP].isna().to_numpy(bool) & ~compared
    unassigned = int(frame[C.DUR_NS].to_numpy(np.int64)[stepless].sum())
    rows = frame[compared].reset_index(drop=True).assign(**{WINDOW: window[compared]})
    rows[OP_PLACE] = places_of(tree.frame[C.ROW_ID].to_numpy(np.int64), rows[C.OP_ROW])
    rows[CANONICAL], rows[SORT] = _device_labels(rows, _canonical_names(rows, tree))
    launched = rows[rows[OP_PLACE] != NO_ROW]
    subtree = tree.subtrees(launched[OP_PLACE].to_numpy(), naming.hash_texts(launched[CANONICAL]))
    table, intervals = _sum_items(rows, tree, subtree)
    names = tree.frame[C.NAME].astype(object).to_numpy(object)
    launchers = [str(names[place]) if place >= 0 else "" for place in table[OP_PLACE]]
    table[ROLE] = [
        str(role(name, launcher)) if sort == DeviceKind.KERNEL else _ROLES.get(sort, "copy")
        for name, launcher, sort in zip(table[C.NAME], launchers, table[C.KIND], strict=True)
    ]
    return WorkItems(
        table, tree, on_device=True, intervals=intervals, steps=steps.steps, unassigned_ns=unassigned
    )


_ROLES = {str(DeviceKind.MEMSET): "fill", str(DeviceKind.GRAPH): "other"}


def _of_host(steps: StepRange, tree: OpTree) -> WorkItems:
    window = window_of(tree.frame, steps)
    compared = np.flatnonzero(window >= 0)
    rows = tree.frame.iloc[compared].reset_index(drop=True)
    op = pd.Categorical([str(HostKind.OP)] * len(rows))
    canonical = rows[C.NAME].cat.rename_categories(str).map(op_name).astype("category")
    rows[WINDOW], rows[OP_PLACE] = window[compared], compared
    rows[CANONICAL], rows[SORT], rows[C.KIND] = canonical, op, op
    rows[C.DUR_NS] = tree.self_ns[compared]
    subtree = tree.subtrees(np.empty(0, np.int64), np.empty(0, np.uint64))
    table, intervals = _sum_items(rows, tree, subtree)
    table[ROLE] = [str(op_role(str(name))) for name in table[C.NAME]]
    return WorkItems(table, tree, on_device=False, intervals=intervals, steps=steps.steps)


def _canonical_names(frame: pd.DataFrame, tree: OpTree) -> pd.Series:
    """Return the canonical name of each row, or the shared name of its op if the row's name is the op's."""
    families = {name: shared_family(str(name)) for name in frame[C.NAME].cat.categories}
    canonical = frame[C.NAME].map(families).astype(object)
    if RECORDED not in tree.frame:
        return canonical
    # Triton's launchers name the op after the kernel; only then is the op's shared name the kernel's too.
    recorded, shared = (
        np.append(tree.frame[name].astype(object).to_numpy(object), [""])[frame[OP_PLACE]]
        for name in (RECORDED, C.NAME)
    )
    return canonical.where((recorded != frame[C.NAME].astype(object)) | (recorded == shared), shared)


def _device_labels(frame: pd.DataFrame, canonical: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Return the name and the kind of each row, of copies with their direction."""
    copied = frame[list(_COPIES)].astype(object).fillna("unknown")
    is_copy = (frame[C.KIND] == DeviceKind.MEMCPY).to_numpy(bool)
    between = copied[C.SRC_MEMORY] + " to " + copied[C.DST_MEMORY]
    copy_name = "Memcpy " + copied[C.COPY_KIND] + " (" + between + ")"
    sort = frame[C.KIND].astype(object).where(~is_copy, "memcpy " + copied[C.COPY_KIND])
    return canonical.where(~is_copy, copy_name).astype("category"), sort.astype("category")


def _sum_items(rows: pd.DataFrame, tree: OpTree, subtree: Hashes) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return one row per item, in an order that does not depend on the row order, and the intervals."""
    keys = _keys(rows, tree, subtree)
    codes = _codes(keys)
    size = int(codes.max(initial=-1)) + 1
    ids, dur_ns = rows[C.ROW_ID].to_numpy(np.int64), rows[C.DUR_NS].to_numpy(np.int64)
    order = np.lexsort((-ids, dur_ns, codes))  # the last of each item is its longest, first row
    last = np.flatnonzero(np.append(np.diff(codes[order]) != 0, [True] * bool(len(order))))
    longest = order[last]
    total = np.zeros(size, np.int64)
    np.add.at(total, codes, dur_ns)
    table = pd.DataFrame({name: keys[name][longest] for name in HASHES})
    for name in (C.NAME, CANONICAL, C.KIND, OP_PLACE):
        column = rows[name].iloc[longest]
        table[name] = column.to_numpy() if name == OP_PLACE else column.astype(object).to_numpy()
    table[COUNT] = np.bincount(codes, minlength=size).astype(np.int64)
    table[TOTAL_NS] = total
    table[LONGEST_ROW] = ids[longest]
    intervals = rows[[C.ROW_ID, C.START_NS, C.DUR_NS, WINDOW]].astype(np.int64).assign(**{ITEM: codes})
    return table, intervals


def _keys(rows: pd.DataFrame, tree: OpTree, subtree: Hashes) -> dict[str, Hashes]:
    """Return the hashes of each row; those of ops are `NOTHING` where no op is known."""
    of_op = {
        SUBTREE: subtree,
        SHAPED: tree.shaped,
        PATH: tree.path,
        LAUNCHER: naming.hash_texts(tree.frame[C.NAME], op_name),
        MODULE_KEY: naming.hash_texts(tree.frame[C.MODULE]),
    }
    # The place of a row without an op is -1: the last one, which answers `NOTHING`.
    places = rows[OP_PLACE].to_numpy()
    hashes = {name: np.append(values, naming.NOTHING)[places] for name, values in of_op.items()}
    return {**hashes, WHAT: naming.hash_texts(rows[CANONICAL]), SORT: naming.hash_texts(rows[SORT])}


def _codes(keys: dict[str, Hashes]) -> Ints:
    # One combined hash per row sorts many times faster than rows of seven columns.
    together = np.zeros(len(keys[WHAT]), np.uint64)
    for name in HASHES:
        together = naming.combine(together, keys[name])
    codes: Ints = np.unique(together, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return codes
