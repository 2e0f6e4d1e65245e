"""Families of ops, and the tree of families, ops and kernels with their self times."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from tracekit.analysis import NODE, PARENT, Column, TableSpec
from tracekit.analysis.kernel_names import COMMUNICATION, family
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.schema import C

from .common import ints, map_categories, select, share, sort_by
from .groups import group_rows, keys_of, sum_by_code
from .host_rows import NO_OP, Ops, launching_texts

_BARE = re.compile(r"^autograd::engine::evaluate_function: |^(?:aten|torch|torchvision|prims)::_*")
COMMUNICATES = r"^(?:c10d|nccl|gloo|mpi|_?c10d_functional|symm_mem)\b|record_param_comms"
"""Pattern of the names of ops that communicate."""
_FAMILIES = {
    "communication": rf"{COMMUNICATES}|{COMMUNICATION}",
    "optimizer": r"^optimizer\.|^(?:amp_)?_?foreach_|^fused_(?:adam|sgd|adagrad)",
    "compiled code": r"^compiled|^## call|^triton_|^torch-compiled|^inductor",
    "attention": r"attention|attn|fmha",
    "convolution": r"conv",
    "matrix product": r"(?:^|[_:])(?:[a-z]*mm|matmul|linear|einsum|(?:add)?mv|dot)(?:_|backward|$)|gemm",
    "normalization": r"norm",
    "softmax and loss": r"softmax|loss|cross_entropy",
    "embedding and indexing": r"embedding|index|gather|scatter|take|nonzero|masked|sort|topk|unique",
    "pooling and resizing": r"pool|upsample|interpolat|grid_sampl|resize_(?:bi|near)",
    "recurrent": r"lstm|gru\b|rnn",
    "copy and cast": r"copy|^to$|^to[A-Z_]|clone|contiguous|(?:^|_)cat(?:_|backward|$)|stack|pin_memory"
    r"|local_scalar_dense|^item$|memcpy",
    "fill and random": r"fill|zero|ones|rand|normal_|uniform|dropout|arange|bernoulli|full|memset|^eye",
    "view and allocation": r"view|reshape|expand|transpose|permute|slice|select|strided|empty|resize|squeeze"
    r"|split|chunk|detach|alias|^t$|^tbackward|narrow|unbind|flatten|^set_|^lift|unfold|repeat|roll|flip|pad",
    "reduction": r"^(?:nan)?(?:sum|mean|prod|std|var|arg)|(?:max|min)(?:$|_dim|backward)"
    r"|^(?:a?max|a?min|any|all)$|cumsum|cumprod|logsumexp|isfinite|^(?:sum|mean)backward|aminmax|bincount|histc",
    "elementwise": r"^(?:add|sub|rsub|mul|div|pow|sqrt|rsqrt|exp|log|neg|abs|clamp|where|eq|ne|lt|gt|le|ge"
    r"|lerp|relu|gelu|silu|elu|selu|sigmoid|tanh|threshold|hardswish|hardtanh|hardsigmoid|leaky|softplus|mish"
    r"|sin|cos|erf|floor|ceil|round|trunc|sign|reciprocal|bitwise|logical|square|maximum|minimum|fmod|remainder"
    r"|glu|tri[lu]|atan|xor|addc|celu|prelu|isnan|isinf|and|or|not)",
    "autograd": r"accumulategrad|autograd|backward|graphroot",
}
"""Patterns of the names of ops by family, without namespace; the first that matches."""
_PATTERNS = {
    name: re.compile(pattern.replace("(?i)", ""), re.IGNORECASE) for name, pattern in _FAMILIES.items()
}
OTHER, NO_FAMILY = "other", "outside of ops"
FAMILY, OP, KERNEL = "family", "op", "kernel"
"""Levels of the tree."""
_SELF = ("host_self_ns", "device_self_ns")
_LONGEST = "longest_ns"


def op_family(name: str) -> str:
    """Family of an op by its name; a backward op is of the family of its forward op.

    Example:
        >>> [op_family(f"aten::{name}") for name in ("addmm", "add_", "native_layer_norm", "as_strided")]
        ['matrix product', 'elementwise', 'normalization', 'view and allocation']
        >>> op_family("autograd::engine::evaluate_function: ConvolutionBackward0"), op_family("my::op")
        ('convolution', 'other')
    """
    if name == NO_OP:
        return NO_FAMILY
    bare = _BARE.sub("", name)
    bare = _BARE.sub("", bare).rsplit("::", 1)[-1] if bare.startswith("autograd") else bare
    return next((label for label, pattern in _PATTERNS.items() if pattern.search(bare)), OTHER)


def tree(run: Run, ops: Ops) -> pd.DataFrame:
    """Families, ops and kernels with their self times, in depth-first order, the largest first.

    Device intervals without an op are a family of their own, so that the device self times of the families
    sum to that of all device intervals, and their host self times to that of all ops.
    """
    by_op = _by_op(ops).astype(dict.fromkeys(("host_self_ns", "calls", "host_row"), "Int64"))
    kernels = _kernels(run)
    if kernels is not None:
        by_op = by_op.merge(_per_op(kernels), on=OP, how="outer")
    by_op = by_op.assign(**{FAMILY: by_op[OP].map(op_family)})
    sums = [name for name in (*_SELF, "calls", "launches") if name in by_op]
    families = by_op.groupby(FAMILY, sort=True)[sums].sum(min_count=1).reset_index()
    levels = [(FAMILY, [FAMILY], families), (OP, [FAMILY, OP], by_op)]
    if kernels is not None:
        below = kernels.assign(**{FAMILY: kernels[OP].map(op_family)})
        levels.append((KERNEL, [FAMILY, OP, KERNEL], below))
    by = "host_self_ns" if kernels is None else "device_self_ns"
    return _joined(levels, by)


def _by_op(ops: Ops) -> pd.DataFrame:
    """Calls, host self time and longest call by op."""
    size = len(ops.labels)
    _, host_row = _longest(ops.names, size, ints(ops.frame, C.DUR_NS), ints(ops.frame, C.ROW_ID))
    self_ns = sum_by_code(ops.names, size, ops.self_ns)
    calls = np.bincount(ops.names, minlength=size)
    return pd.DataFrame({OP: ops.labels, "host_self_ns": self_ns, "calls": calls, "host_row": host_row})


def _longest(groups: Ints, size: int, duration: Ints, row_id: Ints) -> tuple[Ints, Ints]:
    """Duration and id of the longest row of each group; of equal ones the lowest id."""
    most, rows = np.full(size, -1, np.int64), np.full(size, np.iinfo(np.int64).max)
    np.maximum.at(most, groups, duration)
    longest_rows = np.flatnonzero(duration == most[groups])
    np.minimum.at(rows, groups[longest_rows], row_id[longest_rows])
    return most, rows


def _kernels(run: Run) -> pd.DataFrame | None:
    """Sums of device intervals by op and kernel family; None if none is linked to its launch."""
    links = [C.OP_ROW, C.LAUNCH_ROW, C.CAPTURED_OP]
    frame = busy(run, [C.ROW_ID, C.NAME, C.DUR_NS, *links, C.CAPTURED_SHAPES])
    if frame[links].isna().all(axis=None):
        return None
    op, kernel = launching_texts(run, frame, {C.NAME: NO_OP})[C.NAME], map_categories(frame[C.NAME], family)
    frame = frame.assign(**{OP: op, KERNEL: kernel})
    groups, duration = group_rows(frame, [OP, KERNEL]), ints(frame, C.DUR_NS)
    longest, rows = _longest(groups.codes, len(groups.first), duration, ints(frame, C.ROW_ID))
    sums = {"device_self_ns": groups.sums(duration), "launches": groups.sizes(), "longest_row": rows}
    table = keys_of(frame, [OP, KERNEL], groups.first).assign(**sums).astype(dict.fromkeys(sums, "Int64"))
    return table.assign(**{_LONGEST: longest})


def _per_op(kernels: pd.DataFrame) -> pd.DataFrame:
    """Sums of device intervals by op, with the longest of each."""
    longest_first = sort_by(kernels, f"-{_LONGEST}", "longest_row")
    groups = group_rows(longest_first, [OP])
    columns = {name: longest_first[name].array[groups.first] for name in (OP, "longest_row")}
    for name in ("device_self_ns", "launches"):
        columns[name] = pd.array(groups.sums(ints(longest_first, name)), dtype="Int64")
    return pd.DataFrame(columns)


def _joined(levels: list[tuple[str, list[str], pd.DataFrame]], by: str) -> pd.DataFrame:
    """One table of all levels in depth-first order, siblings by a column, the largest first."""
    places: list[dict[str, int]] = []
    parts, paths = [], []
    for depth, (level, keys, frame) in enumerate(levels):
        measures = [name for name in (by, "host_self_ns") if name in frame]
        ordered = sort_by(frame, *(f"-{name}" for name in measures), keys[-1])
        # A row comes after its parent, and before what follows the parent: -1 is before any below.
        path = np.full((len(levels), len(ordered)), -1, np.int64)
        for above, key in enumerate(keys[:-1]):
            path[above] = [places[above][str(name)] for name in ordered[key]]
        path[depth] = np.arange(len(ordered))
        places.append({str(name): place for place, name in enumerate(ordered[keys[-1]])})
        paths.append(path)
        texts = [str(name) for name in ordered[keys[-1]]]
        parts.append(ordered.assign(level=level, **{C.NAME: texts}, **{C.DEPTH: depth}))
    path = np.concatenate(paths, axis=1)
    order = np.lexsort(path[::-1])
    table = pd.concat(parts, ignore_index=True).take(order).reset_index(drop=True)
    return _shares(table.assign(**{PARENT: _parents(path[:, order])}))


def _parents(path: Ints) -> Ints:
    """Number of the row above each row in depth-first order, -1 at the top."""
    depth = (path >= 0).sum(axis=0) - 1
    rows, parent = np.arange(path.shape[1]), np.full(path.shape[1], -1, np.int64)
    for level in range(1, len(path)):
        latest = np.maximum.accumulate(np.where(depth == level - 1, rows, -1))
        parent[depth == level] = latest[depth == level]
    return parent


def _shares(rows: pd.DataFrame) -> pd.DataFrame:
    table = rows[[C.NAME, "level", C.DEPTH]].copy()
    parent = ints(rows, PARENT)
    table[PARENT] = pd.arrays.IntegerArray(parent, parent < 0)
    for name in ("calls", "host_self_ns", "launches", "device_self_ns", "longest_row", "host_row"):
        table[name] = rows[name].astype("Int64") if name in rows else pd.array([pd.NA] * len(rows), "Int64")
    table[NODE] = np.arange(len(table))
    for side, column in zip(("host_share", "device_share"), _SELF, strict=True):
        total = int(table.loc[table[C.DEPTH] == 0, column].sum())
        table[side] = share(table[column].to_numpy(np.float64, na_value=np.nan), total)
    return select(table, _COLUMNS)


_COLUMNS = (
    Column(C.NAME, "", "family, op, or family of kernels", indent_by=C.DEPTH),
    Column("level", "", "family, op or kernel"),
    Column("device_self_ns", "ns", "Σ of the device intervals that the ops launched directly"),
    Column("device_share", "share", "device self over that of all device intervals"),
    Column("launches", "count", "number of device intervals"),
    Column("host_self_ns", "ns", "Σ of host self time of the ops; unknown for kernels"),
    Column("host_share", "share", "host self over that of all ops"),
    Column("calls", "count", "calls of the ops; unknown for kernels and for ops of graphs"),
    Column("longest_row", "", "device row of the longest interval"),
    Column("host_row", "", "host row of the longest call"),
    Column(C.DEPTH, "", "level as a number, 0 for families"),
    Column(NODE, "", "number of the node"),
    Column(PARENT, "", "node above it; empty for families"),
)
TREE = TableSpec("tree", "By family, op and kernel; the largest first", _COLUMNS)
