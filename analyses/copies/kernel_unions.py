"""Exposed time of copies: the part that no kernel or opaque graph of their device overlaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, Union, covered
from tracekit.runs.run import Run, busy
from tracekit.schema import C, DeviceKind

from ..shared.common import ints, max_per_rank, segments_by, spans
from .read_copies import BLOCKED_NS, CALL_START_NS, PLACE, number_by


class KernelUnions:
    """Unions of kernels and opaque graphs per device, which overlap copies."""

    def __init__(self, run: Run) -> None:
        frame = busy(run, [C.KIND, C.RANK, C.DEVICE, C.START_NS, C.DUR_NS])
        hides = frame[frame[C.KIND].isin([str(DeviceKind.KERNEL), str(DeviceKind.GRAPH)])]
        self.unions: dict[Any, Union] = {
            place: intervals.union(*spans(rows)) for place, rows in hides.groupby(list(PLACE), sort=True)
        }

    def exposed_by(self, frame: pd.DataFrame, codes: Ints, groups: int) -> Ints:
        """Exposed length of the union of each group's intervals, summed over devices.

        Args:
            frame: Intervals with rank and device.
            codes: Group of each interval, 0 up to `groups`.
            groups: Number of groups.
        """
        total = np.zeros(groups, np.int64)
        for place, rows in frame.groupby(list(PLACE), sort=True).indices.items():
            group, start, end = segments_by(codes[rows], *spans(frame.iloc[rows]))
            union = self.unions.get(place, intervals.EMPTY)
            np.add.at(total, group, end - start - covered(union, start, end))
        return total

    def start_delay_ns(self, copies: pd.DataFrame) -> int:
        """Upper bound of how much earlier kernels could run if the host were not blocked in these copies.

        For each gap between kernels in which copies end: the minimum of the time the host was blocked in them
        and the gap since the first of their calls. The device of each rank with the largest sum counts.
        """
        blocking = copies[copies[BLOCKED_NS].notna()]
        codes, _ = number_by(blocking, PLACE)
        places = blocking[list(PLACE)].iloc[np.unique(codes, return_index=True)[1]]
        waited = [
            _start_delay(blocking[codes == number], *self.unions.get(place, intervals.EMPTY))
            for number, place in enumerate(places.itertuples(index=False, name=None))
        ]
        return max_per_rank(places, waited)

    def exposed_ns(self, frame: pd.DataFrame) -> int:
        """Exposed length of the union of these intervals, on the device of each rank with most of it."""
        codes, count = number_by(frame, PLACE)
        places = frame[list(PLACE)].iloc[np.unique(codes, return_index=True)[1]]
        return max_per_rank(places, self.exposed_by(frame, codes, count))


def _start_delay(rows: pd.DataFrame, start: Ints, end: Ints) -> int:
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
    before = gaps.index.to_numpy(dtype=np.int64)
    length = start[before + 1] - np.maximum(end[before], ints(gaps, "call"))
    return int(np.minimum(np.maximum(length, 0), ints(gaps, "blocked")).sum())
