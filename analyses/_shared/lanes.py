"""The unions of one device that overlap is measured with, and the kinds of collectives."""

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
"""Collective by the name of its kernel; the first pattern that matches counts."""


@dataclass(frozen=True)
class Lanes:
    """Unions of one device's intervals.

    Attributes:
        kernels: K.
        communication: N, the kernels that talk to other devices.
        computation: K∖N as rows, that is the kernels that do not.
        occupied: Everything that occupies the device.
    """

    kernels: Union
    communication: Union
    computation: Union
    occupied: Union


def communicates(rows: pd.DataFrame) -> Flags:
    """Whether each row is a kernel that talks to other devices."""
    found: Flags = ((rows[C.KIND] == DeviceKind.KERNEL) & matches(rows[C.NAME], COMMUNICATION)).to_numpy(bool)
    return found


def lanes(rows: pd.DataFrame) -> Lanes:
    """The unions of the rows of one device."""
    kernel = (rows[C.KIND] == DeviceKind.KERNEL).to_numpy(bool)
    talks = communicates(rows)
    start, end = spans(rows)

    def union(kept: Flags) -> Union:
        return intervals.union(start[kept], end[kept])

    return Lanes(union(kernel), union(talks), union(kernel & ~talks), union(np.ones(len(rows), bool)))


def measured_in(rows: pd.DataFrame, windows: pd.DataFrame) -> Union:
    """Where rows of one device are measured: in the profiled steps, else from first start to last end.

    Args:
        rows: Its intervals, of which there is at least one.
        windows: The profiled steps of its rank; empty where none are marked.
    """
    if len(windows):
        return intervals.union(ints(windows, C.START_NS), ints(windows, END_NS))
    start, end = spans(rows)
    return intervals.union(start.min(keepdims=True), end.max(keepdims=True))


def collective_kinds(run: Run, rows: pd.DataFrame) -> pd.Series:
    """The collective each communication kernel belongs to, as categories.

    NCCL runs all-to-all by its send/receive kernels, so those are told apart by the ops that launched them.

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


def _launched_by(run: Run, rows: pd.DataFrame, asked: Flags) -> Flags:
    """Whether an all-to-all op launched each of the asked rows: the op itself, or the one around it."""
    found = np.zeros(len(rows), bool)
    ops = rows.loc[asked, C.OP_ROW]
    for _ in range(2):
        host = host_rows(run, ops, [C.NAME, C.PARENT_ROW])
        names = pd.Series(texts(host[C.NAME], ""), index=ops.index).astype("category")
        found[asked] |= matches(names, KINDS[ALL_TO_ALL]).to_numpy(bool)
        ops = host[C.PARENT_ROW].fillna(NO_PARENT)
    return found
