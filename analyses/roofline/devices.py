"""Peaks of known devices: dense peaks by precision and memory bandwidth, from vendors' data sheets.

`devices.json` has the numbers, each entry with its source. Peaks are dense (without 2:4 sparsity), in TFLOP/s
(TOP/s for int8), of tensor or matrix cores for tf32, fp16, bf16, fp8 and int8. `fp32_matrix` and
`fp64_matrix` are those of matrix cores if they differ from the vector units' `fp32` and `fp64`. Bandwidth is
in GB/s (10⁹ bytes). Numbers without a source are omitted. Names are matched completely, so that a partition
of a device (MIG) or an unlisted variant has no peaks rather than wrong ones.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracekit.analysis import Column
from tracekit.runs.rank_view import END_NS, step_windows
from tracekit.runs.run import busy
from tracekit.schema import C

from ..shared.common import ints, spans, union_by
from .work import MATRIX, OWNER, PRECISION, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.runs.intervals import Ints
    from tracekit.runs.run import Run

    from ..shared.common import Floats


_VENDOR = re.compile(r"\b(?:nvidia|tesla|geforce|amd|instinct)\b")


@dataclass(frozen=True)
class Device:
    """A known kind of device.

    Attributes:
        name: Its name.
        gb_per_s: Memory bandwidth.
        tflops: Peak by precision.
        source: Source of the numbers.
    """

    name: str
    gb_per_s: float
    tflops: dict[str, float]
    source: str

    def peak(self, precision: str) -> float | None:
        """Peak of matrix products at a precision, TFLOP/s; None if unknown.

        Example:
            >>> device = known("AMD Instinct MI210")
            >>> device.peak("fp32"), device.peak("tf32")
            (45.3, None)
        """
        return self.tflops.get(f"{precision}_matrix", self.tflops.get(precision))


def known(name: str) -> Device | None:
    """The device of this name, None if not listed.

    Example:
        >>> known("NVIDIA A100-SXM4-40GB").tflops["tf32"], known("NVIDIA A100-SXM4-40GB MIG 1g.5gb")
        (156, None)
    """
    words = " ".join(re.findall(r"[a-z0-9.]+", _VENDOR.sub(" ", name.lower())))
    return next((device for pattern, device in _listed() if pattern.fullmatch(words)), None)


@cache
def _listed() -> list[tuple[re.Pattern[str], Device]]:
    return [(re.compile(entry["pattern"]), _device(entry)) for entry in entries()]


def _device(entry: dict[str, Any]) -> Device:
    return Device(entry["name"], entry["gb_per_s"], entry["tflops"], entry["source"])


def entries() -> list[dict[str, Any]]:
    """Entries of the data file."""
    found: list[dict[str, Any]] = json.loads((resources.files(__package__) / "devices.json").read_text())
    return found


def device_names(run: Run, devices: Iterable[int]) -> dict[int, str]:
    """Recorded names of these devices.

    If all recorded devices have the same name, it is used for the others too: some profilers list devices
    with other indices than kernels.
    """
    gpus = run.meta.environment.get("gpus") or []
    listed = {int(gpu["index"]): str(gpu["name"]) for gpu in gpus if gpu.get("name")}
    common = next(iter(listed.values())) if len(set(listed.values())) == 1 else None
    found = {device: listed.get(device, common) for device in devices}
    return {device: name for device, name in found.items() if name}


PEAKS = (
    Column("device_name", "", "name of the device as recorded"),
    Column("peaks", "", "dense peaks used, TFLOP/s, by precision, and memory bandwidth"),
)
_COLUMNS = ["mfu", "tflops", C.FLOPS, "window_ns", "matrix_ns", "uncounted_ns"]
_KEYS = [C.RANK, C.DEVICE]
_BEST, _COUNTED, _UNCOUNTED = "best_ns", "counted", "uncounted"


@dataclass(frozen=True)
class Peaks:
    """Peaks of the devices of a run.

    Attributes:
        names: Recorded name of each device.
        known: Peaks of the listed devices.
    """

    names: dict[int, str]
    known: dict[int, Device]

    def tflops(self, device: int, precision: str) -> float:
        """Peak of matrix products, NaN if unknown."""
        found = self.known[device].peak(precision) if device in self.known else None
        return np.nan if found is None else found

    def gb_per_s(self, device: int) -> float:
        """Memory bandwidth, NaN if unknown."""
        return self.known[device].gb_per_s if device in self.known else np.nan

    def of_each(self, devices: Ints, precisions: pd.Series) -> Floats:
        """`tflops` of each row."""
        rows = list(zip(devices.tolist(), precisions, strict=True))
        known = {row: self.tflops(*row) for row in set(rows)}
        return np.array([known[row] for row in rows], np.float64)

    def memory_of_each(self, devices: Ints) -> Floats:
        """`gb_per_s` of each row."""
        return np.array([self.gb_per_s(device) for device in devices.tolist()], np.float64)


def peaks(run: Run, devices: Ints) -> Peaks:
    """Peaks of these devices of a run."""
    names = device_names(run, sorted(set(devices.tolist())))
    listed = {index: known(name) for index, name in names.items()}
    return Peaks(names, {index: device for index, device in listed.items() if device})


def tables(run: Run, kernels: pd.DataFrame, calls: pd.DataFrame, peaks: Peaks) -> dict[str, pd.DataFrame]:
    """Work per device and window, and per step if steps are marked."""
    work = _work(calls, peaks)
    marked = _marked(kernels, calls)
    totals = _windows(run).merge(_summed(work, marked, _KEYS), how="left", on=_KEYS)
    found = {"summary": _with_peaks(_rated(totals, _KEYS), work, peaks)}
    windows = step_windows(run)
    inside = work[work[C.STEP].notna()]
    if len(windows) and len(inside):
        keys = [*_KEYS, C.STEP]
        steps = _summed(inside, marked[marked[C.STEP].notna()], keys)
        steps[C.STEP] = steps[C.STEP].astype(np.int64)
        length = windows.assign(window_ns=windows[END_NS] - windows[C.START_NS])
        timed = steps.merge(length[[C.RANK, C.STEP, "window_ns"]], on=[C.RANK, C.STEP])
        found["per_step"] = _rated(timed, keys)
    return found


def _work(calls: pd.DataFrame, peaks: Peaks) -> pd.DataFrame:
    """Counted calls, with their FLOPs and the time these take at the peak."""
    counted = calls[calls[C.FLOPS] != UNKNOWN]
    flops = counted[C.FLOPS].to_numpy(np.float64)
    peak = peaks.of_each(ints(counted, C.DEVICE), counted[PRECISION])
    columns = counted[[*_KEYS, C.STEP, PRECISION]]
    return columns.assign(**{C.FLOPS: flops, _BEST: flops / (peak * 1_000)})


def _marked(kernels: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
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
    by_device = ends.groupby(_KEYS)
    table = by_device[[C.START_NS]].min().join(by_device[[END_NS]].max()).reset_index()
    table["window_ns"] = table[END_NS] - table[C.START_NS]
    return table


def _summed(work: pd.DataFrame, marked: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
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


def _rated(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Add rates over the window; a device without counted calls has 0 FLOPs."""
    filled = table.fillna({C.FLOPS: 0.0, "matrix_ns": 0, "uncounted_ns": 0})
    window = filled["window_ns"].to_numpy(np.float64)
    usable = np.where(window > 0, window, np.nan)
    most = filled["matrix_ns"] >= filled["uncounted_ns"]
    rated = filled.assign(mfu=(filled[_BEST] / usable).where(most), tflops=filled[C.FLOPS] / (usable * 1_000))
    exact = rated.astype(dict.fromkeys(("window_ns", "matrix_ns", "uncounted_ns"), np.int64))
    return exact.sort_values(list(keys), ignore_index=True)[[*keys, *_COLUMNS]]


def _with_peaks(table: pd.DataFrame, work: pd.DataFrame, peaks: Peaks) -> pd.DataFrame:
    used = work.groupby(_KEYS)[PRECISION].unique().map(sorted).to_dict()
    rows = table[_KEYS].itertuples(index=False, name=None)
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
    known = {precision: peaks.tflops(device, precision) for precision in precisions}
    words = [f"{word} {'unknown' if np.isnan(peak) else f'{peak:g}'}" for word, peak in known.items()]
    return f"{', '.join(words)}; {peaks.gb_per_s(device):g} GB/s"
