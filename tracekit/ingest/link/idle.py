"""Idle intervals: what is left of a device's capture window when everything that occupied it is taken out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit import intervals
from tracekit.ingest.order import distinct
from tracekit.ingest.outline import outlined
from tracekit.ingest.rows import Batch, Column, Rows
from tracekit.ingest.texts import NO_STRINGS
from tracekit.ingest.windows import windows
from tracekit.schema import BUSY_KINDS, C, DeviceKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.spool import Parked

_WANTED = (C.KIND, C.DEVICE, C.START_NS, C.DUR_NS)
_Idle = tuple[int, intervals.Ints, intervals.Ints]
"""A device, starts and ends."""


def idle_batches(parked: Parked) -> Iterator[Batch]:
    """Idle rows of the parked device table, in batches.

    The window of a device is from the first start to the last end of what occupied it.
    """
    table = outlined(parked, texts=[C.KIND])
    occupying = table.texts.get(C.KIND, NO_STRINGS).among(BUSY_KINDS)
    covered: dict[int, int] = {}
    for window in windows([table]):
        rows = table.read(window.spans[0], _WANTED)
        busy = rows.take(np.flatnonzero(occupying[rows.integers(C.KIND)]))
        start, device = busy.integers(C.START_NS), busy.integers(C.DEVICE)
        end = start + busy.integers(C.DUR_NS)
        found = [
            _gaps(number, start[own], end[own], covered)
            for number in distinct(device).tolist()
            for own in [device == number]
        ]
        if sum(len(first) for _, first, _ in found):
            yield _batch(found)


def _gaps(device: int, start: intervals.Ints, end: intervals.Ints, covered: dict[int, int]) -> _Idle:
    """Gaps of a device in a window, and behind all that came before it; moves on what is covered."""
    before = covered.get(device)
    if before is not None:  # stands for all that came before: it covers up to there
        start, end = np.append(min(before, int(start.min())), start), np.append(before, end)
    covered[device] = int(end.max())
    return (device, *intervals.gaps(start, end))


def _batch(found: list[_Idle]) -> Batch:
    start = np.concatenate([first for _, first, _ in found])
    idle = np.zeros(len(start), np.int64)
    known = {
        C.KIND: idle,
        C.NAME: idle,
        C.DEVICE: np.concatenate([np.full(len(first), device) for device, first, _ in found]),
        C.START_NS: start,
        C.DUR_NS: np.concatenate([last for _, _, last in found]) - start,
    }
    columns = {name: Column(values) for name, values in known.items()}
    texts = {name: [DeviceKind.IDLE.encode()] for name in (C.KIND, C.NAME)}
    return Batch(Rows(count=len(start), columns=columns), texts)
