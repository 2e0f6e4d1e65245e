"""Work, traffic and device peaks, for `roofline`.

FLOPs are counted on import (`tracekit.ingest.kineto.flops` states the formulas). Bytes are the minimum a call
must move (by op in `work`). Caches are not modeled: a rate above the memory bandwidth means that a
cache served the reads, or that an input was an expanded tensor, which counts at full size. FLOPs and bytes
are missing if the recorded inputs do not determine them.

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
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "roofline")  # doctest: +SKIP
    >>> result.tables["ops"][["op", "tflops", "gb_per_s", "utilization", "bound"]]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import Analysis, Column, Result, TableSpec
from tracekit.ingest.kineto import flops as formulas
from tracekit.runs.run import Run
from tracekit.schema import C, HostKind

from ..shared.common import (
    DEVICE,
    NO_DEVICE,
    NO_STEPS,
    RANK,
    STEP,
    UNLINKED,
    absent_device_note,
    ints,
    percent,
)
from . import devices, ops, work
from .work import MATRIX, PRECISION, SIMT

if TYPE_CHECKING:
    from .devices import Peaks


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
_NOTABLE = 0.01
"""Share of the window below which uncounted work is not reported."""


def absent(run: Run) -> tuple[str, ...]:
    """Reason why no work is known."""
    shaped = pc.field(C.INPUT_SHAPES).is_valid() & (pc.field(C.KIND) == str(HostKind.OP))
    names = run.table("host_intervals", columns=[C.NAME], where=shaped)[C.NAME]
    if names.empty:
        return (NO_SHAPES,)
    return (NOT_COUNTED,) if names.isin(formulas.COUNTED).any() else (NO_WORK,)


def of_run(run: Run, tables: dict[str, pd.DataFrame], table: pd.DataFrame, peaks: Peaks) -> tuple[str, ...]:
    """Notes on the tables of a run."""
    found = [*devices.given_notes(run), *_of_devices(table, peaks), *_of_precisions(table, peaks)]
    over = _of_excess(table)
    if "summary" not in tables:
        return (*found, NOT_COUNTED if table[MATRIX].any() else NO_FLOPS, *over)
    found += _of_coverage(tables["summary"])
    if "per_step" not in tables:
        found.append("no profiled step launched a counted call" if run.rows("steps") else NO_STEPS)
    return (*found, *over)


def _of_devices(table: pd.DataFrame, peaks: Peaks) -> list[str]:
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
    noun, verb = ("row", "is") if len(rows) == 1 else ("rows", "are")
    some, highest = (
        f"{len(rows)} {noun} (op, shapes and precision) {verb}",
        percent(rows["utilization"].max()),
    )
    return f"{some} above the roof, the highest at {highest}: {why}"


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


def compute(run: Run) -> Result:
    """Compare the work of each op with the peaks of its device."""
    kernels, counted = work.launched(run)
    if kernels.empty or not kernels[work.OWNER].notna().any():
        return _without_launches(run, any_kernel=not kernels.empty)
    calls = work.calls(run, kernels, counted)
    if not ops.has_work(calls).any():
        return Result(notes=absent(run))
    peaks = devices.peaks(run, ints(calls, C.DEVICE))
    table, group = ops.grouped(kernels, calls, peaks)
    tables = {
        "families": _columns("families", ops.families(kernels, table, group)),
        "ops": _columns("ops", ops.shown(table)),
    }
    if (calls[C.FLOPS] != work.UNKNOWN).any():
        tables |= devices.tables(run, kernels, calls, peaks)
    found = ops.findings(run, table, kernels.assign(**{ops.GROUP: group}))
    return Result(tables, devices.with_given(run, found), of_run(run, tables, table, peaks))


def _without_launches(run: Run, *, any_kernel: bool) -> Result:
    """Result for a run without kernels of ops: the ops' work on the host."""
    why = UNLINKED_NOTE if any_kernel else absent_device_note(run)
    if why != NO_DEVICE:
        return Result(notes=(why,))
    host = ops.on_host(work.host_calls(run))
    if host.empty:
        return Result(notes=(why, *absent(run)))
    return Result({"host": _columns("host", host)}, notes=(why, HOST_HAS_NO_PEAK))


def _columns(table: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Select the columns of a table's specification, in order."""
    spec = next(spec for spec in ANALYSIS.tables if spec.name == table)
    return frame[[column.name for column in spec.columns]]


_WORK = (
    Column("tflops", "TFLOP/s", "FLOPs over device time"),
    Column("gb_per_s", "GB/s", "bytes over device time"),
)
_AMOUNTS = (
    Column(C.FLOPS, "FLOP", "Σ of the FLOPs of the calls"),
    Column(C.BYTES, "bytes", "Σ of the minimum bytes the calls must move"),
    Column("roof_ns", "ns", "minimum time at the device's peaks: by FLOPs or by bytes, whichever is longer"),
)
_UTILIZATION = Column("utilization", "share", "roof over device time")
_DEVICE_NS = Column("device_ns", "ns", "time at least one kernel of these calls runs")
_SHARE = Column("share", "share", "Σ of durations over that of all kernels of the device")
_SUM = Column("sum_ns", "ns", "Σ of durations of the kernels")
_OP = Column("op", "", "innermost op with known FLOPs, else the op that launched the kernels")
_CALLS = Column("calls", "count", "calls that launched a kernel")
_SHAPES = Column(C.INPUT_SHAPES, "", "shapes of the inputs")
_PRECISION = Column("precision", "", "peak it is compared with; the dtype if there is none")
_MFU = (
    Column("mfu", "share", "Σ over precisions of FLOPs / peak, over window; none if uncounted > matrix"),
    Column("tflops", "TFLOP/s", "FLOPs over window"),
    Column(C.FLOPS, "FLOP", "FLOPs of counted calls"),
    Column("window_ns", "ns", "length of the window"),
    Column("matrix_ns", "ns", "time a kernel of a counted call runs"),
    Column("uncounted_ns", "ns", "time a kernel multiplies matrices with unknown FLOPs"),
)

ANALYSIS = Analysis(
    name="roofline",
    title="Roofline",
    question="How fast do the ops compute and move data, and how far is that from the device's peak?",
    definition=(
        "FLOPs: 2 per multiply-add of matrix products, convolutions and attention. Bytes: each input read "
        "once, the output written once. Device time = length of the union of the kernels. Roof = max(FLOPs / "
        "dense peak of the precision, bytes / bandwidth); utilization = roof over device time; an op is "
        "bound by the larger one if utilization is at least 30%, else by neither (too little work per call, "
        "or an unsuitable kernel). MFU = Σ over precisions (FLOPs / peak) / window; FLOPs as executed, "
        "including recomputation. Peaks are those that vendors' data sheets list for the name and the number "
        "of units of the device, or those given with `--peaks`."
    ),
    tables=(
        TableSpec("summary", "Whole capture, per device", (RANK, DEVICE, *_MFU, *devices.PEAKS)),
        TableSpec("per_step", "Per profiled step and device", (RANK, DEVICE, STEP, *_MFU)),
        TableSpec(
            "families",
            "By op",
            (_OP, _CALLS, _DEVICE_NS, _SHARE, _UTILIZATION, *_WORK, *_AMOUNTS, _SUM, RANK, DEVICE),
        ),
        TableSpec(
            "ops",
            "By op, shapes and precision",
            (
                _OP,
                _SHAPES,
                _PRECISION,
                _CALLS,
                _DEVICE_NS,
                _UTILIZATION,
                Column("bound", "", "compute, memory or neither (utilization below 30%)"),
                *_WORK,
                Column("intensity", "", "FLOPs per byte"),
                *_AMOUNTS,
                Column("peak_tflops", "TFLOP/s", "dense peak of the precision"),
                Column("peak_gb_per_s", "GB/s", "memory bandwidth"),
                _SUM,
                _SHARE,
                RANK,
                DEVICE,
            ),
        ),
        TableSpec(
            "host",
            "Work of ops on the host (no kernel of an op in this capture)",
            (
                _OP,
                _SHAPES,
                Column("dtype", "", "dtype of the first tensor"),
                Column("calls", "count", "counted calls"),
                Column("host_ns", "ns", "Σ of durations of the calls on the host"),
                Column("tflops", "TFLOP/s", "FLOPs over host time"),
                Column(C.FLOPS, "FLOP", "Σ of the FLOPs of the calls"),
                RANK,
            ),
        ),
    ),
    sources=(
        "Williams et al. 2009: Roofline",
        "Chowdhery et al. 2022 (PaLM), appendix B: MFU",
        "TorchBench, section 3.1 and Table 3",
        "torch.utils.flop_counter",
    ),
    order=65,
    compute=compute,
    rules=ops.RULES,
    uses_peaks=True,
)
