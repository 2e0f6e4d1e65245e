"""Host ranges found by name, and which of them covers an instant of a thread."""

from __future__ import annotations

from itertools import compress

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import C, HostKind

from .common import NO_PARENT, ids_or_absent, ints, spans
from .groups import max_so_far, search_by
from .host_columns import read_host_names
from .host_rows import host_rows

THREAD = (C.RANK, C.PID, C.TID)


def ranges_by_name(run: Run, pattern: str, kinds: tuple[HostKind, ...]) -> pd.DataFrame:
    """Host rows of these kinds whose name contains the pattern, matching each distinct name once.

    Returns:
        Row id, kind, name, thread, start, duration, step and depth.
    """
    names = read_host_names(run)
    wanted = [*compress(names.texts, names.containing(pattern))]
    columns = [C.ROW_ID, C.KIND, C.NAME, *THREAD, C.START_NS, C.DUR_NS, C.STEP, C.DEPTH]
    named = run.table(
        "host_intervals", columns=columns, where=pc.field(C.NAME).isin(pa.array(wanted, pa.string()))
    )
    # a condition on the names alone is evaluated once per distinct name
    return named[named[C.KIND].isin([str(kind) for kind in kinds])].reset_index(drop=True)


def outermost_ranges(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows that no other of them encloses on its thread, sorted by rank, thread and start."""
    thread = _thread_numbers(rows)
    start, end = spans(rows)
    order = np.lexsort((ints(rows, C.ROW_ID), ints(rows, C.DEPTH), -end, start, thread))
    thread, start, end = thread[order], start[order], end[order]
    reach = max_so_far(thread, end)
    outer = np.ones(len(order), np.bool_)
    outer[1:] = (thread[1:] != thread[:-1]) | (start[1:] >= reach[:-1])
    return rows.take(order[outer]).reset_index(drop=True)


def _thread_numbers(rows: pd.DataFrame) -> Ints:
    """Number of each row's thread, by rank, process and thread."""
    numbers = np.zeros(len(rows), np.int64)
    for column in THREAD:
        codes, distinct = pd.factorize(ints(rows, column), sort=True)
        numbers = numbers * len(distinct) + codes
    return numbers


def covering_ranges(ranges: pd.DataFrame, instants: pd.DataFrame) -> Ints:
    """Position of the range that covers each instant on its thread, `NO_PARENT` for none and for null.

    The ranges are disjoint, as `outermost_ranges` returns them; instants have a thread and a start.
    """
    position = np.full(len(instants), NO_PARENT, np.int64)
    timed = np.flatnonzero(instants[C.START_NS].notna().to_numpy(bool))
    if not len(ranges) or not len(timed):
        return position
    instant = ids_or_absent(instants[C.START_NS])[timed]
    keys = {
        name: np.concatenate((ints(ranges, name), ids_or_absent(instants[name])[timed])) for name in THREAD
    }
    thread, (start, end) = _thread_numbers(pd.DataFrame(keys)), spans(ranges)
    order = np.lexsort((start, thread[: len(ranges)]))
    place = search_by(thread[order], start[order], thread[len(ranges) :], instant)
    row = order[place]
    position[timed] = np.where((place >= 0) & (instant < end[row]), row, NO_PARENT)
    return position


def launch_calls(run: Run, device_rows: pd.DataFrame) -> pd.DataFrame:
    """Thread, start and duration of the launch call of each device row, else of its op.

    Missing if neither is known.
    """
    by_call, by_op = device_rows[C.LAUNCH_ROW], device_rows[C.OP_ROW]
    return host_rows(run, by_call.fillna(by_op), [*THREAD, C.START_NS, C.DUR_NS])
