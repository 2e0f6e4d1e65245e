"""Measurements of single ranks for `ranks`: small tables, so that ranks can be read separately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit import intervals
from tracekit.intervals import covered
from tracekit.kernel_names import family
from tracekit.schema import BUSY_KINDS, C, DeviceKind
from tracekit.windows import END_NS

from .._shared.common import ints, spans
from .._shared.lanes import collective_kinds, communicates, lanes, measured_in

if TYPE_CHECKING:
    from tracekit.intervals import Ints, Union
    from tracekit.run import Run

    from .._shared.lanes import Lanes

_READ = (C.ROW_ID, C.KIND, C.NAME, C.RANK, C.DEVICE, C.STREAM, C.START_NS, C.DUR_NS, C.STEP, C.OP_ROW)
_NO_STREAM = -1


@dataclass(frozen=True)
class Part:
    """Tables of one rank.

    Attributes:
        devices: A row per device: times over the measured windows.
        steps: A row per profiled step: its length, and the computation in it on the busiest device.
        collectives: A row per communication kernel, in order.
        kernels: A row per family of the other kernels: number and sum of durations.
    """

    devices: pd.DataFrame
    steps: pd.DataFrame
    collectives: pd.DataFrame
    kernels: pd.DataFrame


def part(run: Run, rank: int, windows: pd.DataFrame) -> Part | None:
    """Measure one rank; None without device intervals.

    Args:
        run: The run.
        rank: The rank.
        windows: Its profiled steps with start and end, in order; empty if none are marked.
    """
    kinds = pc.field(C.KIND).isin([str(kind) for kind in BUSY_KINDS])
    rows = run.table("device_intervals", columns=_READ, where=kinds & (pc.field(C.RANK) == rank))
    if rows.empty:
        return None
    places = [int(device) for device in np.unique(ints(rows, C.DEVICE))]
    unions = {device: lanes(rows[rows[C.DEVICE] == device]) for device in places}
    devices = [_device(rows[rows[C.DEVICE] == device], one, windows) for device, one in unions.items()]
    return Part(
        pd.DataFrame(devices),
        _steps(rank, windows, list(unions.values())),
        _collectives(run, rows, unions),
        _kernels(rows, marked=len(windows) > 0),
    )


def _families(names: pd.Series) -> pd.Series:
    plain = names.astype(object)
    return plain.map({name: family(str(name)) for name in plain.unique()}).astype(object)


def _kernels(rows: pd.DataFrame, *, marked: bool) -> pd.DataFrame:
    """Computation by family, in profiled steps if steps are marked."""
    selected = (rows[C.KIND] == DeviceKind.KERNEL).to_numpy(bool) & ~communicates(rows)
    selected &= rows[C.STEP].notna().to_numpy(bool) | (not marked)
    own = rows[selected]
    sums = own.groupby([own[C.RANK], _families(own[C.NAME]).rename("family")], sort=True)[C.DUR_NS]
    return sums.agg(sum_ns="sum", count="size").reset_index()


def _device(own: pd.DataFrame, unions: Lanes, windows: pd.DataFrame) -> dict[str, object]:
    """Times of one device in its profiled steps, or the capture if none are marked."""
    inside = measured_in(own, windows)

    def amount(union: Union) -> int:
        return intervals.length(intervals.intersect(union, inside))

    window, active = intervals.length(inside), amount(unions.kernels)
    occupied, computation, communication = (
        amount(union) for union in (unions.occupied, unions.computation, unions.communication)
    )
    return {
        C.RANK: int(own[C.RANK].iloc[0]),
        C.DEVICE: int(own[C.DEVICE].iloc[0]),
        "window_ns": window,
        "computation_ns": computation,
        "communication_exposed_ns": active - computation,
        "communication_overlapped_ns": communication - (active - computation),
        "other_ns": occupied - active,
        "idle_ns": window - occupied,
    }


def _steps(rank: int, windows: pd.DataFrame, unions: list[Lanes]) -> pd.DataFrame:
    start, end = ints(windows, C.START_NS), ints(windows, END_NS)
    computed = np.zeros(len(windows), np.int64)
    for one in unions:
        computed = np.maximum(computed, covered(one.computation, start, end))
    columns = {
        C.STEP: ints(windows, C.STEP),
        "length_ns": own_lengths(start, end),
        "computation_ns": computed,
    }
    return pd.DataFrame({C.RANK: np.full(len(windows), rank, np.int64), **columns})


def own_lengths(start: Ints, end: Ints) -> Ints:
    """Part of each window after all earlier ones: the period between their ends if they overlap.

    Example:
        >>> own_lengths(np.array([0, 10]), np.array([12, 25]))
        array([12, 13])
    """
    if not len(start):
        return np.empty(0, np.int64)
    reached = np.concatenate((start[:1], np.maximum.accumulate(end)[:-1]))
    own: Ints = np.maximum(end - np.maximum(start, reached), 0)
    return own


def _collectives(run: Run, rows: pd.DataFrame, unions: dict[int, Lanes]) -> pd.DataFrame:
    """Communication kernels with their exposed time."""
    kernels = rows[communicates(rows)].sort_values(
        [C.DEVICE, C.START_NS, C.DUR_NS, C.ROW_ID], ignore_index=True
    )
    start, end = spans(kernels)
    exposed = ints(kernels, C.DUR_NS).copy()
    for device, one in unions.items():
        mine = (kernels[C.DEVICE] == device).to_numpy(bool)
        exposed[mine] -= covered(one.computation, start[mine], end[mine])
    return pd.DataFrame(
        {
            C.ROW_ID: kernels[C.ROW_ID],
            C.RANK: kernels[C.RANK],
            C.DEVICE: kernels[C.DEVICE],
            C.STREAM: kernels[C.STREAM].fillna(_NO_STREAM).astype(np.int64),
            C.STEP: kernels[C.STEP],
            C.START_NS: start,
            C.DUR_NS: end - start,
            "exposed_ns": exposed,
            "family": _families(kernels[C.NAME]),
            "collective": collective_kinds(run, kernels),
        }
    )
