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

from ..shared.common import PLACE, Floats, ints, sort_by, spans, union_by
from ..shared.groups import number_by, rows_by_device
from .calls import MATRIX, PRECISION, UNKNOWN


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

    def tflops_of_each(self, devices: Ints, precisions: pd.Series) -> Floats:
        """`tflops` of each row."""
        indices, row = np.unique(devices, return_inverse=True)
        column, distinct = pd.factorize(precisions)
        peaks = [[self.tflops(index, precision) for precision in distinct] for index in indices.tolist()]
        return np.array(peaks, np.float64).reshape(len(indices), len(distinct))[row, column]

    def gb_per_s_of_each(self, devices: Ints) -> Floats:
        """`gb_per_s` of each row."""
        indices, row = np.unique(devices, return_inverse=True)
        return np.array([self.gb_per_s(index) for index in indices.tolist()], np.float64)[row]


def peaks(run: Run, devices: Ints) -> Peaks:
    """Peaks of these devices of a run."""
    indices = sorted(set(devices.tolist()))
    return Peaks(device_names(run, indices), device_peaks(run, indices), given=run.peaks is not None)


def build_tables(
    run: Run, kernels: pd.DataFrame, calls: pd.DataFrame, call: Ints, peaks: Peaks
) -> dict[str, pd.DataFrame]:
    """Return the work per device and window, and per step if steps are marked.

    `call` is the row in `calls` of each kernel, `UNKNOWN` without one.
    """
    work = _work(calls, peaks)
    marked = _mark_kernels(kernels, calls, call)
    summary = _rate(_sum_work(_windows(run), work, marked, PLACE), PLACE)
    tables = {"summary": _with_peaks(summary, work, peaks)}
    windows, inside = step_windows(run), work[work[C.STEP].notna()]
    if len(windows) and len(inside):
        keys = [*PLACE, C.STEP]
        steps = inside[keys].iloc[number_by(inside, keys)[1]].astype({C.STEP: np.int64})
        timed = steps.merge(
            windows.assign(window_ns=windows[END_NS] - windows[C.START_NS]), on=[C.RANK, C.STEP]
        )
        tables["per_step"] = _rate(_sum_work(timed, inside, marked[marked[C.STEP].notna()], keys), keys)
    return tables


def _work(calls: pd.DataFrame, peaks: Peaks) -> pd.DataFrame:
    """Counted calls, with their FLOPs and the time these take at the peak."""
    counted = calls[calls[C.FLOPS] != UNKNOWN]
    flops = counted[C.FLOPS].to_numpy(np.float64)
    peak = peaks.tflops_of_each(ints(counted, C.DEVICE), counted[PRECISION])
    columns = counted[[*PLACE, C.STEP, PRECISION]]
    return columns.assign(**{C.FLOPS: flops, _BEST: flops / (peak * 1_000)})


def _mark_kernels(kernels: pd.DataFrame, calls: pd.DataFrame, call: Ints) -> pd.DataFrame:
    """Kernels that multiply matrices: those of counted calls, and those with unknown FLOPs."""
    counted, product = (calls[C.FLOPS] != UNKNOWN).to_numpy(), calls[MATRIX].to_numpy(bool)
    # index -1, of a kernel without a call, gives the last entry
    is_counted, is_product = (np.append(flags, False)[call] for flags in (counted, product))
    is_product |= kernels[MATRIX].to_numpy(bool)
    marked = kernels.assign(**{_COUNTED: is_counted, _UNCOUNTED: is_product & ~is_counted})
    selected: pd.DataFrame = marked[is_counted | is_product]
    return selected


def _windows(run: Run) -> pd.DataFrame:
    """Time from the first start to the last end on each device."""
    frame = busy(run, [C.RANK, C.DEVICE, C.START_NS, C.DUR_NS])
    start, end = spans(frame)
    rows = rows_by_device(frame)
    window_ns = [end[of_device].max() - start[of_device].min() for of_device in rows.values()]
    return pd.DataFrame([*rows], columns=PLACE).assign(window_ns=window_ns)


def _sum_work(
    windows: pd.DataFrame, work: pd.DataFrame, marked: pd.DataFrame, keys: Sequence[str]
) -> pd.DataFrame:
    """FLOPs, best time and unions of matrix kernels of each window, which has these keys.

    The best time is missing if that of one call is, whose precision has no known peak, and without calls.
    """
    parts = [part[[*keys]] for part in (windows, work, marked)]
    codes, first = number_by(pd.concat(parts, ignore_index=True), keys)
    of_window, of_work, of_marked = np.split(codes, [len(windows), len(windows) + len(work)])
    start, end = spans(marked)
    best = np.full(len(first), np.nan)
    for code in np.unique(of_work):
        best[code] = work[_BEST].to_numpy()[of_work == code].sum()
    unions = {
        name: union_by(of_marked[flags], len(first), start[flags], end[flags])[of_window]
        for name, flags in (
            ("matrix_ns", marked[_COUNTED].to_numpy(bool)),
            ("uncounted_ns", marked[_UNCOUNTED].to_numpy(bool)),
        )
    }
    flops = work[C.FLOPS].groupby(of_work).sum().reindex(of_window, fill_value=0.0).to_numpy()
    return windows.assign(**{C.FLOPS: flops, _BEST: best[of_window]}, **unions)


def _rate(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Add rates over the window, in the order of the keys."""
    window = table["window_ns"].to_numpy(np.float64)
    usable = np.where(window > 0, window, np.nan)
    is_mostly_counted = ints(table, "matrix_ns") >= ints(table, "uncounted_ns")
    rated = table.assign(
        mfu=np.where(is_mostly_counted, table[_BEST] / usable, np.nan),
        tflops=table[C.FLOPS] / (usable * 1_000),
    )
    return sort_by(rated, *keys)[[*keys, *_COLUMNS]]


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
