"""Samples of a run, its device work, and the measured window."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tracekit import intervals
from tracekit.nvml import SOURCE
from tracekit.run import busy
from tracekit.schema import C, DeviceKind
from tracekit.windows import END_NS, step_windows

from .._shared.common import ints, spans
from .series import PROCESS, Series, read

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.intervals import Union
    from tracekit.run import Run

STEPS, CAPTURE, WHOLE = "steps", "capture", "whole run"


@dataclass(frozen=True)
class Scene:
    """Samples and device work of a run."""

    run: Run

    @cached_property
    def series(self) -> list[Series]:
        """Every sampled metric."""
        return read(self.run)

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

    @cached_property
    def window(self) -> Union:
        """The union of the profiled steps of all ranks; the capture if none are marked."""
        if len(self.steps):
            return intervals.union(ints(self.steps, C.START_NS), ints(self.steps, END_NS))
        rows = self.work
        if rows.empty:
            rows = self.run.table("host_intervals", columns=[C.START_NS, C.DUR_NS])
        if rows.empty:
            return intervals.EMPTY
        start, end = spans(rows)
        return intervals.union(start.min(keepdims=True), end.max(keepdims=True))

    @cached_property
    def window_ns(self) -> int:
        """Length of the window."""
        return intervals.length(self.window)

    @cached_property
    def devices(self) -> list[int]:
        """Devices that were busy or sampled by NVML."""
        sampled = {one.device for one in self.series if one.source == SOURCE and one.device is not None}
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

    def active_share(self, device: int, window: Union | None = None) -> float | None:
        """|K| over the window, as in `gpu_breakdown`; None for a device without work in the run."""
        inside = self.window if window is None else window
        total = intervals.length(inside)
        if device not in self.worked or not total:
            return None
        kernels = self.kernels.get(device, intervals.EMPTY)
        return intervals.length(intervals.intersect(kernels, inside)) / total

    def nvml(self, device: int, metric: str) -> Series | None:
        """NVML's samples of one metric of a device."""
        return self._found(SOURCE, device, metric)

    def process(self, metric: str) -> Series | None:
        """The measured process's samples of one metric."""
        return self._found(PROCESS, None, metric)

    def constant(self, device: int, metric: str) -> float | None:
        """Maximum of a metric that NVML reports as a constant."""
        found = self.nvml(device, metric)
        return float(found.values.max()) if found else None

    def evidence(self, device: int, flagged: Union, most: int) -> dict[str, list[int]]:
        """Intervals of a device with the longest overlap with flagged time."""
        rows = self.work[self.work[C.DEVICE] == device]
        inside = intervals.covered(flagged, *spans(rows))
        longest = np.argsort(-inside, kind="stable")[:most]
        ids = ints(rows, C.ROW_ID)[longest[inside[longest] > 0]]
        return {"device_intervals": [int(row) for row in ids]} if len(ids) else {}

    def _found(self, source: str, device: int | None, metric: str) -> Series | None:
        wanted = (source, device, metric)
        return next((one for one in self.series if (one.source, one.device, one.metric) == wanted), None)


def _by_device(rows: pd.DataFrame) -> dict[int, Union]:
    device = ints(rows, C.DEVICE)
    return {one: intervals.union(*spans(rows[device == one])) for one in np.unique(device).tolist()}
