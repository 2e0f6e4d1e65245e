"""How much work each op does, how fast, and how far that is from what the device can do.

FLOPs are those of matrix products, convolutions and attention, counted when the trace is imported
(`tracekit.ingest.flops` states the formulas; a multiplication and an addition are two). Bytes are what a
call must move at least: each input read once, the output written once (op by op in `_roofline.traffic`);
what caches save or waste is not seen, so a rate of bytes above the memory's means that a cache served them
or that an input was an expanded one, which counts at its full size.
Both are missing where the recorded inputs do not tell them.

* A call counts at the innermost op whose FLOPs are known, never twice. It owns the kernels launched in it.
* device = |kernels of the group| on one device. TFLOP/s = FLOPs / device; GB/s = bytes / device (10⁹
  bytes).
* intensity = FLOPs / bytes.
* roof = max(FLOPs / peak of the precision, bytes / memory bandwidth): the time the device would need at
  best. utilization = roof / device. The op is bound by the greater of the two where utilization is at least
  30%, else by neither: too little work at a time, or a kernel that fits it badly.
* MFU, the model FLOPs utilization, = Σ over precisions of (FLOPs / peak) / window. The FLOPs are those that
  ran, so work done again (activation checkpointing, scores in the backward of attention) counts too, as in
  what others call hardware FLOPs utilization. The window of a device runs from its first start to its last
  end; of a step, from its start to the later of its ends on the host and the device, so the windows of steps
  that overlap on the device share time.
* matrix = |kernels of counted calls|; uncounted = |kernels that multiply matrices, by their name or their
  op, and whose FLOPs are not known|: where there are any, MFU is a lower bound; where they run longer than
  the counted ones it is missing.

Peaks are dense, from vendors' data sheets (`data/devices.json`, with sources). A product of 32-bit floats
is held against the TF32 peak when the name of a kernel of its call says that tensor cores ran, else against
FP32.

Sources: Williams et al., Roofline (2009); Chowdhery et al., PaLM (2022), appendix B for MFU; TorchBench
(Hao et al., 2023), section 3.1 and table 3.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "roofline")  # doctest: +SKIP
    >>> result.tables["ops"][["op", "tflops", "gb_per_s", "utilization", "bound"]]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import Analysis, Column, Result, TableSpec
from tracekit.schema import C

from ._roofline import mfu, notes, rules, work
from ._roofline import ops as per_op
from ._shared.common import DEVICE, NO_DEVICE, RANK, STEP, absent_device_note, ints

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.run import Run


def compute(run: Run) -> Result:
    """Hold the work of each op against the peaks of its device."""
    kernels, counted = work.launched(run)
    if kernels.empty or not kernels[work.OWNER].notna().any():
        return _without_launches(run, any_kernel=not kernels.empty)
    calls = work.calls(run, kernels, counted)
    if not per_op.is_told(calls).any():
        return Result(notes=notes.absent(run))
    peaks = mfu.peaks(run, ints(calls, C.DEVICE))
    table, group = per_op.grouped(kernels, calls, peaks)
    tables = {
        "families": _columns("families", per_op.families(kernels, table, group)),
        "ops": _columns("ops", per_op.shown(table)),
    }
    if (calls[C.FLOPS] != work.UNKNOWN).any():
        tables |= mfu.tables(run, kernels, calls, peaks)
    found = rules.findings(run, table, kernels.assign(**{rules.GROUP: group}))
    return Result(tables, found, notes.of_run(run, tables, table, peaks))


def _without_launches(run: Run, *, any_kernel: bool) -> Result:
    """Without kernels of ops, what the host says of its own work."""
    why = notes.UNLINKED_NOTE if any_kernel else absent_device_note(run)
    if why != NO_DEVICE:
        return Result(notes=(why,))
    host = per_op.on_host(work.host_calls(run))
    if host.empty:
        return Result(notes=(why, *notes.absent(run)))
    return Result({"host": _columns("host", host)}, notes=(why, notes.HOST_HAS_NO_PEAK))


def _columns(table: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The columns that are shown, in order."""
    spec = next(spec for spec in ANALYSIS.tables if spec.name == table)
    return frame[[column.name for column in spec.columns]]


_WORK = (
    Column("tflops", "TFLOP/s", "FLOPs over device"),
    Column("gb_per_s", "GB/s", "bytes over device"),
)
_AMOUNTS = (
    Column(C.FLOPS, "FLOP", "Σ of the FLOPs of the calls"),
    Column(C.BYTES, "bytes", "Σ of the bytes the calls must move at least"),
    Column("roof_ns", "ns", "time the device needs at best: by FLOPs or by bytes, whichever is longer"),
)
_UTILIZATION = Column("utilization", "share", "roof over device")
_DEVICE_NS = Column("device_ns", "ns", "at least one kernel of these calls runs")
_SHARE = Column("share", "share", "Σ of durations over that of all kernels of the device")
_SUM = Column("sum_ns", "ns", "Σ of durations of the kernels")
_OP = Column("op", "", "innermost op whose FLOPs are known, else the one that launched the kernels")
_CALLS = Column("calls", "count", "calls that launched a kernel")
_SHAPES = Column(C.INPUT_SHAPES, "", "shapes of the inputs")
_PRECISION = Column("precision", "", "which peak it is held against; the dtype where there is none")
_MFU = (
    Column("mfu", "share", "Σ over precisions of FLOPs over peak, over window; none if uncounted > matrix"),
    Column("tflops", "TFLOP/s", "FLOPs over window"),
    Column(C.FLOPS, "FLOP", "FLOPs of the calls that count"),
    Column("window_ns", "ns", "length of the window"),
    Column("matrix_ns", "ns", "a kernel of a counted call runs"),
    Column("uncounted_ns", "ns", "a kernel multiplies matrices and its FLOPs are not known"),
)

ANALYSIS = Analysis(
    name="roofline",
    title="Roofline",
    question="How fast do the ops compute and move data, and how far is that from the device's peak?",
    definition=(
        "FLOPs: 2 per multiply-add of matrix products, convolutions and attention. Bytes: inputs read once, "
        "output written once. Rates over |kernels of the op|. Roof = max(FLOPs / dense peak of the "
        "precision, bytes / bandwidth); utilization = roof over device time; below 30% an op is bound by "
        "neither. MFU = Σ (FLOPs / peak) / window; FLOPs as executed, recomputation included."
    ),
    tables=(
        TableSpec("summary", "Whole capture, per device", (RANK, DEVICE, *_MFU, *mfu.PEAKS)),
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
                Column("bound", "", "compute, memory or neither: the nearer roof, if that is near enough"),
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
                Column("calls", "count", "calls whose FLOPs count"),
                Column("host_ns", "ns", "Σ of durations of the calls on the host"),
                Column("tflops", "TFLOP/s", "FLOPs over host"),
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
    rules=rules.RULES,
)
