"""Kind of collective of communication kernels and copies, by the names of kernels and ops."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pandas as pd

from tracekit.analysis import kernel_names
from tracekit.analysis.kernel_names import COLLECTIVES
from tracekit.runs.run import Run
from tracekit.schema import C, CopyKind, DeviceKind

from .common import Bools, contains, map_texts
from .host_rows import fill_missing_text, host_rows

ALL_GATHER = "all_gather"
ALL_REDUCE = "all_reduce"
ALL_TO_ALL, SEND_RECV = kernel_names.ALL_TO_ALL, kernel_names.SEND_RECV
BROADCAST = "broadcast"
REDUCE = "reduce"
REDUCE_SCATTER = "reduce_scatter"
OTHER = "other"


def collective_kinds(run: Run, rows: pd.DataFrame) -> pd.Series:
    """Kind of collective of each communication kernel or copy of `collective_copies`, with its launching op.

    NCCL implements all-to-all with send/receive kernels; these are identified by the launching op.
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
    """Kind of collective whose op launched each P2P copy among device intervals, empty for other rows.

    Collectives by the copy engines move data without a kernel: symmetric memory, NCCL's all-gather within a
    node.
    """
    kinds_found = pd.Series("", index=rows.index, dtype=object)
    ops = rows.loc[(rows[C.KIND] == DeviceKind.MEMCPY) & (rows[C.COPY_KIND] == CopyKind.P2P), C.OP_ROW]
    for names in names_around(run, ops, MAX_COPY_OPS if len(ops) else 0):
        kinds = kinds_of(names)
        unknown = kinds_found[ops.index] == ""
        kinds_found[ops.index] = kinds_found[ops.index].mask(unknown & (kinds != OTHER), kinds)
    return kinds_found


MAX_COPY_OPS = 3
"""Ops around a copy that are examined: the copy, its implementation, the collective."""


def kinds_of(names: pd.Series) -> pd.Series:
    """Kind of collective of each name."""
    return map_texts(names, _kind)


@lru_cache(maxsize=1 << 16)
def _kind(name: str) -> str:
    return next((kind for kind, pattern in COLLECTIVES.items() if re.search(pattern, name)), OTHER)


def _is_launched_by_all_to_all(run: Run, rows: pd.DataFrame, selected: Bools) -> Bools:
    """Whether an all-to-all op, or its parent op, launched each of the selected rows."""
    is_launched = np.zeros(len(rows), bool)
    for names in names_around(run, rows.loc[selected, C.OP_ROW], 2):
        is_launched[selected] |= contains(names, COLLECTIVES[ALL_TO_ALL])
    return is_launched


def names_around(run: Run, ops: pd.Series, levels: int) -> Iterator[pd.Series]:
    """Names of these host rows, then of those around them, up to a number of levels; empty without a row."""
    for _ in range(levels):
        host = host_rows(run, ops, [C.NAME, C.PARENT_ROW])
        yield pd.Series(fill_missing_text(host[C.NAME], ""), index=ops.index)
        ops = host[C.PARENT_ROW]
