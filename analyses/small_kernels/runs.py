"""Runs of small kernels: consecutive on a stream, each shorter than its launch call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analysis.kernel_names import matches
from tracekit.runs.range_names import MARKER
from tracekit.runs.run import Run, busy
from tracekit.schema import C, DeviceKind, HostKind

from ..shared.common import (
    NO_PARENT,
    Bools,
    ids_or_absent,
    ints,
    percentile,
    sort_by,
    spans,
    to_categorical,
)
from ..shared.groups import number_by, rows_by_device
from ..shared.host_columns import LazyColumns, read_parents
from ..shared.host_rows import host_rows

MIN_RUN_KERNELS = 5
MAX_GAP_LAUNCHES = 10
LANE = [C.RANK, C.DEVICE, C.STREAM]
OPTIMIZER, ZERO_GRAD, ELEMENTWISE, OTHER = "optimizer", "zero_grad", "element-wise", "other"
NO_NAME = ""
_WITHIN = {OTHER: "AccumulateGrad", OPTIMIZER: r"^Optimizer\.step#", ZERO_GRAD: "(?i)zero_grad"}
"""Names of the rows that enclose a launch by which its kind of work is known; a later one goes before."""
_WORK = (*_WITHIN, ELEMENTWISE)

_LAUNCH = (C.LAUNCH_ROW, C.OP_ROW, C.GRAPH_ID, C.GRID_X, C.GRID_Y, C.GRID_Z)


@dataclass(frozen=True)
class Work:
    """Intervals that occupy the devices, in stream order."""

    # the intervals, with `small`, `idle_ns` (device idle time before its start), `late` (its launch returned
    # after that idle time had begun), `launch_start` and, for small ones, `op`, `range` and `kind_of_work`
    rows: pd.DataFrame
    launch_ns: int  # lower median of the durations of the calls that launched one kernel each


def read_work(run: Run) -> Work | None:
    """Read the work of the devices; None if no kernel launch is known."""
    frame = busy(run, (C.ROW_ID, C.KIND, C.NAME, *LANE, C.START_NS, C.DUR_NS, C.STEP, *_LAUNCH))
    frame[C.STREAM] = frame[C.STREAM].fillna(-1).astype(np.int64)
    frame = _with_idle(frame)
    frame = sort_by(frame, *LANE, C.START_NS, "end", C.ROW_ID)
    kernels = (frame[C.KIND] == DeviceKind.KERNEL).to_numpy()
    shares_launch = frame[C.LAUNCH_ROW].duplicated(keep=False).to_numpy()
    in_graph = frame[C.GRAPH_ID].notna().to_numpy()
    is_single = kernels & ~shares_launch & ~in_graph & frame[C.LAUNCH_ROW].notna().to_numpy()
    if not is_single.any():
        return None
    calls = host_rows(run, frame[C.LAUNCH_ROW].fillna(frame[C.OP_ROW]), [C.START_NS, C.DUR_NS])
    is_timed = is_single & calls[C.DUR_NS].notna().to_numpy()
    costs = calls.loc[is_timed, C.DUR_NS].to_numpy(dtype=np.int64)
    if not len(costs):
        return None
    # a median, since the first launches of a capture load modules and take far longer
    launch_ns = percentile(costs, 50)
    frame["small"] = is_timed & (ints(frame, C.DUR_NS) < launch_ns)
    frame["launch_start"] = calls[C.START_NS].fillna(NO_PARENT).astype(np.int64)
    returned = frame["launch_start"] + calls[C.DUR_NS].fillna(0).astype(np.int64)
    frame["late"] = is_timed & (returned > frame[C.START_NS] - frame["idle_ns"]).to_numpy()
    return Work(_with_context(run, frame), launch_ns)


def _with_idle(frame: pd.DataFrame) -> pd.DataFrame:
    """Assign each idle time of a device to the interval that ends it."""
    (start, end), idle = spans(frame), np.zeros(len(frame), np.int64)
    stream, row_id = ints(frame, C.STREAM), ints(frame, C.ROW_ID)
    for rows in rows_by_device(frame).values():
        ordered = rows[np.lexsort((row_id[rows], stream[rows], start[rows]))]
        reach = np.maximum.accumulate(end[ordered])[:-1]
        idle[ordered[1:]] = np.maximum(start[ordered[1:]] - reach, 0)
    return frame.assign(end=end, idle_ns=idle)


def _with_context(run: Run, frame: pd.DataFrame) -> pd.DataFrame:
    """Add outermost op, range and kind of work of each small kernel's launch."""
    small = frame["small"].to_numpy()
    columns, parents = LazyColumns(run, "host_intervals", (C.KIND, C.NAME, C.START_NS)), read_parents(run)
    kinds, names = columns.coded(C.KIND), columns.coded(C.NAME)
    is_op, is_range = kinds.is_any_of(HostKind.OP), kinds.is_any_of(HostKind.ANNOTATION)
    is_marker, *within = (  # of each distinct name; none is that of a missing one, whose code is -1
        np.append(names.searched.containing(pattern), values=False) for pattern in (MARKER, *_WITHIN.values())
    )
    row = parents.index.of(ids_or_absent(frame[C.LAUNCH_ROW][small]))
    op, annotation = np.full(len(row), NO_PARENT, np.int64), np.full(len(row), NO_PARENT, np.int64)
    flags = np.zeros((len(_WITHIN), len(row)), np.bool_)
    inside = np.flatnonzero(row != NO_PARENT)
    while len(inside):
        around = row[inside]
        name = names.codes[around]
        ops, marks = is_op[around], is_range[around] & ~is_marker[name]
        op[inside[ops]], annotation[inside[marks]] = name[ops], name[marks]
        for flag, kind, contains in zip(flags, _WITHIN, within, strict=True):
            flag[inside] |= contains[name] & (marks | (kind != OPTIMIZER))
        row[inside] = parents.parent[around]
        inside = inside[row[inside] != NO_PARENT]
    plain = matches(frame[C.NAME][small], "(?i)elementwise").to_numpy(bool)
    work = np.where(plain, _WORK.index(ELEMENTWISE), _WORK.index(OTHER))
    for kind, is_within in zip(_WITHIN, flags, strict=True):  # else by the kernel's name
        work[is_within] = _WORK.index(kind)
    described = {"op": (names.texts, op), "range": (names.texts, annotation), "kind_of_work": (_WORK, work)}
    for column, (texts, of_small) in described.items():
        codes = np.full(len(frame), NO_PARENT, np.int64)  # which picks the last text
        codes[small] = of_small
        frame[column] = to_categorical([*texts, NO_NAME], codes)
    return frame


def runs(work: Work, group: str | None) -> pd.DataFrame:
    """Kernels of runs of at least `MIN_RUN_KERNELS`, with the number of their run as `run`.

    A run ends with its step, at an interval that is not a small kernel, at a gap of more than
    `MAX_GAP_LAUNCHES` launches, and when the column `group` changes; kernels without a group are in no run.
    """
    rows = work.rows
    small = rows["small"].to_numpy(copy=True)
    if group is not None:
        small = small & (rows[group] != NO_NAME).to_numpy()
    starts_run: Bools = ~small | ~np.concatenate(([False], small[:-1]))
    lane, _ = number_by(rows, [*LANE, C.STEP] if group is None else [*LANE, C.STEP, group])
    starts_run[1:] |= lane[1:] != lane[:-1]
    start, end = spans(rows)
    starts_run[1:] |= start[1:] - end[:-1] > MAX_GAP_LAUNCHES * work.launch_ns
    number = np.cumsum(starts_run)
    counts = np.bincount(number[small], minlength=int(number[-1]) + 1 if len(number) else 1)
    in_run = small & (counts[number] >= MIN_RUN_KERNELS)
    kernels, number = rows[in_run].reset_index(drop=True), number[in_run]
    first = np.diff(number, prepend=-1) != 0
    gap_ns = np.where(first, 0, ints(kernels, "idle_ns"))
    return kernels.assign(
        run=number,
        first=first,
        gap_ns=gap_ns,
        late_ns=np.where(kernels["late"], gap_ns, 0),
        interval_ns=np.where(first, 0, np.diff(ints(kernels, "launch_start"), prepend=0)),
    )
