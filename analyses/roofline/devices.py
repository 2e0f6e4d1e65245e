"""Peaks of the devices of a run, and their use: model FLOPs utilization per device and step.

Peaks are those of `tracekit.runs.devices`, or those that a user gave (`Run.peaks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import Column, Finding, Remark
from tracekit.runs.devices import Device, find_device
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.runs.step_windows import END_NS, step_windows
from tracekit.schema import C

from ..shared.common import PLACE, Floats, ints, spans, union_by
from .calls import MATRIX, OWNER, PRECISION, UNKNOWN


def device_names(run: Run, devices: Iterable[int]) -> dict[int, str]:
    """Recorded names of these devices; see `_find_gpus`."""
    return {device: str(gpu["name"]) for device, gpu in _find_gpus(run, devices).items()}


def device_peaks(run: Run, devices: Iterable[int]) -> dict[int, Device]:
    """Peaks of these devices: those that the user gave, else those of the listed ones."""
    if run.peaks is not None:
        return dict.fromkeys(devices, run.peaks)
    listed = {
        device: find_device(str(gpu["name"]), gpu.get("sm_count"), gpu.get("memory_bytes"))
        for device, gpu in _find_gpus(run, devices).items()
    }
    return {device: peaks for device, peaks in listed.items() if peaks is not None}


def _find_gpus(run: Run, devices: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Recorded properties of these devices, which have a name.

    If all recorded devices are of one kind, its properties are used for the others too: some profilers list
    devices with other indices than kernels.
    """
    gpus = [gpu for gpu in run.meta.environment.get("gpus") or [] if gpu.get("name")]
    by_index = {int(gpu["index"]): gpu for gpu in gpus}
    common = gpus[0] if len({(str(gpu["name"]), gpu.get("sm_count")) for gpu in gpus}) == 1 else None
    by_device = {device: by_index.get(device, common) for device in devices}
    return {device: gpu for device, gpu in by_device.items() if gpu}


GIVEN = "peaks are those of {name} ({source}), as given, {instead}"


def peaks_notes(run: Run) -> list[str]:
    """Note on peaks that the user gave; none without them."""
    if run.peaks is None:
        return []
    names = sorted({str(gpu["name"]) for gpu in run.meta.environment.get("gpus") or [] if gpu.get("name")})
    recorded = f"not those of the recorded {', '.join(names)}" if names else "no device name was recorded"
    note = GIVEN.format(name=run.peaks.name, source=run.peaks.source, instead=recorded)
    return [Remark(note)]


def with_given(run: Run, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Add to the findings that they use peaks that the user gave, if so."""
    if run.peaks is None:
        return tuple(findings)
    peaks = f"with the peaks of {run.peaks.name}, as given"
    return tuple(
        replace(finding, how=f"{finding.how}; {peaks}" if finding.how else peaks) for finding in findings
    )


PEAKS = (
    Column("device_name", "", "name of the device as recorded"),
    Column("peaks", "", "dense peaks used, TFLOP/s, by precision, and memory bandwidth"),
)
_COLUMNS = ["mfu", "tflops", C.FLOPS, "window_ns", "matrix_ns", "uncounted_ns"]
_BEST, _COUNTED, _UNCOUNTED = "best_ns", "counted", "uncounted"


@dataclass(frozen=True)
class Peaks:
    """Peaks of the devices of a run."""

    names: dict[int, str]  # recorded name of each device
    known: dict[int, Device]  # peaks of the listed devices, or those given
    given: bool = False  # whether the user gave them

    def tflops(self, device: int, precision: str) -> float:
        """Peak of matrix products, NaN if unknown."""
        peak = self.known[device].peak(precision) if device in self.known else None
        return np.nan if peak is None else peak

    def gb_per_s(self, device: int) -> float:
        """Memory bandwidth, NaN if unknown."""
        bandwidth = self.known[device].gb_per_s if device in self.known else None
        return np.nan if bandwidth is None else bandwidth

    def of_each(self, devices: Ints, precisions: pd.Series) -> Floats:
        """`tflops` of each row."""
        rows = list(zip(devices.tolist(), precisions, strict=True))
        peak_of = {row: self.tflops(*row) for row in set(rows)}
        return np.array([peak_of[row] for row in rows], np.float64)


def peaks(run: Run, devices: Ints) -> Peaks:
    """Peaks of these devices of a run."""
    indices = sorted(set(devices.tolist()))
    return Peaks(device_names(run, indices), device_peaks(run, indices), given=run.peaks is not None)


def build_tables(
    run: Run, kernels: pd.DataFrame, calls: pd.DataFrame, peaks: Peaks
) -> dict[str, pd.DataFrame]:
    """Return the work per device and window, and per step if steps are marked.

    Args:
        run: The run.
        kernels: Its kernels with their calls.
        calls: The calls with their FLOPs.
        peaks: Peaks of the devices.
    """
    work = _work(calls, peaks)
    marked = _mark_kernels(kernels, calls)
    totals = _windows(run).merge(_sum_work(work, marked, PLACE), how="left", on=PLACE)
    build_tables = {"summary": _with_peaks(_rate(totals, PLACE), work, peaks)}
    windows = step_windows(run)
    inside = work[work[C.STEP].notna()]
    if len(windows) and len(inside):
        keys = [*PLACE, C.STEP]
        steps = _sum_work(inside, marked[marked[C.STEP].notna()], keys)
        steps[C.STEP] = steps[C.STEP].astype(np.int64)
        length = windows.assign(window_ns=windows[END_NS] - windows[C.START_NS])
        timed = steps.merge(length[[C.RANK, C.STEP, "window_ns"]], on=[C.RANK, C.STEP])
        build_tables["per_step"] = _rate(timed, keys)
    return build_tables


def _work(calls: pd.DataFrame, peaks: Peaks) -> pd.DataFrame:
    """Counted calls, with their FLOPs and the time these take at the peak."""
    counted = calls[calls[C.FLOPS] != UNKNOWN]
    flops = counted[C.FLOPS].to_numpy(np.float64)
    peak = peaks.of_each(ints(counted, C.DEVICE), counted[PRECISION])
    columns = counted[[*PLACE, C.STEP, PRECISION]]
    return columns.assign(**{C.FLOPS: flops, _BEST: flops / (peak * 1_000)})


def _mark_kernels(kernels: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """Kernels that multiply matrices: those of counted calls, and those with unknown FLOPs."""
    counted = calls.loc[calls[C.FLOPS] != UNKNOWN, OWNER]
    products = calls.loc[calls[MATRIX].astype(bool), OWNER]
    is_counted = kernels[OWNER].isin(counted).to_numpy(bool)
    is_product = kernels[OWNER].isin(products).to_numpy(bool) | kernels[MATRIX].to_numpy(bool)
    marked = kernels.assign(**{_COUNTED: is_counted, _UNCOUNTED: is_product & ~is_counted})
    selected: pd.DataFrame = marked[is_counted | is_product]
    return selected


def _windows(run: Run) -> pd.DataFrame:
    """From the first start to the last end on each device."""
    frame = busy(run, [C.RANK, C.DEVICE, C.START_NS, C.DUR_NS])
    ends = frame.assign(**{END_NS: ints(frame, C.START_NS) + ints(frame, C.DUR_NS)})
    by_device = ends.groupby(PLACE)
    table = by_device[[C.START_NS]].min().join(by_device[[END_NS]].max()).reset_index()
    table["window_ns"] = table[END_NS] - table[C.START_NS]
    return table


def _sum_work(work: pd.DataFrame, marked: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """FLOPs, best time and unions of matrix kernels by key.

    The best time is missing if that of one call is, whose precision has no known peak.
    """
    by_key = work.groupby(list(keys))
    sums = by_key[[C.FLOPS]].sum().join(by_key[_BEST].apply(lambda times: times.sum(skipna=False)))
    for flag, column in ((_COUNTED, "matrix_ns"), (_UNCOUNTED, "uncounted_ns")):
        sums[column] = _unions(marked[marked[flag]], keys).reindex(sums.index).fillna(0).astype(np.int64)
    return sums.reset_index()


def _unions(kernels: pd.DataFrame, keys: Sequence[str]) -> pd.Series:
    by_key = kernels.groupby(list(keys), sort=True)
    sizes = by_key.size()
    codes = by_key.ngroup().to_numpy().astype(np.int64)
    return pd.DataFrame({"ns": union_by(codes, len(sizes), *spans(kernels))}, index=sizes.index)["ns"]


def _rate(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Add rates over the window; a device without counted calls has 0 FLOPs."""
    filled = table.fillna({C.FLOPS: 0.0, "matrix_ns": 0, "uncounted_ns": 0})
    window = filled["window_ns"].to_numpy(np.float64)
    usable = np.where(window > 0, window, np.nan)
    is_mostly_counted = filled["matrix_ns"] >= filled["uncounted_ns"]
    rated = filled.assign(
        mfu=(filled[_BEST] / usable).where(is_mostly_counted), tflops=filled[C.FLOPS] / (usable * 1_000)
    )
    exact = rated.astype(dict.fromkeys(("window_ns", "matrix_ns", "uncounted_ns"), np.int64))
    return exact.sort_values(list(keys), ignore_index=True)[[*keys, *_COLUMNS]]


def _with_peaks(table: pd.DataFrame, work: pd.DataFrame, peaks: Peaks) -> pd.DataFrame:
    used = work.groupby(PLACE)[PRECISION].unique().map(sorted).to_dict()
    rows = table[PLACE].itertuples(index=False, name=None)
    return table.assign(
        device_name=[peaks.names.get(device, "") for device in table[C.DEVICE]],
        peaks=[_peaks_text(peaks, key[1], used.get(key, [])) for key in rows],
    )


def _peaks_text(peaks: Peaks, device: int, precisions: Sequence[str]) -> str:
    """Format the peaks of a device that were used.

    Example:
        >>> peaks = Peaks({0: "L4"}, {0: Device("L4", 300, {"fp16": 121}, "")})
        >>> _peaks_text(peaks, 0, ["fp16", "fp64"])
        'fp16 121, fp64 unknown; 300 GB/s'
    """
    if device not in peaks.known:
        return ""
    by_precision = {precision: peaks.tflops(device, precision) for precision in precisions}
    words = [f"{word} {_number(peak)}" for word, peak in by_precision.items()]
    origin = f" (given: {peaks.known[device].name})" if peaks.given else ""
    return f"{', '.join(words)}; {_number(peaks.gb_per_s(device))} GB/s{origin}"


def _number(peak: float) -> str:
    return "unknown" if np.isnan(peak) else f"{peak:g}"
