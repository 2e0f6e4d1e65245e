"""Unions of one device's intervals for overlap, and kinds of collectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit import intervals
from tracekit.kernel_names import COMMUNICATION, matches
from tracekit.schema import C, DeviceKind
from tracekit.windows import END_NS

from .common import NO_PARENT, ints, spans
from .hosts import host_rows, texts

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracekit.intervals import Union
    from tracekit.run import Run

    Flags = npt.NDArray[np.bool_]

ALL_TO_ALL = "all_to_all"
SEND_RECV = "send_recv"
OTHER = "other"
KINDS = {
    "reduce_scatter": r"(?i)reduce_?scatter",
    "all_gather": r"(?i)all_?gather",
    "all_reduce": r"(?i)all_?reduce|cross_device_reduce",
    ALL_TO_ALL: r"(?i)all_?to_?all",
    "broadcast": r"(?i)broadcast",
    SEND_RECV: r"(?i)send_?recv|(?:send|recv)(?:_|\b)",
    "reduce": r"(?i)cclkernel_reduce_|ccldevkernel_reduce_",
}
"""Patterns of kernel names by collective; the first match counts."""


@dataclass(frozen=True)
class Lanes:
    """Unions of one device's intervals.

    Attributes:
        kernels: K, all kernels.
        communication: N, the communication kernels.
        computation: Union of the other kernels.
        occupied: All intervals that occupy the device.
    """

    kernels: Union
    communication: Union
    computation: Union
    occupied: Union


def communicates(rows: pd.DataFrame) -> Flags:
    """Whether each row is a communication kernel."""
    found: Flags = ((rows[C.KIND] == DeviceKind.KERNEL) & matches(rows[C.NAME], COMMUNICATION)).to_numpy(bool)
    return found


def lanes(rows: pd.DataFrame) -> Lanes:
    """The unions of the rows of one device."""
    kernel = (rows[C.KIND] == DeviceKind.KERNEL).to_numpy(bool)
    communication = communicates(rows)
    start, end = spans(rows)

    def union(selected: Flags) -> Union:
        return intervals.union(start[selected], end[selected])

    return Lanes(
        union(kernel), union(communication), union(kernel & ~communication), union(np.ones(len(rows), bool))
    )


def measured_in(rows: pd.DataFrame, windows: pd.DataFrame) -> Union:
    """Measured windows of one device: the profiled steps, else from first start to last end.

    Args:
        rows: Its intervals, at least one.
        windows: The profiled steps of its rank; empty if none are marked.
    """
    if len(windows):
        return intervals.union(ints(windows, C.START_NS), ints(windows, END_NS))
    start, end = spans(rows)
    return intervals.union(start.min(keepdims=True), end.max(keepdims=True))


def collective_kinds(run: Run, rows: pd.DataFrame) -> pd.Series:
    """Kind of collective of each communication kernel.

    NCCL implements all-to-all with send/receive kernels; these are identified by the launching op.

    Args:
        run: The run.
        rows: Communication kernels with name and launching op.
    """
    names = rows[C.NAME].astype(object)
    kinds = names.map({name: _kind(str(name)) for name in names.unique()}).astype(object)
    sends = (kinds == SEND_RECV).to_numpy(bool)
    if sends.any():
        kinds[sends & _launched_by(run, rows, sends)] = ALL_TO_ALL
    return kinds


def _kind(name: str) -> str:
    series = pd.Series([name], dtype="category")
    return next((kind for kind, pattern in KINDS.items() if matches(series, pattern).iloc[0]), OTHER)


def _launched_by(run: Run, rows: pd.DataFrame, selected: Flags) -> Flags:
    """Whether an all-to-all op, or its parent op, launched each of the selected rows."""
    found = np.zeros(len(rows), bool)
    ops = rows.loc[selected, C.OP_ROW]
    for _ in range(2):
        host = host_rows(run, ops, [C.NAME, C.PARENT_ROW])
        names = pd.Series(texts(host[C.NAME], ""), index=ops.index).astype("category")
        found[selected] |= matches(names, KINDS[ALL_TO_ALL]).to_numpy(bool)
        ops = host[C.PARENT_ROW].fillna(NO_PARENT)
    return found
