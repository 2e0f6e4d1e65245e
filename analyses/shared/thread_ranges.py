"""Host ranges found by name, and which of them covers an instant of a thread."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import C, HostKind

from .common import NO_PARENT, is_kind, spans
from .host_rows import host_rows

THREAD = (C.RANK, C.PID, C.TID)
_NEVER = np.iinfo(np.int64).min


def ranges_by_name(run: Run, pattern: re.Pattern[str], kinds: tuple[HostKind, ...]) -> pd.DataFrame:
    """Host rows of these kinds whose name contains the pattern, matching each distinct name once.

    Args:
        run: The run.
        pattern: Pattern of names.
        kinds: Values of `kind`.

    Returns:
        Row id, kind, name, thread, start, duration, step and depth.
    """
    names = run.arrow("host_intervals", columns=[C.NAME])[C.NAME].unique().to_pylist()
    wanted = [name for name in names if pattern.search(name)]
    where = pc.field(C.NAME).isin(pa.array(wanted, pa.string())) & is_kind(*kinds)
    columns = [C.ROW_ID, C.KIND, C.NAME, *THREAD, C.START_NS, C.DUR_NS, C.STEP, C.DEPTH]
    return run.table("host_intervals", columns=columns, where=where)


def outermost_ranges(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows that no other of them encloses on its thread, sorted by rank, thread and start."""
    lane = rows.groupby([*THREAD]).ngroup()
    table = rows.assign(lane=lane, end=spans(rows)[1])
    keys = ["lane", C.START_NS, "end", C.DEPTH, C.ROW_ID]
    table = table.sort_values(keys, ascending=[True, True, False, True, True], ignore_index=True)
    reach = table.groupby("lane")["end"].cummax().groupby(table["lane"]).shift(fill_value=_NEVER)
    outer = table[C.START_NS].to_numpy() >= reach.to_numpy()
    return table[outer].drop(columns=["lane", "end"]).reset_index(drop=True)


def covering_ranges(ranges: pd.DataFrame, instants: pd.DataFrame) -> Ints:
    """Position of the range that covers each instant on its thread, `NO_PARENT` for none and for null.

    The ranges are disjoint, as `outermost_ranges` returns them; instants have a thread and a start.
    """
    position = np.full(len(instants), NO_PARENT, np.int64)
    has_start = instants[C.START_NS].notna().to_numpy()
    for key, of_thread in ranges.groupby([*THREAD], sort=True):
        same = has_start.copy()
        for column, value in zip(THREAD, key, strict=True):
            same &= (instants[column] == value).fillna(value=False).to_numpy(dtype=bool)
        start, end = spans(of_thread)
        instant = instants.loc[same, C.START_NS].to_numpy(dtype=np.int64)
        place = np.searchsorted(start, instant, side="right") - 1
        inside = (place >= 0) & (instant < end[np.maximum(place, 0)])
        position[same] = np.where(inside, of_thread.index.to_numpy()[np.maximum(place, 0)], NO_PARENT)
    return position


def launch_calls(run: Run, device_rows: pd.DataFrame) -> pd.DataFrame:
    """Thread, start and duration of the launch call of each device row, else of its op.

    Missing if neither is known.
    """
    by_call, by_op = device_rows[C.LAUNCH_ROW], device_rows[C.OP_ROW]
    return host_rows(run, by_call.fillna(by_op), [*THREAD, C.START_NS, C.DUR_NS])
