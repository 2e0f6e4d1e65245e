"""Kind of collective of communication kernels and copies, by the names of kernels and ops."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.analysis import kernel_names
from tracekit.analysis.kernel_names import COLLECTIVES, matches
from tracekit.runs.run import Run
from tracekit.schema import C, CopyKind, DeviceKind

from .common import NO_PARENT, Bools
from .host_rows import fill_missing_text, host_rows

ALL_GATHER = "all_gather"
ALL_REDUCE = "all_reduce"
ALL_TO_ALL, SEND_RECV = kernel_names.ALL_TO_ALL, kernel_names.SEND_RECV
BROADCAST = "broadcast"
REDUCE = "reduce"
REDUCE_SCATTER = "reduce_scatter"
OTHER = "other"


def collective_kinds(run: Run, rows: pd.DataFrame) -> pd.Series:
    """Kind of collective of each communication kernel.

    NCCL implements all-to-all with send/receive kernels; these are identified by the launching op.

    Args:
        run: The run.
        rows: Communication kernels with name and launching op; also the copies of `collective_copies`.
    """
    kinds = kinds_of(rows[C.NAME])
    if C.COPY_KIND in rows:
        copied = collective_copies(run, rows)
        kinds = kinds.where(copied == "", copied)
    sends = (kinds == SEND_RECV).to_numpy(bool)
    if sends.any():
        kinds[sends & _is_launched_by_all_to_all(run, rows, sends)] = ALL_TO_ALL
    return kinds


def collective_copies(run: Run, rows: pd.DataFrame) -> pd.Series:
    """Kind of collective whose op launched each P2P copy, empty for other rows.

    Collectives by the copy engines move data without a kernel: symmetric memory, NCCL's all-gather within a
    node.

    Args:
        run: The run.
        rows: Device intervals with kind, direction of copies and launching op.
    """
    kinds_found = pd.Series("", index=rows.index, dtype=object)
    ops = rows.loc[(rows[C.KIND] == DeviceKind.MEMCPY) & (rows[C.COPY_KIND] == CopyKind.P2P), C.OP_ROW]
    for _ in range(MAX_COPY_OPS if len(ops) else 0):
        host = host_rows(run, ops, [C.NAME, C.PARENT_ROW])
        kinds = kinds_of(pd.Series(fill_missing_text(host[C.NAME], ""), index=ops.index))
        unknown = kinds_found[ops.index] == ""
        kinds_found[ops.index] = kinds_found[ops.index].mask(unknown & (kinds != OTHER), kinds)
        ops = host[C.PARENT_ROW]
    return kinds_found


MAX_COPY_OPS = 3
"""Ops around a copy that are examined: the copy, its implementation, the collective."""


def kinds_of(names: pd.Series) -> pd.Series:
    """Kind of collective of each name."""
    plain = names.astype(object)
    return plain.map({name: _kind(str(name)) for name in plain.unique()}).astype(object)


def _kind(name: str) -> str:
    series = pd.Series([name], dtype="category")
    return next((kind for kind, pattern in COLLECTIVES.items() if matches(series, pattern).iloc[0]), OTHER)


def _is_launched_by_all_to_all(run: Run, rows: pd.DataFrame, selected: Bools) -> Bools:
    """Whether an all-to-all op, or its parent op, launched each of the selected rows."""
    is_launched = np.zeros(len(rows), bool)
    ops = rows.loc[selected, C.OP_ROW]
    for _ in range(2):
        host = host_rows(run, ops, [C.NAME, C.PARENT_ROW])
        names = pd.Series(fill_missing_text(host[C.NAME], ""), index=ops.index).astype("category")
        is_launched[selected] |= matches(names, COLLECTIVES[ALL_TO_ALL]).to_numpy(bool)
        ops = host[C.PARENT_ROW].fillna(NO_PARENT)
    return is_launched
