"""Overlap of copies with kernels and opaque graphs, per device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracekit import intervals
from tracekit.intervals import covered
from tracekit.run import busy
from tracekit.schema import C, DeviceKind

from .._shared.common import ints, segments_by, spans, worst_devices
from .reading import BLOCKED_NS, CALL_START_NS, KEYS, code_by

if TYPE_CHECKING:
    from tracekit.intervals import Ints, Union
    from tracekit.run import Run


class Hiding:
    """Unions of kernels and opaque graphs per device, which overlap copies."""

    def __init__(self, run: Run) -> None:
        frame = busy(run, [C.KIND, C.RANK, C.DEVICE, C.START_NS, C.DUR_NS])
        hides = frame[frame[C.KIND].isin([str(DeviceKind.KERNEL), str(DeviceKind.GRAPH)])]
        self.unions: dict[Any, Union] = {
            place: intervals.union(*spans(rows)) for place, rows in hides.groupby(list(KEYS), sort=True)
        }

    def exposed_by(self, frame: pd.DataFrame, codes: Ints, groups: int) -> Ints:
        """Exposed length of the union of each group's intervals, summed over devices."""
        total = np.zeros(groups, np.int64)
        for place, at in frame.groupby(list(KEYS), sort=True).indices.items():
            lane, start, end = segments_by(codes[at], *spans(frame.iloc[at]))
            union = self.unions.get(place, intervals.EMPTY)
            np.add.at(total, lane, end - start - covered(union, start, end))
        return total

    def starved(self, copies: pd.DataFrame) -> int:
        """Upper bound of how much earlier kernels could run if the host were not blocked in these copies.

        For each gap between kernels in which copies end: the minimum of the time the host was blocked in them
        and the gap since the first of their calls. The device of each rank with the largest sum counts.
        """
        known = copies[copies[BLOCKED_NS].notna()]
        codes, _ = code_by(known, KEYS)
        places = known[list(KEYS)].iloc[np.unique(codes, return_index=True)[1]]
        waited = [
            _starved(known[codes == number], *self.unions.get(place, intervals.EMPTY))
            for number, place in enumerate(places.itertuples(index=False, name=None))
        ]
        return worst_devices(places, waited)

    def exposed(self, frame: pd.DataFrame) -> int:
        """Exposed length of the union of these intervals, on the device of each rank with most of it."""
        codes, count = code_by(frame, KEYS)
        places = frame[list(KEYS)].iloc[np.unique(codes, return_index=True)[1]]
        return worst_devices(places, self.exposed_by(frame, codes, count))


def _starved(rows: pd.DataFrame, start: Ints, end: Ints) -> int:
    """Upper bound for copies of one device and the union of its kernels."""
    if not len(start):
        return 0
    ended = spans(rows)[1]
    before = np.searchsorted(start, ended, side="right") - 1
    idle = (before >= 0) & (end[before] <= ended) & (before + 1 < len(start))
    table = pd.DataFrame(
        {"gap": before, "call": ints(rows, CALL_START_NS), "blocked": ints(rows, BLOCKED_NS)}
    )
    gaps = table[idle].groupby("gap").agg(call=("call", "min"), blocked=("blocked", "sum"))
    at = gaps.index.to_numpy(dtype=np.int64)
    length = start[at + 1] - np.maximum(end[at], ints(gaps, "call"))
    return int(np.minimum(np.maximum(length, 0), ints(gaps, "blocked")).sum())
