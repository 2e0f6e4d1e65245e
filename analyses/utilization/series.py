"""Samples of one metric, and the time covered by each of them.

A sample of a state (clock, power, memory) covers the time between the midpoints to its neighboring samples.
An averaged sample (utilization, CPU share) covers the time since the previous sample. Neither covers more
than three times the median distance of its metric's samples; longer gaps are not covered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import EVIDENCE_ROWS
from tracekit.runs import intervals
from tracekit.runs.conditions import SCHEDULER
from tracekit.runs.intervals import Ints, Union, overlap_lengths
from tracekit.runs.nvml import QUERIES, SOURCE, M
from tracekit.runs.run import Run, busy
from tracekit.runs.step_windows import step_windows
from tracekit.schema import C, DeviceKind

from ..shared.common import Floats, ids_or_absent, ints, spans
from ..shared.groups import group_rows, rows_by_number
from ..shared.intervals_by_class import measured_window

CPU, RSS, THREADS, PROCESSES = "cpu_percent", "rss_bytes", "threads", "processes"
PROCESS = "process"
LOOK_BACK = {M.GPU_UTILIZATION, M.MEMORY_UTILIZATION, CPU}
CONSTANT = {name for question in QUERIES if question.once for name in question.names}
MAX_GAPS = 3


@dataclass(frozen=True)
class Stats:
    """Statistics of samples in a time range; `covered_ns` is the time covered by them."""

    mean: float
    min: float
    max: float
    p95: float
    samples: int
    covered_ns: int


@dataclass(frozen=True)
class Series:
    """Samples of one metric of one device (None: the host) sorted by time.

    `known_extents` is the time covered by each sample if others have been left out; None computes it.
    """

    source: str
    device: int | None
    metric: str
    unit: str
    times: Ints
    values: Floats
    known_extents: Union | None = None

    def within_windows(self, windows: Union) -> Series:
        """Only samples taken inside windows; of averaged samples, those with half of their period inside."""
        start, end = self.extents()
        inside = (_at(windows, self.times) > 0) | (_at(windows, self.times - 1) > 0)
        if self.metric in LOOK_BACK:
            inside = np.where(end > start, 2 * overlap_lengths(windows, start, end) >= end - start, inside)
        extents = start[inside], end[inside]
        return replace(self, times=self.times[inside], values=self.values[inside], known_extents=extents)

    def extents(self) -> Union:
        """Start and end of the time covered by each sample; disjoint, sorted, empty for a single sample."""
        if self.known_extents is not None:
            return self.known_extents
        gaps = np.diff(self.times)
        typical = int(np.median(gaps)) if len(gaps) else 0
        before = np.minimum(np.concatenate(([typical], gaps)), MAX_GAPS * typical).astype(np.int64)
        if self.metric in LOOK_BACK:
            return self.times - before, self.times
        after = np.concatenate((before[1:], [typical])).astype(np.int64)
        return self.times - before // 2, self.times + (after - after // 2)

    def within(self, windows: Union) -> Ints:
        """Time covered by each sample inside a union of windows."""
        return overlap_lengths(windows, *self.extents())

    def stats(self, windows: Union | None = None) -> Stats | None:
        """Time-weighted statistics inside windows, or of all samples; None without samples."""
        return stats_of_each([self], windows)[0]


def _at(windows: Union, times: Ints) -> Ints:
    return overlap_lengths(windows, times, times + 1)


def stats_of_each(series: list[Series], windows: Union | None) -> list[Stats | None]:
    """Time-weighted statistics of each series inside windows, or of all its samples; None without samples."""
    if not series:
        return []
    values, times, extents = zip(
        *((metric.values, metric.times, metric.extents()) for metric in series), strict=True
    )
    start, end = (np.concatenate(edges) for edges in zip(*extents, strict=True))
    borders = np.cumsum([len(of_metric) for of_metric in times])[:-1]
    weights = np.split(end - start if windows is None else overlap_lengths(windows, start, end), borders)
    covered_ns = [int(of_metric.sum()) for of_metric in weights]
    if not all(covered_ns):  # samples without a duration have equal weights
        moments = np.concatenate(times)
        is_inside = np.ones(len(moments), np.int64) if windows is None else _at(windows, moments)
        equal = np.split(is_inside, borders)
        weights = [timed if ns else same for timed, same, ns in zip(weights, equal, covered_ns, strict=True)]
    return list(map(_stats, values, weights, covered_ns))


def _stats(values: Floats, weights: Ints, covered_ns: int) -> Stats | None:
    values, weights = values[weights > 0], weights[weights > 0]
    if not len(values):
        return None
    mean = float(np.average(values, weights=weights.astype(np.float64)))
    min_, max_ = float(values.min()), float(values.max())
    p95 = quantile(values, weights, 0.95)
    return Stats(min(max(mean, min_), max_), min_, max_, p95, len(values), covered_ns)


def quantile(values: Floats, weights: Ints, share: float) -> float:
    """Time-weighted quantile: the smallest value not exceeded for a share of the time.

    Args:
        values: float64 array of shape (samples,).
        weights: Time that each represents, ns; int64 of the same shape.
        share: Share of the time, from 0 to 1.

    Example:
        >>> quantile(np.array([5.0, 1.0]), np.array([10, 90]), 0.95), quantile(np.ones(1), np.ones(1), 0.5)
        (5.0, 1.0)
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order].astype(np.float64))
    # sums of floating-point weights may miss the share by rounding: then the next value would be taken
    place = int(np.searchsorted(reached, share * reached[-1] * (1 - 1e-12)))
    return float(values[order][min(place, len(values) - 1)])


def read(run: Run) -> list[Series]:
    """Read the metrics of the run's counters, except times of threads and values that are not finite."""
    keys = [C.SOURCE, C.DEVICE, C.METRIC, C.UNIT]
    rows = run.table("counters", columns=[*keys, C.T_NS, C.VALUE], where=pc.field(C.SOURCE) != SCHEDULER)
    rows = rows[np.isfinite(rows[C.VALUE].to_numpy(np.float64))]
    groups, times = group_rows(rows, keys), ints(rows, C.T_NS)
    values = rows[C.VALUE].to_numpy(np.float64)
    order = np.lexsort((times, groups.codes))
    texts = [rows[key].astype(object).to_numpy()[groups.first] for key in (C.SOURCE, C.METRIC, C.UNIT)]
    devices = ids_or_absent(rows[C.DEVICE])[groups.first].tolist()
    parts = np.split(order, np.cumsum(groups.sizes())[:-1]) if len(order) else []
    series = [
        Series(str(source), None if device < 0 else device, str(metric), str(unit), times[part], values[part])
        for source, metric, unit, device, part in zip(*texts, devices, parts, strict=True)
    ]
    # By source, those of the host before those of devices.
    device_key = {one.device: "" if one.device is None else str(one.device) for one in series}
    return sorted(series, key=lambda one: (one.source, device_key[one.device], one.metric, one.unit))


STEPS, CAPTURE, WHOLE = "steps", "capture", "whole run"


@dataclass(frozen=True)
class Scene:
    """Samples and device work of a run.

    With `only_window`, a metric is found without the samples taken outside of the window, such as those while
    the profiler starts, which stand for part of a short step. Constants are kept.
    """

    run: Run
    only_window: bool = False

    @cached_property
    def series(self) -> list[Series]:
        """Every sampled metric, with all its samples."""
        return read(self.run)

    @cached_property
    def _by_key(self) -> dict[tuple[str, int | None, str], Series]:
        """The series by source, device and metric; of equal ones the first."""
        return {(series.source, series.device, series.metric): series for series in reversed(self.series)}

    @cached_property
    def inside(self) -> Scene:
        """The same with `only_window`."""
        return Scene(self.run, only_window=True)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """The windows of the profiled steps."""
        return step_windows(self.run)

    @cached_property
    def work(self) -> pd.DataFrame:
        """Intervals that occupied devices."""
        columns = [C.ROW_ID, C.RANK, C.DEVICE, C.KIND, C.COPY_KIND, C.STEP, C.START_NS, C.DUR_NS]
        return busy(self.run, columns)

    @property
    def scope(self) -> str:
        """Scope of the window: steps or capture."""
        return STEPS if len(self.steps) else CAPTURE

    @property
    def scopes(self) -> tuple[tuple[str, Union | None], ...]:
        """The window and the whole run, with their names."""
        return (self.scope, self.window), (WHOLE, None)

    @cached_property
    def window(self) -> Union:
        """The union of the profiled steps of all ranks; the capture if none are marked."""
        rows = self.work
        if rows.empty:
            rows = self.run.table("host_intervals", columns=[C.START_NS, C.DUR_NS])
        is_empty = rows.empty and self.steps.empty
        return intervals.EMPTY if is_empty else measured_window(rows, self.steps)

    @cached_property
    def window_ns(self) -> int:
        """Length of the window."""
        return intervals.length(self.window)

    @cached_property
    def devices(self) -> list[int]:
        """Devices that were busy or sampled by NVML."""
        sampled = {
            series.device for series in self.series if series.source == SOURCE and series.device is not None
        }
        return sorted(sampled | set(self.worked))

    @cached_property
    def worked(self) -> dict[int, Union]:
        """Union of all work of each busy device."""
        return _by_device(self.work)

    @cached_property
    def kernels(self) -> dict[int, Union]:
        """Union of the kernels of each busy device."""
        return _by_device(self.work[self.work[C.KIND] == str(DeviceKind.KERNEL)])

    def busy(self, device: int) -> Union:
        """Union of all work of a device inside the window."""
        return intervals.intersect(self.worked.get(device, intervals.EMPTY), self.window)

    def active_share(self, device: int) -> float | None:
        """|K| over the window, as in `gpu_breakdown`; None for a device without work in the run."""
        if device not in self.worked or not self.window_ns:
            return None
        kernels = self.kernels.get(device, intervals.EMPTY)
        return int(overlap_lengths(kernels, *self.window).sum()) / self.window_ns

    def active_shares(self, device: int, start: Ints, end: Ints) -> list[float | None]:
        """|K| over each window; None for an empty one, and for a device without work in the run."""
        if device not in self.worked:
            return [None] * len(start)
        kernels = overlap_lengths(self.kernels.get(device, intervals.EMPTY), start, end)
        pairs = zip(kernels.tolist(), (end - start).tolist(), strict=True)
        return [part / whole if whole else None for part, whole in pairs]

    def nvml(self, device: int, metric: str) -> Series | None:
        """NVML's samples of one metric of a device."""
        return self._find(SOURCE, device, metric)

    def process(self, metric: str) -> Series | None:
        """The measured process's samples of one metric."""
        return self._find(PROCESS, None, metric)

    def constant(self, device: int, metric: str) -> float | None:
        """Maximum of a metric that NVML reports as a constant."""
        series = self.nvml(device, metric)
        return float(series.values.max()) if series else None

    def evidence(self, device: int, flagged: Union) -> dict[str, list[int]]:
        """Return the intervals of a device with the longest overlap with flagged time."""
        rows = self.work[self.work[C.DEVICE] == device]
        inside = intervals.overlap_lengths(flagged, *spans(rows))
        longest = np.argsort(-inside, kind="stable")[:EVIDENCE_ROWS]
        ids = ints(rows, C.ROW_ID)[longest[inside[longest] > 0]]
        return {"device_intervals": ids.tolist()} if len(ids) else {}

    def _find(self, source: str, device: int | None, metric: str) -> Series | None:
        series = self._by_key.get((source, device, metric))
        if series and self.only_window and metric not in CONSTANT:
            series = series.within_windows(self.window)
        return series if series and len(series.times) else None


OWN_DEVICES = (
    "the ranks number their own devices alike: these are the devices of rank {}; for others, use --rank"
)


def scene_of(run: Run) -> tuple[Scene, tuple[str, ...]]:
    """Return the samples and device work of a run, and a note if they are those of its first rank only.

    Ranks that see only their own devices all number them from 0, so samples of different GPUs would mix.
    """
    where = (pc.field(C.SOURCE) == SOURCE) & pc.field(C.RANK).is_valid()
    pairs = run.table("counters", columns=[C.RANK, C.DEVICE], where=where).drop_duplicates()
    first = int(pairs[C.RANK].min()) if pairs[C.DEVICE].duplicated().any() else None
    if first is None or first not in run.ranks:
        return Scene(run), ()
    return Scene(run.of_ranks(first)), (OWN_DEVICES.format(first),)


def _by_device(rows: pd.DataFrame) -> dict[int, Union]:
    start, end = spans(rows)
    of_devices = rows_by_number(ints(rows, C.DEVICE))
    return {device: intervals.union(start[mine], end[mine]) for device, mine in of_devices}
