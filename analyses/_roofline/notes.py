"""Notes on missing results, with reasons and remedies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tracekit.ingest import flops as formulas
from tracekit.schema import C, HostKind

from .._shared.common import NO_STEPS, UNLINKED
from .._shared.units import percent
from .work import MATRIX, PRECISION, SIMT

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.run import Run

    from .mfu import Peaks

NO_SHAPES = (
    "no input shapes were recorded, so neither FLOPs nor bytes are known: record with "
    "`record_shapes=True` (`--collector torch` does)"
)
NO_WORK = "no op of this capture has FLOPs or bytes that can be computed from its shapes"
NO_FLOPS = (
    "no matrix product, convolution or attention with known FLOPs launched a kernel, so there is no MFU; "
    "kernels of CUDA graphs and fused kernels have no op with FLOPs"
)
NOT_COUNTED = (
    "matrix products were recorded with shapes, but none has FLOPs: their inputs do not determine them, or "
    "the run was imported by a version that did not count FLOPs (import the trace again)"
)
HOST_HAS_NO_PEAK = (
    "the ops ran on the host, whose peak is unknown: there are FLOPs and rates, but no utilization"
)
OVER_BANDWIDTH = (
    "the rate exceeds the memory bandwidth, so at least part of the data came from a cache, or was an "
    "expanded input, which counts at its full size; such an op is not memory-bound"
)
OVER_PEAK = (
    "the rate exceeds the peak, so the kernel used faster units than its precision indicates, or did less "
    "work than the formula counts (Winograd, FFT)"
)
UNLINKED_NOTE = f"{UNLINKED}, so the work of kernels is unknown"
_NOTABLE = 0.01
"""Share of the window below which uncounted work is not reported."""


def absent(run: Run) -> tuple[str, ...]:
    """Reason why no work is known."""
    shaped = pc.field(C.INPUT_SHAPES).is_valid() & (pc.field(C.KIND) == str(HostKind.OP))
    names = run.table("host_intervals", columns=[C.NAME], where=shaped)[C.NAME]
    if names.empty:
        return (NO_SHAPES,)
    return (NOT_COUNTED,) if _multiplies(names) else (NO_WORK,)


def _multiplies(names: pd.Series) -> bool:
    return bool(names.isin(formulas.COUNTED).any())


def of_run(run: Run, tables: dict[str, pd.DataFrame], table: pd.DataFrame, peaks: Peaks) -> tuple[str, ...]:
    """Notes on the tables of a run."""
    found = [*_of_devices(table, peaks), *_of_precisions(table, peaks)]
    over = _of_excess(table)
    if "summary" not in tables:
        return (*found, NOT_COUNTED if table[MATRIX].any() else NO_FLOPS, *over)
    found += _of_coverage(tables["summary"])
    return (*found, *(() if "per_step" in tables else (_no_steps(run),)), *over)


def _no_steps(run: Run) -> str:
    return "no profiled step launched a counted call" if run.rows("steps") else NO_STEPS


def _of_devices(table: pd.DataFrame, peaks: Peaks) -> list[str]:
    missing = sorted({int(device) for device in table[C.DEVICE].unique()} - set(peaks.known))
    unnamed = [device for device in missing if device not in peaks.names]
    unlisted = sorted({peaks.names[device] for device in missing if device in peaks.names})
    notes = []
    if unlisted:
        listed = ", ".join(repr(name) for name in unlisted)
        notes.append(f"the peaks of {listed} are unknown: there are rates, but no utilization or MFU")
    if unnamed:
        notes.append(
            "the name of a device was not recorded, so its peaks are unknown: there are rates, but no "
            "utilization or MFU"
        )
    return notes


def _of_precisions(table: pd.DataFrame, peaks: Peaks) -> list[str]:
    """Note on products of 32-bit floats whose kernel names do not show the units used."""
    has_tf32 = [device for device, known in peaks.known.items() if "tf32" in known.tflops]
    plain = table[table[MATRIX].astype(bool) & (table[PRECISION] == "fp32") & table[C.DEVICE].isin(has_tf32)]
    unclear = plain[~plain[SIMT].astype(bool) & plain[C.FLOPS].notna()]
    if unclear.empty:
        return []
    return [
        "the kernel names of some float32 products do not show whether they used TF32: these are compared "
        "with the FP32 peak"
    ]


def _of_excess(table: pd.DataFrame) -> list[str]:
    """Notes on rows faster than their roof, by the exceeded roof."""
    over = table[table["utilization"] > 1 + _NOTABLE]
    by_bytes = over["by_bytes"].fillna(0) >= over["by_flops"].fillna(0)
    found = (_over(over[by_bytes], OVER_BANDWIDTH), _over(over[~by_bytes], OVER_PEAK))
    return [note for note in found if note]


def _over(rows: pd.DataFrame, why: str) -> str:
    if rows.empty:
        return ""
    some = "1 row (op, shapes and precision) is"
    if len(rows) > 1:
        some = f"{len(rows)} rows (op, shapes and precision) are"
    return f"{some} above the roof, the highest at {percent(rows['utilization'].max())}: {why}"


def _of_coverage(summary: pd.DataFrame) -> list[str]:
    share = (summary["uncounted_ns"] / summary["window_ns"].clip(lower=1)).max()
    if not share >= _NOTABLE:
        return []
    return [
        f"matrix kernels with unknown FLOPs ran for up to {percent(share)} of a device's window "
        "(uncounted_ns), so FLOPs and MFU are lower bounds, and MFU is missing if they ran longer than "
        "the counted ones: convolutions need `Concrete Inputs`, which PyTorch 2 records with shapes; kernels "
        "of CUDA graphs and fused kernels have no op with FLOPs"
    ]
