"""Samples of one metric, and the time covered by each of them.

A sample of a state (clock, power, memory) covers the time between the midpoints to its neighboring samples.
An averaged sample (utilization, CPU share) covers the time since the previous sample. Neither covers more
than three times the median distance of its metric's samples; longer gaps are not covered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.intervals import covered
from tracekit.nvml import M
from tracekit.schema import C

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.intervals import Ints, Union
    from tracekit.run import Run

    from .._shared.common import Floats

CPU, RSS, THREADS, PROCESSES = "cpu_percent", "rss_bytes", "threads", "processes"
PROCESS = "process"
LOOK_BACK = {M.GPU_UTILIZATION, M.MEMORY_UTILIZATION, CPU}
MOST_GAPS = 3


@dataclass(frozen=True)
class Stats:
    """Statistics of samples in a time range; `covered_ns` is the time covered by them."""

    mean: float
    low: float
    high: float
    p95: float
    samples: int
    covered_ns: int


@dataclass(frozen=True)
class Series:
    """Samples of one metric of one device (None: the host) sorted by time."""

    source: str
    device: int | None
    metric: str
    unit: str
    times: Ints
    values: Floats

    def extents(self) -> Union:
        """Start and end of the time covered by each sample; disjoint, sorted, empty for a single sample."""
        gaps = np.diff(self.times)
        typical = int(np.median(gaps)) if len(gaps) else 0
        before = np.minimum(np.concatenate(([typical], gaps)), MOST_GAPS * typical).astype(np.int64)
        if self.metric in LOOK_BACK:
            return self.times - before, self.times
        after = np.concatenate((before[1:], [typical])).astype(np.int64)
        return self.times - before // 2, self.times + (after - after // 2)

    def within(self, windows: Union) -> Ints:
        """Time covered by each sample inside a union of windows."""
        return covered(windows, *self.extents())

    def stats(self, windows: Union | None = None) -> Stats | None:
        """Time-weighted statistics inside windows, or of all samples; None without samples."""
        start, end = self.extents()
        weights = end - start if windows is None else covered(windows, start, end)
        total = int(weights.sum())
        if not total:  # samples without a duration have equal weights
            inside = np.ones(len(self.times)) if windows is None else _at(windows, self.times)
            weights = inside.astype(np.int64)
        return _stats(self.values[weights > 0], weights[weights > 0], total)


def _at(windows: Union, times: Ints) -> Ints:
    return covered(windows, times, times + 1)


def _stats(values: Floats, weights: Ints, covered_ns: int) -> Stats | None:
    if not len(values):
        return None
    mean = float(np.average(values, weights=weights.astype(np.float64)))
    low, high = float(values.min()), float(values.max())
    p95 = quantile(values, weights, 0.95)
    return Stats(min(max(mean, low), high), low, high, p95, len(values), covered_ns)


def quantile(values: Floats, weights: Ints, share: float) -> float:
    """Time-weighted quantile: the smallest value not exceeded for a share of the time.

    Example:
        >>> quantile(np.array([5.0, 1.0]), np.array([10, 90]), 0.95), quantile(np.ones(1), np.ones(1), 0.5)
        (5.0, 1.0)
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order].astype(np.float64))
    at = int(np.searchsorted(reached, share * reached[-1] * (1 - 1e-12)))
    return float(values[order][min(at, len(values) - 1)])


def read(run: Run) -> list[Series]:
    """Read every metric of the run's counters; values that are not finite are omitted."""
    rows = run.table("counters")
    if not rows[C.T_NS].is_monotonic_increasing:
        rows = rows.sort_values(C.T_NS, kind="stable")
    rows = rows[np.isfinite(rows[C.VALUE])]
    rows = rows.assign(**{C.DEVICE: rows[C.DEVICE].fillna(-1).astype(np.int64)})
    keys = [C.SOURCE, C.DEVICE, C.METRIC, C.UNIT]
    groups = rows.groupby(keys, sort=False, observed=True)
    return [_series(key, own) for key, own in sorted(groups, key=lambda group: tuple(map(str, group[0])))]


def _series(key: tuple[object, ...], rows: pd.DataFrame) -> Series:
    source, device, metric, unit = map(str, key)
    return Series(
        source,
        None if device == "-1" else int(device),
        metric,
        unit,
        rows[C.T_NS].to_numpy(np.int64),
        rows[C.VALUE].to_numpy(np.float64),
    )
