"""What `ranks` takes from each rank alone: small tables, so that ranks can be read apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit import intervals
from tracekit.schema import BUSY_KINDS, C, DeviceKind
from tracekit.windows import END_NS

from ._common import covered, ints, spans
from ._lanes import collective_kinds, communicates, lanes
from ._names import family

if TYPE_CHECKING:
    from tracekit.intervals import Ints, Union
    from tracekit.run import Run

    from ._lanes import Lanes

_READ = (C.ROW_ID, C.KIND, C.NAME, C.RANK, C.DEVICE, C.STREAM, C.START_NS, C.DUR_NS, C.STEP, C.OP_ROW)
_NO_STREAM = -1


@dataclass(frozen=True)
class Part:
    """One rank.

    Attributes:
        devices: A row per device: times over the measured windows.
        steps: A row per profiled step: its length, and the computation in it on the busiest device.
        collectives: A row per communication kernel, in order.
        kernels: A row per family of the other kernels: how many, and the sum of their durations.
    """

    devices: pd.DataFrame
    steps: pd.DataFrame
    collectives: pd.DataFrame
    kernels: pd.DataFrame


def part(run: Run, rank: int, windows: pd.DataFrame) -> Part | None:
    """Measure one rank; None where nothing of it ran on a device.

    Args:
        run: The run.
        rank: The rank.
        windows: Its profiled steps with start and end, in order; empty where none are marked.
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
    """Computation by family; of the profiled steps where they are marked."""
    kept = (rows[C.KIND] == DeviceKind.KERNEL).to_numpy(bool) & ~communicates(rows)
    kept &= rows[C.STEP].notna().to_numpy(bool) | (not marked)
    own = rows[kept]
    sums = own.groupby([own[C.RANK], _families(own[C.NAME]).rename("family")], sort=True)[C.DUR_NS]
    return sums.agg(sum_ns="sum", count="size").reset_index()


def _device(own: pd.DataFrame, unions: Lanes, windows: pd.DataFrame) -> dict[str, object]:
    """One device over its profiled steps, over the whole capture where none are marked."""
    inside = _inside(own, windows)

    def amount(union: Union) -> int:
        return intervals.length(intervals.intersect(union, inside))

    window, active = intervals.length(inside), amount(unions.kernels)
    occupied, computation, talk = (
        amount(union) for union in (unions.occupied, unions.computation, unions.communication)
    )
    return {
        C.RANK: int(own[C.RANK].iloc[0]),
        C.DEVICE: int(own[C.DEVICE].iloc[0]),
        "window_ns": window,
        "computation_ns": computation,
        "communication_exposed_ns": active - computation,
        "communication_overlapped_ns": talk - (active - computation),
        "other_ns": occupied - active,
        "idle_ns": window - occupied,
    }


def _inside(own: pd.DataFrame, windows: pd.DataFrame) -> Union:
    if len(windows):
        return intervals.union(ints(windows, C.START_NS), ints(windows, END_NS))
    start, end = spans(own)
    return intervals.union(start.min(keepdims=True), end.max(keepdims=True))


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
    """The part of each window after all earlier ones: the period between their ends where they overlap.

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
    """Communication kernels with how much of each no other kernel hides."""
    talk = rows[communicates(rows)].sort_values([C.DEVICE, C.START_NS, C.DUR_NS, C.ROW_ID], ignore_index=True)
    start, end = spans(talk)
    alone = ints(talk, C.DUR_NS).copy()
    for device, one in unions.items():
        mine = (talk[C.DEVICE] == device).to_numpy(bool)
        alone[mine] -= covered(one.computation, start[mine], end[mine])
    return pd.DataFrame(
        {
            C.ROW_ID: talk[C.ROW_ID],
            C.RANK: talk[C.RANK],
            C.DEVICE: talk[C.DEVICE],
            C.STREAM: talk[C.STREAM].fillna(_NO_STREAM).astype(np.int64),
            C.STEP: talk[C.STEP],
            C.START_NS: start,
            C.DUR_NS: end - start,
            "alone_ns": alone,
            "family": _families(talk[C.NAME]),
            "collective": collective_kinds(run, talk),
        }
    )
