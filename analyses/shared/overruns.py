"""Kernels whose recorded end is wrong: they last beyond whole later kernels of their stream.

ROCm's profiler writes such durations where the time of an end arrives late; the sum of all durations then
exceeds the capture. With programmatic dependent launch kernels of one stream overlap by tens of microseconds,
and nodes of a graph may run at once on one: neither is an error.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.analysis import Remark
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind

from .common import PLACE, ints, is_kind, spans
from .groups import number_by

MAX_OVERLAP_NS = 100_000
"""Overlap with a kernel that it outlasts, of kernels of one stream, from which a duration is wrong."""
_READ = (C.ROW_ID, *PLACE, C.STREAM, C.START_NS, C.DUR_NS, C.GRAPH_ID)


def find_overruns(run: Run) -> Ints:
    """Row ids of these kernels."""
    return run.compute_once(_find)


def _find(run: Run) -> Ints:
    rows = run.table("device_intervals", columns=_READ, where=is_kind(DeviceKind.KERNEL))
    rows = rows[rows[C.GRAPH_ID].isna()]
    stream, _ = number_by(rows, [*PLACE, C.STREAM])
    order = np.lexsort((ints(rows, C.START_NS), stream))
    start, end = (times[order] for times in spans(rows))
    same = np.diff(stream[order]) == 0
    over = same & (end[:-1] >= end[1:]) & (end[:-1] - start[1:] > MAX_OVERLAP_NS)
    found: Ints = ints(rows, C.ROW_ID)[order[:-1][over]]
    return found


def drop_overruns(run: Run, rows: pd.DataFrame) -> pd.DataFrame:
    """Device rows, which have a row id, without these kernels."""
    wrong = find_overruns(run)
    return rows[~np.isin(ints(rows, C.ROW_ID), wrong)] if len(wrong) else rows


def overrun_notes(count: int) -> tuple[Remark, ...]:
    """Note on these kernels, if there are any."""
    if not count:
        return ()
    kernels = "1 kernel runs over" if count == 1 else f"{count:,} kernels run over"
    what = "whole later ones of a stream, so the end is wrong: left out of sums of durations"
    return (Remark(f"{kernels} {what}"),)
