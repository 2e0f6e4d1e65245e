"""Whether a trace can support findings.

Two kinds of traces are complete files of something other than an execution:

* A sample: only some events were written. Between them lies work that is missing from the file, so idle time,
  overlap and host time are not what they seem. Every runtime call takes the next correlation id, so a sample
  has ids far apart. Kineto leaves out some calls too, but the same ones each time: there two calls that
  follow each other again and again are often equally far apart.
* The capture of a CUDA or HIP graph: its launches are recorded into the graph and not executed.

Example:
    >>> import tracekit
    >>> from tracekit.analysis.trace_quality import obstacle
    >>> obstacle(tracekit.open("latest"))  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from tracekit.analysis.kernel_names import matches, search_each
from tracekit.analysis.model import list_host_names
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from tracekit.runs.intervals import Ints
    from tracekit.runs.run import Run

MIN_DENSITY = 0.02
"""Minimum share of the correlation ids in their range that occur; whole traces have over 5%."""
MIN_CALLS = 100
MIN_REGULAR = 0.2
"""Minimum share of calls that follow another one at the most frequent distance in ids of these two calls.
Whole traces have over 35%, samples 5%."""
CAPTURE_BEGIN_PATTERN = r"(?i)stream_?begin_?capture"
CAPTURE_END_PATTERN = r"(?i)stream_?end_?capture"
"""Calls of a thread between these are captured into a graph and not executed."""
_LAUNCH = r"(?i)launch(?!hostfunc)"


def obstacle(run: Run) -> str:
    """Return why the run's trace supports no findings, empty if it does."""
    return run.compute_once(_find_obstacle)  # every analysis with a finding asks


def _find_obstacle(run: Run) -> str:
    return run.compute_once(describe_sample) or run.compute_once(describe_capture)


_COUNTED_UP = r"^(?:cu|hip)"
"""Calls of CUDA and HIP, whose correlation ids count up; those of other runtimes are composed."""


def describe_sample(run: Run) -> str:
    """Describe the trace as a sample, empty if it is none."""
    columns = [C.RANK, C.CORRELATION_ID, C.NAME]
    calls = run.table("host_intervals", columns=columns, where=pc.field(C.CORRELATION_ID).is_valid())
    calls = calls[matches(calls[C.NAME], _COUNTED_UP)]
    for _, of_rank in calls.groupby(C.RANK, sort=True):
        ids = np.sort(of_rank[C.CORRELATION_ID].to_numpy(dtype=np.int64))  # most are in order already
        count = int((ids[1:] != ids[:-1]).sum()) + 1
        span = int(ids[-1] - ids[0]) + 1
        is_sparse = count >= MIN_CALLS and count < MIN_DENSITY * span
        if is_sparse and _share_at_regular_distance(of_rank) < MIN_REGULAR:
            return (
                f"the trace is a sample: {count:,} runtime calls have correlation ids over a range of "
                f"{span:,}, so most events are missing from the file, and findings are withheld"
            )
    return ""


def _share_at_regular_distance(calls: pd.DataFrame) -> float:
    """Share of calls whose id is as far from that of the call before as most often for their two names."""
    ids = calls[C.CORRELATION_ID].to_numpy(dtype=np.int64)
    order = np.argsort(ids)
    names, steps = calls[C.NAME].array.codes[order].astype(np.int64), np.diff(ids[order])
    pairs = names[:-1] * (int(names.max()) + 1) + names[1:]
    order = np.lexsort((steps, pairs))
    pairs, ordered = pairs[order], steps[order]
    begins = np.flatnonzero(np.append(True, (np.diff(pairs) != 0) | (np.diff(ordered) != 0)))
    counts = np.diff(begins, append=len(pairs))
    most = np.maximum.reduceat(counts, np.flatnonzero(np.diff(pairs[begins], prepend=-1)))
    return float(most[most > 1].sum() / max(len(steps), 1))


def describe_capture(run: Run) -> str:
    """Describe the trace as the capture of a graph, empty if most of its launches were executed."""
    if not search_each(list_host_names(run), CAPTURE_BEGIN_PATTERN).any():
        return ""
    calls = runtime_calls(run)
    launches = matches(calls[C.NAME], _LAUNCH).to_numpy(bool)
    inside = int((calls["captured"] & launches).sum())
    if 2 * inside <= int(launches.sum()) or not inside:
        return ""
    return (
        f"the trace is the capture of a graph: {inside:,} of {int(launches.sum()):,} launches were recorded "
        "into a graph and not executed, so findings are withheld"
    )


def runtime_calls(run: Run) -> pd.DataFrame:
    """Return the runtime calls, each with whether it was captured into a graph."""
    where = pc.field(C.KIND).isin([str(HostKind.RUNTIME), str(HostKind.SYNC)])
    columns, thread = [C.ROW_ID, C.NAME, C.START_NS, C.CORRELATION_ID], [C.RANK, C.PID, C.TID]
    calls = run.table("host_intervals", columns=[*columns, *thread], where=where)
    names = calls[C.NAME]
    turns = matches(names, CAPTURE_BEGIN_PATTERN).astype(np.int64) - matches(names, CAPTURE_END_PATTERN)
    is_captured = np.zeros(len(calls), bool)
    for rows in calls.groupby(thread).indices.values() if turns.any() else ():
        ordered = rows[np.argsort(calls[C.START_NS].to_numpy(np.int64)[rows], kind="stable")]
        is_captured[ordered] = _inside(turns.to_numpy(np.int64)[ordered])
    return calls.assign(captured=is_captured)


def _inside(turns: Ints) -> npt.NDArray[np.bool_]:
    """Whether each position is between a begin (1) and its end (-1); unmatched ones are ignored.

    Example:
        >>> _inside(np.array([-1, 0, 1, 0, -1, 0, 1, 0]))[[1, 3, 5, 7]].tolist()
        [False, True, False, False]
    """
    inside: npt.NDArray[np.bool_] = (_open(turns) > 0) & (_open(-turns[::-1])[::-1] > 0)
    return inside


def _open(turns: Ints) -> Ints:
    """Number of open begins at each position, at least 0."""
    level = np.cumsum(turns)
    return level - np.minimum(np.minimum.accumulate(level), 0)
