"""Runs of many small kernels, each shorter than its launch, and the idle time between them.

The launch cost is measured by the host calls that launched one kernel each, without graph replays. A longer
kernel, a copy, a memset or a long gap ends a run, because the host did something other than launch. Gap
leaves out the idle time before the first kernel of each run. An idle time counts only if nothing at all ran
on the device, and once, whichever streams are idle. Only in the late part did the device wait for the launch.

`ranges` groups runs by outermost annotation other than `ProfilerStep`, `ops` by outermost op; a run belongs
to one. `kinds` groups the same kernels by kind of work: kernels of optimizer steps, of zero_grad (see
`zero_grad_gaps`), element-wise kernels (without sums of gradients by AccumulateGrad), others. The tables
count the same kernels in different ways: don't sum their times.

Sources: TorchBench (Hao et al., 2023), 4.1.1; HTA's CUDA kernel launch statistics.

Example:
    >>> tracekit.analyze(run, "small_kernels").tables["kinds"]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Column, Remark, Result, TableSpec
from tracekit.analysis.savings import budget
from tracekit.runs.run import Run, busy
from tracekit.runs.text import human
from tracekit.schema import C, DeviceKind

from ..shared.common import (
    PLACE_COLUMNS,
    UNLINKED,
    absent_device_note,
    ints,
    medians,
    share,
    sort_by,
    spans,
    union_by,
)
from ..shared.groups import group_rows, rows_by_device, sum_by_code
from ..shared.host_columns import read_parents
from .findings import RULES, findings
from .runs import MAX_GAP_LAUNCHES, MIN_RUN_KERNELS, Work, read_work, runs

NO_LAUNCHES = f"{UNLINKED}, so the cost of a launch is unknown: record CPU activity too (`--collector torch`)"
NO_KERNELS = "no kernels outside graphs in this capture, so the cost of a launch is unknown"
NO_RUNS = (
    "no runs of {least} or more small kernels: {small:,} kernels are shorter than a launch ({launch}), "
    "but not consecutive"
)


def compute(run: Run) -> Result:
    """Find the runs of small kernels."""
    work = read_work(run)
    if work is None:
        frame = busy(run, [C.KIND, C.LAUNCH_ROW])
        if frame.empty:
            return Result(notes=(absent_device_note(run),))
        kernels = frame[frame[C.KIND] == DeviceKind.KERNEL]
        return Result(notes=(NO_LAUNCHES if kernels[C.LAUNCH_ROW].isna().any() else NO_KERNELS,))
    by_table = {name: runs(work, group) for name, group in GROUPS.items()}
    all_runs = runs(work, None)
    tables = {"summary": summarize(work, all_runs)}
    tables |= {name: sum_runs(kernels, name) for name, kernels in by_table.items() if len(kernels)}
    notes: tuple[str, ...] = ()
    if len(tables) == 1:
        small = int(work.rows["small"].sum())
        notes = (
            Remark(NO_RUNS.format(least=MIN_RUN_KERNELS, small=small, launch=human(work.launch_ns, "ns"))),
        )
    return Result(tables, findings(run, work, by_table["kinds"], all_runs, budget(run)), notes)


GROUPS = {"ranges": "range", "ops": "op", "kinds": "kind_of_work"}
"""Column of the group of each table of runs."""
_NAME = Column(C.NAME, "", "name of the outermost annotation, or of the outermost op")
_GAP = Column("gap_ns", "ns", "idle time of the device between the kernels of a run")
_LATE = Column("late_ns", "ns", "part of gap in which the next kernel was still being launched")
_MEASURES = (
    Column("kernels", "count", "small kernels in its runs"),
    Column("runs", "count", f"runs of at least {MIN_RUN_KERNELS} of them"),
    Column("kernel_ns", "ns", "length of the union of these kernels"),
    _GAP,
    Column("gap_share", "share", "gap over Σ of the runs' spans"),
    _LATE,
    Column("median_ns", "ns", "lower median of the kernels' durations"),
    Column(
        "interval_ns", "ns", "lower median of the time between starts of successive launch calls of a run"
    ),
    Column("span_ns", "ns", "Σ of the runs' spans, first start to last end"),
    *PLACE_COLUMNS,
    Column("first_row", "", "row of its first kernel in device_intervals"),
)
_SUMMARY = (
    Column("kernels", "count", "kernels on the device"),
    Column("small", "count", "kernels shorter than a launch"),
    Column("small_share", "share", "small over all kernels"),
    Column("launch_ns", "ns", "cost of a launch: lower median of the launching calls' durations"),
    Column(
        "in_runs", "count", f"small kernels in runs of at least {MIN_RUN_KERNELS}, whatever launched them"
    ),
    Column("runs", "count", "such runs"),
    _GAP,
    _LATE,
    *PLACE_COLUMNS,
)
TABLES = (
    TableSpec("summary", "By device", _SUMMARY),
    TableSpec("kinds", "Runs by kind of work", (Column("kind", "", "kind of work"), *_MEASURES)),
    TableSpec("ranges", "Runs by outermost annotation", (_NAME, *_MEASURES)),
    TableSpec("ops", "Runs by outermost op", (_NAME, *_MEASURES)),
)


def sum_runs(kernels: pd.DataFrame, table_name: str) -> pd.DataFrame:
    """Return one row per group and device, largest gap first, of kernels as `runs.runs` returns them."""
    group, label = GROUPS[table_name], "kind" if table_name == "kinds" else C.NAME
    keys = [group, C.RANK, C.DEVICE]
    groups = group_rows(kernels, keys)
    codes, size, (start, end) = groups.codes, len(groups.first), spans(kernels)
    first = kernels["first"].to_numpy(bool)
    first_of_run = np.flatnonzero(first)  # the kernels of a run follow each other in order of their start
    spans_of_runs = np.maximum.reduceat(end, first_of_run) - start[first_of_run]
    span_ns = sum_by_code(codes[first_of_run], size, spans_of_runs)
    gap_ns = groups.sums(ints(kernels, "gap_ns"))
    measures: dict[str, Any] = {
        "kernels": groups.sizes(),
        "runs": groups.sums(first.astype(np.int64)),
        "kernel_ns": union_by(codes, size, start, end),
        "gap_ns": gap_ns,
        "gap_share": share(gap_ns, span_ns),
        "late_ns": groups.sums(ints(kernels, "late_ns")),
        "median_ns": medians(codes, size, end - start),
        "interval_ns": medians(codes[~first], size, ints(kernels, "interval_ns")[~first]),
        "span_ns": span_ns,
        "first_row": ints(kernels, C.ROW_ID)[groups.first],
    }
    table = kernels[keys].iloc[groups.first].reset_index(drop=True).assign(**measures)
    table = table.rename(columns={group: label}).astype({label: str})
    table = sort_by(table, "-gap_ns", label, C.RANK, C.DEVICE)
    return table[[label, *(column.name for column in _MEASURES)]]


def summarize(work: Work, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return one row per device: small kernels, and those in runs whatever launched them."""
    rows = work.rows[work.rows[C.KIND] == DeviceKind.KERNEL]
    small, in_runs = rows["small"].to_numpy(bool), rows_by_device(kernels)
    sums = {name: kernels[name].to_numpy() for name in ("first", "gap_ns", "late_ns")}
    records = []
    for (rank, device), own in rows_by_device(rows).items():
        members = in_runs.get((rank, device), np.zeros(0, np.int64))
        runs, gap_ns, late_ns = (int(values[members].sum()) for values in sums.values())
        shorter = int(small[own].sum())
        counts = (len(own), shorter, shorter / len(own), work.launch_ns, len(members), runs)
        records.append((*counts, gap_ns, late_ns, rank, device))
    return pd.DataFrame(records, columns=[column.name for column in _SUMMARY])


ANALYSIS = Analysis(
    name="small_kernels",
    title="Small kernels",
    question="Where do kernels shorter than their launch follow each other, and how long is the device idle?",
    definition=(
        "small = shorter than the median launch call of the capture; a run = at least "
        f"{MIN_RUN_KERNELS} consecutive small kernels on a stream within a step, without a gap of more than "
        f"{MAX_GAP_LAUNCHES} launches; gap = idle time of the device between the kernels of a run, counted "
        "once; late = the part in which the next kernel was still being launched."
    ),
    tables=TABLES,
    sources=("TorchBench, 4.1.1", "HTA CUDA kernel launch statistics"),
    order=46,
    reads=("device_intervals",),
    shares=(read_parents,),
    compute=compute,
    rules=RULES,
)
