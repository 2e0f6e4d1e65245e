"""FLOPs and bytes of ops, and how far their rates are from the peaks of the device.

FLOPs are counted on import (`tracekit.ingest.kineto.flops` states the formulas). Bytes are the minimum a call
must move (see `minimum_bytes`). Caches are not modeled: a rate above the memory bandwidth means that a cache
served the reads, or that an input was an expanded tensor, which counts at full size. FLOPs and bytes are
missing if the recorded inputs do not determine them.

* MFU (model FLOPs utilization): recomputation (activation checkpointing, scores in the backward of attention)
  counts, as in hardware FLOPs utilization. The window of a device runs from its first start to its last end;
  that of a step from its start to the later of its ends on the host and the device, so windows of steps that
  overlap on the device share time.
* If any matrix product has unknown FLOPs (uncounted), MFU is a lower bound.

Peaks are dense, from vendors' data sheets (`tracekit/runs/devices.json`, with sources), or given by the user
(`--peaks`). A product of 32-bit floats is compared with the TF32 peak if a kernel name of its call indicates
tensor cores, else with FP32.

Sources: Williams et al., Roofline (2009); Chowdhery et al., PaLM (2022), appendix B for MFU; TorchBench
(Hao et al., 2023), section 3.1 and table 3.

Example:
    >>> tracekit.analyze(run, "roofline").tables["ops"]  # doctest: +SKIP
"""

from __future__ import annotations

import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import Analysis, Result
from tracekit.ingest.kineto import flops as formulas
from tracekit.runs.run import Run
from tracekit.schema import C, HostKind

from ..shared.common import NO_DEVICE, NO_STEPS, UNLINKED, absent_device_note, ints, is_kind, percent, select
from ..shared.host_columns import read_parents
from ..shared.intervals_by_class import find_overruns, note_overruns
from . import calls as calls_of
from . import devices
from .calls import MATRIX, OWNER, PRECISION, SIMT, UNKNOWN
from .devices import Peaks
from .findings import GROUP, RULES, findings
from .tables import (
    FAMILIES,
    HOST,
    KERNELS,
    MIN_BOUND_SHARE,
    OPS,
    TABLES,
    group_calls,
    has_work,
    rate_kernels,
    rate_on_host,
    select_rated,
    sum_families,
)

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
NO_PEAKS = "there are rates, but no utilization or MFU (give peaks with `--peaks`)"
OVER_BANDWIDTH = (
    "the rate exceeds the memory bandwidth, so at least part of the data came from a cache, or was an "
    "expanded input, which counts at its full size; such an op is not memory-bound"
)
OVER_PEAK = (
    "the rate exceeds the peak, so the kernel used faster units than its precision indicates, or did less "
    "work than the formula counts (Winograd, FFT)"
)
UNLINKED_NOTE = f"{UNLINKED}, so the work of kernels is unknown"
MIN_NOTED_SHARE = 0.01
"""Share of the window below which uncounted work is not reported."""


def absent(run: Run) -> tuple[str, ...]:
    """Reason why no work is known."""
    shaped = pc.field(C.INPUT_SHAPES).is_valid() & is_kind(HostKind.OP)
    names = run.table("host_intervals", columns=[C.NAME], where=shaped)[C.NAME]
    if names.empty:
        return (NO_SHAPES,)
    return (NOT_COUNTED,) if names.isin(formulas.COUNTED).any() else (NO_WORK,)


def _notes(run: Run, tables: dict[str, pd.DataFrame], table: pd.DataFrame, peaks: Peaks) -> tuple[str, ...]:
    """Notes on the tables of a run, and on the table with columns that are not shown."""
    notes = [*devices.peaks_notes(run), *_note_devices(table, peaks), *_note_precisions(table, peaks)]
    over = (*_note_excess(table), *note_overruns(run))
    if "summary" not in tables:
        return (*notes, NOT_COUNTED if table[MATRIX].any() else NO_FLOPS, *over)
    notes += _note_coverage(tables["summary"])
    if "per_step" not in tables:
        notes.append("no profiled step launched a counted call" if run.rows("steps") else NO_STEPS)
    return (*notes, *over)


def _note_devices(table: pd.DataFrame, peaks: Peaks) -> list[str]:
    missing = sorted({int(device) for device in table[C.DEVICE].unique()} - set(peaks.known))
    unnamed = [device for device in missing if device not in peaks.names]
    unlisted = sorted({peaks.names[device] for device in missing if device in peaks.names})
    notes = []
    if unlisted:
        listed = ", ".join(repr(name) for name in unlisted)
        notes.append(f"the peaks of {listed} are unknown: {NO_PEAKS}")
    if unnamed:
        notes.append(f"the name of a device was not recorded, so its peaks are unknown: {NO_PEAKS}")
    return notes


def _note_precisions(table: pd.DataFrame, peaks: Peaks) -> list[str]:
    """Note on products of 32-bit floats whose kernel names do not show the units used."""
    has_tf32 = [device for device, device_peaks in peaks.known.items() if "tf32" in device_peaks.tflops]
    plain = table[table[MATRIX].astype(bool) & (table[PRECISION] == "fp32") & table[C.DEVICE].isin(has_tf32)]
    unclear = plain[~plain[SIMT].astype(bool) & plain[C.FLOPS].notna()]
    if unclear.empty:
        return []
    return [
        "the kernel names of some float32 products do not show whether they used TF32: these are compared "
        "with the FP32 peak"
    ]


def _note_excess(table: pd.DataFrame) -> list[str]:
    """Notes on rows faster than their roof, by the exceeded roof."""
    over = table[table["utilization"] > 1 + MIN_NOTED_SHARE]
    by_bytes = over["by_bytes"].fillna(0) >= over["by_flops"].fillna(0)
    return [
        f"{len(rows)} {'row' if len(rows) == 1 else 'rows'} (op, shapes and precision) "
        f"{'is' if len(rows) == 1 else 'are'} above the roof, the highest at "
        f"{percent(rows['utilization'].max())}: {why}"
        for rows, why in ((over[by_bytes], OVER_BANDWIDTH), (over[~by_bytes], OVER_PEAK))
        if len(rows)
    ]


def _note_coverage(summary: pd.DataFrame) -> list[str]:
    share = (summary["uncounted_ns"] / summary["window_ns"].clip(lower=1)).max()
    if not share >= MIN_NOTED_SHARE:
        return []
    return [
        f"matrix kernels with unknown FLOPs ran for up to {percent(share)} of a device's window "
        "(uncounted_ns), so FLOPs and MFU are lower bounds, and MFU is missing if they ran longer than "
        "the counted ones: convolutions need `Concrete Inputs`, which PyTorch 2 records with shapes; kernels "
        "of CUDA graphs and fused kernels have no op with FLOPs"
    ]


def compute(run: Run) -> Result:
    """Compare the work of each op with the peaks of its device."""
    kernels, counted = calls_of.read_kernels(run)
    if kernels.empty or not kernels[OWNER].notna().any():
        return _without_launches(run, any_kernel=not kernels.empty)
    calls, call = calls_of.read_calls(run, kernels, counted)
    if not has_work(calls).any():
        return Result(notes=absent(run))
    peaks = devices.peaks(run, ints(calls, C.DEVICE))
    table, group = group_calls(kernels, calls, call, peaks)
    tables = {
        "families": select(sum_families(kernels, table, group), FAMILIES),
        "ops": select(select_rated(table), OPS),
    }
    if len(rates := rate_kernels(kernels, calls, call, peaks)):
        tables["kernels"] = select(rates, KERNELS)
    if (calls[C.FLOPS] != UNKNOWN).any():
        tables |= devices.build_tables(run, kernels, calls, call, peaks)
    results = findings(run, table, kernels.assign(**{GROUP: group}))
    return Result(tables, devices.with_given(run, results), _notes(run, tables, table, peaks))


def _without_launches(run: Run, *, any_kernel: bool) -> Result:
    """Result for a run without kernels of ops: the ops' work on the host."""
    why = UNLINKED_NOTE if any_kernel else absent_device_note(run)
    if why != NO_DEVICE:
        return Result(notes=(why,))
    host = rate_on_host(calls_of.read_host_calls(run), (run.meta.workload or {}).get("threads"))
    if host.empty:
        return Result(notes=(why, *absent(run)))
    return Result({"host": select(host, HOST)}, notes=(why, HOST_HAS_NO_PEAK))


ANALYSIS = Analysis(
    name="roofline",
    title="Roofline",
    question="How fast do the ops compute and move data, and how far is that from the device's peak?",
    definition=(
        "FLOPs: 2 per multiply-add of matrix products, convolutions and attention. Bytes: each input read "
        "once, the output written once. Device time = length of the union of the kernels. Roof = max(FLOPs / "
        "dense peak of the precision, bytes / bandwidth); utilization = roof over device time; an op is "
        f"bound by the larger one if utilization is at least {MIN_BOUND_SHARE:.0%}, else by neither (too "
        "little work "
        "per call, or an unsuitable kernel). MFU = Σ over precisions (FLOPs / peak) / window; FLOPs as "
        "executed, including recomputation. Peaks are those that vendors' data sheets list for the name and "
        "the number of units of the device, or those given with `--peaks`."
    ),
    tables=TABLES,
    sources=(
        "Williams et al. 2009: Roofline",
        "Chowdhery et al. 2022 (PaLM), appendix B: MFU",
        "TorchBench, section 3.1 and Table 3",
        "torch.utils.flop_counter",
    ),
    order=65,
    shares=(find_overruns, read_parents),
    compute=compute,
    rules=RULES,
    uses_peaks=True,
)
