"""Work that zero_grad launches on each device, and its ops on the host.

A range is a host interval with zero_grad in its name: the annotation `Optimizer.zero_grad#SGD.zero_grad` of
torch.optim, an annotation or op of the user, or a Python frame of a function named so. Fills are the kernels
and memsets whose launching call is inside the range on its thread. A range that launched nothing has one row.

* mode = `none`: no fills (`set_to_none=True`, or no gradients); `foreach`: at least half of the fills are
  fused ones, that is kernels named multi_tensor or foreach or launched by `aten::_foreach_zero_` itself; else
  `per_parameter`. If no device work of the rank is known, by ops: `aten::zero_` per tensor, or
  `aten::_foreach_zero_`, or neither.
* saving compared with a fused fill: the shortest fill is taken as the fixed cost of a kernel. The rest of
  each fill writes bytes, which a fused kernel writes as well. `set_to_none=True` saves the whole span.

Source: TorchBench (Hao et al., 2023), listing 2.

Example:
    >>> tracekit.analyze(run, "zero_grad_gaps").tables["ranges"]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Bottleneck, Column, Finding, Result, Rule, TableSpec, savings
from tracekit.analysis.kernel_names import TITLE_WIDTH, brief
from tracekit.analysis.savings import MIN_SHARE, Budget
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.runs.step_windows import END_NS, HOST_NS, step_windows
from tracekit.runs.text import human
from tracekit.schema import C, DeviceKind, HostKind

from .copies.read_copies import WORST
from .shared.common import (
    NO_PARENT,
    PLACE,
    RANK,
    UNLINKED,
    Floats,
    absent_device_note,
    contains,
    duration,
    ids_or_absent,
    ints,
    largest_rows,
    max_per_rank,
    medians,
    overlap_by,
    select,
    share,
    spans,
    union_by,
    values_at,
)
from .shared.groups import group_rows
from .shared.host_rows import host_rows, source_lines
from .shared.thread_ranges import covering_ranges, launch_calls, outermost_ranges, ranges_by_name

NAMED = r"(?i)^(?!.*\.py\(\d+\): ).*zero_grad|\.py\(\d+\): \w*zero_grad\w*$"
"""Annotations and ops with zero_grad anywhere, Python frames only if it is the function."""
FUSED = r"(?i)multi_tensor|foreach"
"""Kernels that process many tensors at once: `multi_tensor_apply_kernel` of PyTorch, Apex and DeepSpeed."""
MAX_FIXED_NS = 2_000
"""Maximum fixed cost per fill, which a fused kernel pays once."""

RANGE, FILLS = "range", "fills"
_ZERO = r"^(?:aten::)?zero(?:_|s)$"
_NEW = "zeros"  # suffix of ops that create a tensor of zeros, also with `zero_`, and zero no gradient
_FOREACH = r"_foreach_zero_$|multi_tensor_zero"


def count_zeroed(run: Run, ranges: pd.DataFrame, pattern: str) -> Ints:
    """Number of ops in each range whose name matches, without those that create tensors."""
    ops = outermost_ranges(ranges_by_name(run, pattern, (HostKind.OP,)))
    position = covering_ranges(ranges, ops[~contains(ops[C.NAME], f"{_NEW}$")])
    return np.bincount(position[position != NO_PARENT], minlength=len(ranges))


def _launched_fills(run: Run, frame: pd.DataFrame, ranges: pd.DataFrame) -> pd.DataFrame:
    """Kernels and memsets launched by a range, with its position as `RANGE`."""
    position = covering_ranges(ranges, launch_calls(run, frame))
    fills = frame[C.KIND].isin([str(DeviceKind.KERNEL), str(DeviceKind.MEMSET)]).to_numpy()
    in_range = (position != NO_PARENT) & fills
    rows: pd.DataFrame = frame[in_range].assign(**{RANGE: position[in_range]}).reset_index(drop=True)
    ops = host_rows(run, rows[C.OP_ROW], [C.NAME])[C.NAME].fillna("")
    return rows.assign(fused=contains(rows[C.NAME], FUSED) | contains(ops, _FOREACH))


def per_device(fills: pd.DataFrame, frame: pd.DataFrame) -> dict[str, Ints]:
    """Columns of one row per range and device with launched work; `frame` has all their intervals."""
    groups = group_rows(fills, [RANGE, C.DEVICE])
    codes, size = groups.codes, len(groups.first)
    start, end = spans(fills)
    first, last = -groups.largest(-start), groups.largest(end)
    kernels = (fills[C.KIND] == DeviceKind.KERNEL).to_numpy(bool)
    place = fills[PLACE].take(groups.first)
    device = group_rows(pd.concat([place, frame[PLACE]]), PLACE).codes
    span = last - first
    return {
        RANGE: ints(fills, RANGE)[groups.first],
        C.DEVICE: ints(place, C.DEVICE),
        FILLS: groups.sizes(),
        "kernels": groups.sums(kernels.astype(np.int64)),
        "memsets": groups.sums((~kernels).astype(np.int64)),
        "fused": groups.sums(fills["fused"].to_numpy(np.int64)),
        "kernel_ns": union_by(codes[kernels], size, start[kernels], end[kernels]),
        "memset_ns": union_by(codes[~kernels], size, start[~kernels], end[~kernels]),
        "span_ns": span,
        "idle_ns": span - overlap_by(device[size:], spans(frame), device[:size], (first, last)),
        "median_ns": medians(codes, size, end - start),
        "fixed_ns": np.minimum(-groups.largest(start - end), MAX_FIXED_NS),
    }


def linked_ranks(frame: pd.DataFrame) -> list[int]:
    """Ranks with device work linked to the host."""
    linked = frame[C.LAUNCH_ROW].notna() | frame[C.OP_ROW].notna()
    return sorted(int(rank) for rank in np.unique(ints(frame[linked], C.RANK)))


PER_PARAMETER, FOREACH, NONE = "per_parameter", "foreach", "none"
ONE_BY_ONE = Rule(
    "zero_grad_per_parameter",
    states="ranges in profiled steps launch at least {min_fills} fills, a share of less than "
    "{max_fused_share} of them fused, and the saving compared with a fused fill is at least "
    "{min_saving_share} of the steps' time",
    why="fusing fewer than {min_fills} fills gains almost nothing; two runs of one program differ by up to "
    "{min_saving_share}",
    bound=Bottleneck.LAUNCH,
    thresholds={"min_fills": 4, "max_fused_share": 0.5, "min_saving_share": MIN_SHARE},
)

NO_RANGES = (
    "no zero_grad range in this capture: torch.optim marks them if CPU activity is recorded; mark other code "
    "with `torch.profiler.record_function('zero_grad')`"
)
HOST_ONLY = "so modes are derived from host ops, and launched work is unknown"


def compute(run: Run) -> Result:
    """Measure every zero_grad range."""
    ranges = outermost_ranges(ranges_by_name(run, NAMED, (HostKind.ANNOTATION, HostKind.OP, HostKind.PYTHON)))
    ranges = ranges.sort_values([C.RANK, C.START_NS, C.ROW_ID], ignore_index=True)
    if ranges.empty:
        return Result(notes=(NO_RANGES,))
    links = [C.LAUNCH_ROW, C.OP_ROW]
    frame = busy(run, [C.ROW_ID, C.KIND, C.NAME, C.RANK, C.DEVICE, C.START_NS, C.DUR_NS, *links])
    fills = _launched_fills(run, frame, ranges)
    table = _range_table(run, ranges, frame, fills)
    budget = savings.budget(run)
    tables = {"summary": _summary(table, budget), "ranges": select(table, _RANGES)}
    return Result(tables, _findings(run, table, fills, budget), _notes(run, frame))


def _notes(run: Run, frame: pd.DataFrame) -> tuple[str, ...]:
    if frame.empty:
        return (f"{absent_device_note(run)}; {HOST_ONLY}",)
    missing = sorted(set(np.unique(ints(frame, C.RANK)).tolist()) - set(linked_ranks(frame)))
    return (f"{UNLINKED} on rank {', '.join(map(str, missing))}, {HOST_ONLY}",) if missing else ()


def _range_table(run: Run, ranges: pd.DataFrame, frame: pd.DataFrame, fills: pd.DataFrame) -> pd.DataFrame:
    """One row per range and device, in the order of the ranges."""
    on_device = per_device(fills, frame)
    devices = np.bincount(on_device[RANGE], minlength=len(ranges))
    position = np.repeat(np.arange(len(ranges)), np.maximum(devices, 1))
    is_on_device = devices[position] > 0
    row = np.where(is_on_device, np.cumsum(is_on_device) - 1, NO_PARENT)
    table = ranges.take(position).reset_index(drop=True)
    # Where launches are linked, a range without fills launched nothing; elsewhere it is unknown what it did.
    is_unknown = ~is_on_device & ~table[C.RANK].isin(linked_ranks(frame)).to_numpy(bool)
    launched = {name: values_at(values, row, 0) for name, values in on_device.items()}
    singly, listed = (count_zeroed(run, ranges, pattern)[position] for pattern in (_ZERO, _FOREACH))
    by_op = np.where(listed > 0, FOREACH, np.where(singly > 0, PER_PARAMETER, NONE))
    is_fused = launched["fused"] >= ONE_BY_ONE["max_fused_share"] * launched[FILLS]
    by_fill = np.where(launched[FILLS] == 0, NONE, np.where(is_fused, FOREACH, PER_PARAMETER))
    mode = np.where(is_unknown, by_op, by_fill).astype(object)
    # What a fused fill would save where fills are not fused.
    saving = launched["idle_ns"] + launched["fixed_ns"] * np.maximum(launched[FILLS] - 1, 0)
    launched["saving_ns"] = np.where(mode == PER_PARAMETER, saving, 0)
    of_device = (C.DEVICE, "median_ns", "fixed_ns")  # missing too where nothing was launched
    columns: dict[str, Any] = {
        name: pd.arrays.IntegerArray(values, ~is_on_device if name in of_device else is_unknown)
        for name, values in launched.items()
    }
    parameters = pd.arrays.IntegerArray(singly, listed > 0)
    columns |= {RANGE: position, "mode": mode, "parameters": parameters}
    table = table.rename(columns={C.ROW_ID: "host_row"}).assign(**columns)
    return table.assign(**_shares(run, table, np.where(is_unknown, np.nan, launched["span_ns"])))


def _shares(run: Run, table: pd.DataFrame, span_ns: Floats) -> dict[str, Floats]:
    """Shares of the ranges in their steps, on the device and on the host."""
    windows = step_windows(run)
    steps = zip(ints(windows, C.RANK).tolist(), ints(windows, C.STEP).tolist(), strict=True)
    places = {step: place for place, step in enumerate(steps)}
    of_ranges = zip(ints(table, C.RANK).tolist(), ids_or_absent(table[C.STEP]).tolist(), strict=True)
    place = np.array([places.get(step, NO_PARENT) for step in of_ranges], np.int64)
    window = values_at(ints(windows, END_NS) - ints(windows, C.START_NS), place, 0)
    on_host = values_at(ints(windows, HOST_NS), place, 0)
    return {"share": share(span_ns, window), "host_share": share(table[C.DUR_NS], on_host)}


def _summary(table: pd.DataFrame, budget: Budget) -> pd.DataFrame:
    """One row per rank, device, name and mode."""
    keys = [C.RANK, "mode", C.NAME, C.DEVICE]
    named = table[keys].assign(**{C.NAME: table[C.NAME].astype(object)})
    groups = group_rows(named, keys)
    unknown = table["span_ns"].isna().to_numpy()[groups.first]  # all ranges of a group, or none
    measures = ("kernels", "kernel_ns", "memsets", "memset_ns", "idle_ns", "span_ns", "saving_ns")
    sums = {name: groups.sums(table[name].to_numpy(np.int64, na_value=0)) for name in measures}
    total = float(budget.steps * budget.step_ns) or float("nan")
    columns: dict[str, Any] = {
        **{name: pd.arrays.IntegerArray(values, unknown) for name, values in sums.items()},
        "ranges": groups.sizes(),
        C.DUR_NS: groups.sums(ints(table, C.DUR_NS)),
        "share": np.where(unknown, np.nan, sums["span_ns"] / total),
    }
    return select(named.take(groups.first).reset_index(drop=True).assign(**columns), _SUMMARY)


def _findings(run: Run, table: pd.DataFrame, fills: pd.DataFrame, budget: Budget) -> tuple[Finding, ...]:
    enough = table[FILLS].to_numpy(np.int64, na_value=0) >= ONE_BY_ONE["min_fills"]
    chosen = (table["mode"] == PER_PARAMETER).to_numpy(bool) & enough
    if budget.marked:
        chosen = chosen & table[C.STEP].notna().to_numpy(bool)
    counted = table[chosen]
    findings = (
        _finding(run, str(name), rows, fills[fills[RANGE].isin(rows[RANGE])], budget)
        for name, rows in counted.groupby(counted[C.NAME].astype(object), sort=True)
        if budget.matters(max_per_rank(rows, rows["saving_ns"]), least=ONE_BY_ONE["min_saving_share"])
    )
    return tuple(sorted(findings, key=lambda finding: -(finding.saving_ns_per_step or 0)))


def _finding(run: Run, name: str, rows: pd.DataFrame, fills: pd.DataFrame, budget: Budget) -> Finding:
    saving, idle, span = (max_per_rank(rows, rows[name]) for name in ("saving_ns", "idle_ns", "span_ns"))
    lines = [line for line in source_lines(run, rows["host_row"]) if line]
    where, name = f" at {brief(lines[0])}" if lines else "", brief(name)
    return budget.finding(
        ONE_BY_ONE,
        saving,
        f"{brief(name.rpartition('#')[2], TITLE_WIDTH)} zeroes each gradient: "
        f"{int(rows['fills'].median()):,} fills per call, {human(budget.per_step(idle), 'ns')} idle "
        f"between them {budget.per}",
        f"Drop the gradients in {name}{where}: `zero_grad(set_to_none=True)`, the default since PyTorch "
        "2.0, launches nothing; if they must be kept, `torch._foreach_zero_` on the list of gradients "
        "fills them with few kernels",
        f"measured idle time between the fills + (fills − 1) × the shortest fill, at most "
        f"{human(MAX_FIXED_NS, 'ns')} each, {budget.per}, {WORST}; the idle time includes profiler "
        f"overhead; `set_to_none=True` saves up to {human(budget.per_step(span), 'ns')}",
        evidence={
            "host_intervals": largest_rows(rows.rename(columns={"host_row": C.ROW_ID}), "saving_ns"),
            "device_intervals": largest_rows(fills, C.DUR_NS),
        },
    )


_MODE = Column("mode", "", "per_parameter, foreach or none: see the definition")
_NAME = Column(C.NAME, "", "name of the range")
_DEVICE = Column(C.DEVICE, "", "device it launched on; missing if it launched nothing")
_KERNELS = Column("kernels", "count", "kernels launched inside")
_KERNEL_NS = Column("kernel_ns", "ns", "length of the union of these kernels")
_IDLE = Column("idle_ns", "ns", "part of the span in which nothing ran on the device")
_MEMSETS = Column("memsets", "count", "memsets launched inside")
_MEMSET_NS = Column("memset_ns", "ns", "length of the union of these memsets")
_SPAN = Column("span_ns", "ns", "first start to last end of its kernels and memsets on the device")
_SAVING = Column("saving_ns", "ns", "idle + (fills − 1) × fixed cost of a fill; 0 unless per_parameter")

_RANGES = (
    Column(C.STEP, "", "number of the profiled step; missing outside steps"),
    _MODE,
    _KERNELS,
    _KERNEL_NS,
    _IDLE,
    Column(C.DUR_NS, "ns", "duration of the range on the host"),
    _SAVING,
    RANK,
    _DEVICE,
    _NAME,
    Column("share", "share", "span over the window of the step"),
    Column("host_share", "share", "duration on the host over that of the step on the host"),
    _MEMSETS,
    _MEMSET_NS,
    Column("median_ns", "ns", "lower median of the durations of its kernels and memsets"),
    Column("parameters", "count", "calls of aten::zero_; missing if lists of tensors were zeroed"),
    _SPAN,
    Column("host_row", "", "row of the range in host_intervals"),
)
_SUMMARY = (
    _MODE,
    Column("ranges", "count", "ranges, counted on each device"),
    _KERNELS,
    _KERNEL_NS,
    _IDLE,
    Column(C.DUR_NS, "ns", "Σ of the ranges' durations on the host"),
    _SAVING,
    RANK,
    _DEVICE,
    _NAME,
    Column("share", "share", "Σ of spans over the time of all steps, or of the capture without marked steps"),
    _MEMSETS,
    _MEMSET_NS,
    _SPAN,
)

ANALYSIS = Analysis(
    name="zero_grad_gaps",
    title="Zeroing of gradients",
    question="What does zero_grad launch, and is the device idle between its fills?",
    definition=(
        "Ranges are the outermost host intervals with zero_grad in their name; fills = kernels and memsets "
        "launched inside; mode = none (no fills), foreach (at least half of the fills are fused) or "
        "per_parameter; idle = the time between their first start and last end in which nothing ran on the "
        "device; saving = idle + (fills − 1) × min(shortest fill, "
        f"{duration(MAX_FIXED_NS)}), only for per_parameter. One row per "
        "range and device."
    ),
    tables=(
        TableSpec("summary", "By name and mode", _SUMMARY),
        TableSpec("ranges", "Each zero_grad range", _RANGES),
    ),
    sources=("TorchBench, listing 2",),
    order=45,
    compute=compute,
    rules=(ONE_BY_ONE,),
)
