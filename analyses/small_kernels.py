"""Runs of kernels that are shorter than their launch, and the idle time between them.

The launch cost is the lower median of the durations of the host calls that launched one kernel each, without
graph replays. A longer kernel, a copy, a memset or a gap of more than 10 launches ends a run, because the
host did something other than launch.

gap leaves out the idle time before the first kernel of each run. An idle time counts only if nothing at all
ran on the device, and once, whichever streams are idle. gap share = gap over Σ of the runs' spans, from first
start to last end. Only in the late part did the device wait for the launch.

`ranges` groups runs by outermost annotation other than `ProfilerStep`, `ops` by outermost op; a run belongs
to one. `kinds` groups the same kernels by kind of work: kernels of optimizer steps, of zero_grad (see
`zero_grad_gaps`), element-wise kernels (without sums of gradients by AccumulateGrad), others. The tables
count the same kernels in different ways: don't sum their times.

Sources: TorchBench (Hao et al., 2023), 4.1.1; HTA's CUDA kernel launch statistics.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "small_kernels")  # doctest: +SKIP
    >>> result.tables["kinds"][["kind", "kernels", "gap_ns"]]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Column, Remark, Result, TableSpec
from tracekit.run import busy
from tracekit.savings import budget
from tracekit.schema import C, DeviceKind

from ._shared.common import DEVICE, RANK, UNLINKED, absent_device_note, ints, share, spans, union_by
from ._shared.ranges import medians
from ._small import rules, runs

if TYPE_CHECKING:
    from tracekit.intervals import Ints
    from tracekit.run import Run

    from ._small.runs import Work

NO_LAUNCHES = f"{UNLINKED}, so the cost of a launch is unknown: record CPU activity too (`--collector torch`)"
NO_KERNELS = "no kernels outside graphs in this capture, so the cost of a launch is unknown"
_GROUPS = {"ranges": "range", "ops": "op", "kinds": "kind_of_work"}


def compute(run: Run) -> Result:
    """Find the runs of small kernels."""
    frame = busy(run, [C.KIND, C.LAUNCH_ROW])
    if frame.empty:
        return Result(notes=(absent_device_note(run),))
    work = runs.read(run)
    if work is None:
        kernels = frame[frame[C.KIND] == DeviceKind.KERNEL]
        unknown = len(kernels) and kernels[C.LAUNCH_ROW].isna().any()
        return Result(notes=(NO_LAUNCHES if unknown else NO_KERNELS,))
    found = {name: runs.runs(work, group) for name, group in _GROUPS.items()}
    tables = {"summary": _summary(work, runs.runs(work, None))}
    for name, group in _GROUPS.items():
        if len(found[name]):
            tables[name] = _table(found[name], group)
    notes = () if len(tables) > 1 else (_none_note(work),)
    return Result(tables, rules.findings(run, work, found["kinds"], budget(run)), notes)


def _none_note(work: Work) -> Remark:
    small = int(work.rows["small"].sum())
    return Remark(
        f"no runs of {runs.FEWEST} or more small kernels: {small:,} kernels are shorter than a launch "
        f"({work.launch_ns:,} ns), but not consecutive"
    )


def _table(found: pd.DataFrame, group: str) -> pd.DataFrame:
    """One row per group and device, largest gap first."""
    keys = [group, C.RANK, C.DEVICE]
    grouped = found.groupby(keys, sort=True, observed=True)
    codes = grouped.ngroup().to_numpy().astype(np.int64)
    table = grouped.agg(
        kernels=(C.ROW_ID, "size"),
        runs=("first", "sum"),
        gap_ns=("gap_ns", "sum"),
        late_ns=("late_ns", "sum"),
    ).reset_index()
    size = len(table)
    start, end = spans(found)
    table["kernel_ns"] = union_by(codes, size, start, end)
    table["span_ns"] = _spans(found, codes, size)
    table["gap_share"] = share(table["gap_ns"], ints(table, "span_ns"))
    table["median_ns"] = medians(codes, size, end - start)
    later = ~found["first"].to_numpy()
    table["interval_ns"] = medians(codes[later], size, ints(found, "interval_ns")[later])
    firsts = np.flatnonzero(~pd.Series(codes).duplicated().to_numpy())
    table["first_row"] = ints(found, C.ROW_ID)[firsts[np.argsort(codes[firsts])]]
    table = table.rename(columns={group: _NAMES[group]})
    table[_NAMES[group]] = table[_NAMES[group]].astype(str)
    order = ["gap_ns", _NAMES[group], C.RANK, C.DEVICE]
    table = table.sort_values(order, ascending=[False, True, True, True], ignore_index=True)
    return table[[_NAMES[group], *(column.name for column in _MEASURES)]]


def _spans(found: pd.DataFrame, codes: Ints, size: int) -> Ints:
    ends = found.assign(code=codes).groupby(["code", "run"], sort=True)
    length = ends["end"].max() - ends[C.START_NS].min()
    total: Ints = length.groupby(level="code").sum().reindex(range(size)).to_numpy(dtype=np.int64)
    return total


def _summary(work: Work, found: pd.DataFrame) -> pd.DataFrame:
    """One row per device: small kernels, and those in runs whatever launched them."""
    keys = [C.RANK, C.DEVICE]
    rows = work.rows[work.rows[C.KIND] == DeviceKind.KERNEL]
    grouped = rows.groupby(keys, sort=True)
    table = grouped.agg(kernels=(C.ROW_ID, "size"), small=("small", "sum")).reset_index()
    inside = found.groupby(keys, sort=True).agg(
        in_runs=(C.ROW_ID, "size"),
        runs=("first", "sum"),
        gap_ns=("gap_ns", "sum"),
        late_ns=("late_ns", "sum"),
    )
    table = table.merge(inside.reset_index(), how="left", on=keys)
    for name in ("in_runs", "runs", "gap_ns", "late_ns"):
        table[name] = table[name].fillna(0).astype(np.int64)
    table["launch_ns"] = work.launch_ns
    table["small_share"] = share(table["small"], ints(table, "kernels"))
    return table[[column.name for column in _SUMMARY]]


_NAMES = {"range": C.NAME, "op": C.NAME, "kind_of_work": "kind"}
_NAME = Column(C.NAME, "", "name of the outermost annotation, or of the outermost op")
_MEASURES = (
    Column("kernels", "count", "small kernels in its runs"),
    Column("runs", "count", "runs of at least 5 of them"),
    Column("kernel_ns", "ns", "length of the union of these kernels"),
    Column("gap_ns", "ns", "idle time of the device between the kernels of a run"),
    Column("gap_share", "share", "gap over Σ of the runs' spans"),
    Column("late_ns", "ns", "part of gap in which the next kernel was still being launched"),
    Column("median_ns", "ns", "lower median of the kernels' durations"),
    Column(
        "interval_ns", "ns", "lower median of the time between starts of successive launch calls of a run"
    ),
    Column("span_ns", "ns", "Σ of the runs' spans, first start to last end"),
    RANK,
    DEVICE,
    Column("first_row", "", "row of its first kernel in device_intervals"),
)
_SUMMARY = (
    Column("kernels", "count", "kernels on the device"),
    Column("small", "count", "kernels shorter than a launch"),
    Column("small_share", "share", "small over all kernels"),
    Column("launch_ns", "ns", "cost of a launch: lower median of the launching calls' durations"),
    Column("in_runs", "count", "small kernels in runs of at least 5, whatever launched them"),
    Column("runs", "count", "such runs"),
    Column("gap_ns", "ns", "idle time of the device between the kernels of a run"),
    Column("late_ns", "ns", "part of gap in which the next kernel was still being launched"),
    RANK,
    DEVICE,
)

ANALYSIS = Analysis(
    name="small_kernels",
    title="Small kernels",
    question="Where do kernels shorter than their launch follow each other, and how long is the device idle?",
    definition=(
        "small = shorter than the median launch call of the capture; a run = at least 5 consecutive small "
        "kernels on a stream within a step; gap = idle time of the device between the kernels of a run, "
        "counted once; late = the part in which the next kernel was still being launched."
    ),
    tables=(
        TableSpec("summary", "By device", _SUMMARY),
        TableSpec("kinds", "Runs by kind of work", (Column("kind", "", "kind of work"), *_MEASURES)),
        TableSpec("ranges", "Runs by outermost annotation", (_NAME, *_MEASURES)),
        TableSpec("ops", "Runs by outermost op", (_NAME, *_MEASURES)),
    ),
    sources=("TorchBench, 4.1.1", "HTA CUDA kernel launch statistics"),
    order=46,
    compute=compute,
    rules=rules.RULES,
)
