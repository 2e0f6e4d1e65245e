"""Tables of `overlap`: unions with their exposed parts, collectives, and concurrent streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit import intervals
from tracekit.intervals import covered
from tracekit.schema import C

from .._shared.common import ints, share, spans
from .._shared.lanes import Lanes, collective_kinds, lanes

if TYPE_CHECKING:
    from tracekit.intervals import Ints, Union
    from tracekit.run import Run

KEYS = [C.RANK, C.DEVICE]


def extent(rows: pd.DataFrame) -> Union:
    """From the first start to the last end, as one window."""
    start, end = spans(rows)
    return start.min(keepdims=True), end.max(keepdims=True)


def per_window(subject: Union, hiding: Union, windows: Union, key: dict[str, object]) -> pd.DataFrame:
    """One row per window."""
    total = covered(subject, *windows)
    exposed = covered(intervals.subtract(subject, hiding), *windows)
    return _finished(total, exposed, key)


def combined(
    subject: Union, hiding: Union, windows: Union, key: dict[str, object], extra: dict[str, object]
) -> pd.DataFrame:
    """One row for all windows, which do not overlap."""
    total = covered(subject, *windows).sum(keepdims=True)
    exposed = covered(intervals.subtract(subject, hiding), *windows).sum(keepdims=True)
    return _finished(total, exposed, key, extra)


def _finished(
    total: Ints, exposed: Ints, key: dict[str, object], extra: dict[str, object] | None = None
) -> pd.DataFrame:
    return pd.DataFrame(
        {
            **key,
            "union_ns": total,
            "exposed_ns": exposed,
            "overlapped_ns": total - exposed,
            "overlapped_share": share(total - exposed, total),
            **(extra or {}),
        }
    )


def collectives(run: Run, rows: pd.DataFrame, communication: pd.DataFrame) -> pd.DataFrame:
    """Communication by kind of collective, most exposed first on each device."""
    kinds = collective_kinds(run, communication)
    unions: dict[object, Lanes] = {place: lanes(own) for place, own in rows.groupby(KEYS, sort=True)}
    parts = []
    for (rank, device, kind), own in communication.groupby(
        [C.RANK, C.DEVICE, kinds.to_numpy(object)], sort=True
    ):
        subject = intervals.union(*spans(own))
        extra: dict[str, object] = {"sum_ns": int(ints(own, C.DUR_NS).sum()), "count": len(own)}
        key = {C.RANK: rank, C.DEVICE: device, "collective": kind}
        parts.append(combined(subject, unions[rank, device].computation, extent(own), key, extra))
    order = [*KEYS, "exposed_ns", "collective"]
    return pd.concat(parts, ignore_index=True).sort_values(
        order, ascending=[True, True, False, True], ignore_index=True
    )


def streams(rows: pd.DataFrame) -> pd.DataFrame:
    """How long at least two streams of a device were busy."""
    return pd.DataFrame(
        [
            {C.RANK: rank, C.DEVICE: device, **_concurrency(own)}
            for (rank, device), own in rows.groupby(KEYS, sort=True)
        ]
    )


def _concurrency(own: pd.DataFrame) -> dict[str, object]:
    unions = [intervals.union(*spans(lane)) for _, lane in own.groupby(C.STREAM, sort=True)]
    starts, ends = (np.concatenate(edges) for edges in zip(*unions, strict=True))
    times = np.concatenate((starts, ends))
    change = np.repeat(np.array([1, -1]), [len(starts), len(ends)])
    order = np.argsort(times, kind="stable")
    running = np.cumsum(change[order])[:-1]
    lengths = np.diff(times[order])
    occupied, several = (int(lengths[running >= least].sum()) for least in (1, 2))
    levels = running[lengths > 0]
    return {
        "streams": len(unions),
        "busy_ns": occupied,
        "concurrent_ns": several,
        "concurrent_share": float(share(np.array([several]), occupied)[0]),
        "most_streams": int(levels.max()) if len(levels) else 0,
        "sum_ns": sum(intervals.length(union) for union in unions),
    }
