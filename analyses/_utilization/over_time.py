"""Samples over time, thinned for figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.nvml import M
from tracekit.schema import C

from .series import CPU, RSS, THREADS
from .specs import HOST_TIMELINE, TIMELINE

if TYPE_CHECKING:
    from tracekit.intervals import Ints

    from .._shared.common import Floats
    from .scene import Scene
    from .series import Series

MOST_POINTS = 1_000
"""Maximum number of samples per quantity, evenly selected."""
FEW_DEVICES = 2
"""Maximum number of devices for quantities other than utilization, to limit the number of lines."""
UTILIZATION = "utilization"
_QUANTITIES = (
    ("memory", M.MEMORY_USED, M.MEMORY_TOTAL),
    ("SM clock", M.SM_CLOCK, M.SM_CLOCK_MAX),
    ("power", M.POWER, M.POWER_LIMIT),
)


def devices(scene: Scene) -> pd.DataFrame:
    """Utilization, memory, clock and power of each device as shares of their maximum."""
    parts = []
    for device in scene.devices:
        found = scene.nvml(device, M.GPU_UTILIZATION)
        if found:
            parts.append(_part(device, UTILIZATION, found, 100.0))
        if len(scene.devices) <= FEW_DEVICES:
            parts += _others(scene, device)
    columns = [column.name for column in TIMELINE.columns]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _others(scene: Scene, device: int) -> list[pd.DataFrame]:
    parts = []
    for name, metric, most in _QUANTITIES:
        found, limit = scene.nvml(device, metric), scene.constant(device, most)
        if found and limit:
            parts.append(_part(device, name, found, limit))
    return parts


def _part(device: int, name: str, found: Series, most: float) -> pd.DataFrame:
    times, values = _thinned(found)
    return pd.DataFrame({C.DEVICE: device, "quantity": name, C.T_NS: times, "of_most": values / most})


def _thinned(found: Series) -> tuple[Ints, Floats]:
    every = -(-len(found.times) // MOST_POINTS)
    return found.times[::every], found.values[::every]


def host(scene: Scene) -> pd.DataFrame:
    """Memory, CPU and threads of the process; missing if not sampled."""
    columns = [column.name for column in HOST_TIMELINE.columns]
    found = scene.process(RSS)
    if found is None:
        return pd.DataFrame(columns=columns)
    times, resident = _thinned(found)
    threads = _at(scene.process(THREADS), times)
    table = pd.DataFrame(
        {
            C.T_NS: times,
            "rss": resident.round().astype(np.int64),
            "cores": _at(scene.process(CPU), times) / 100,
            "threads": pd.Series(threads).round().astype("Int64"),
        }
    )
    return table[columns]


def _at(found: Series | None, times: Ints) -> Floats:
    """Values sampled at exactly these times, else NaN; all metrics of one reading have the same time."""
    if found is None:
        return np.full(len(times), np.nan)
    by_time = pd.Series(found.values, index=found.times)
    return np.asarray(by_time[~by_time.index.duplicated()].reindex(times), np.float64)
