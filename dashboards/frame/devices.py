"""Ranks and devices of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.run import Run


def present(run: Run) -> tuple[list[int], list[int]]:
    """Return the ranks and devices that occur in a run's intervals, sorted."""
    device = run.arrow("device_intervals", columns=[C.RANK, C.DEVICE])
    host = run.arrow("host_intervals", columns=[C.RANK])
    ranks = {value for table in (device, host) for value in pc.unique(table[C.RANK]).to_pylist()}
    devices = set(pc.unique(device[C.DEVICE]).to_pylist())
    return sorted(ranks - {None}), sorted(devices - {None})
