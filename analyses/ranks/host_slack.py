"""When the host launched each communication kernel, and how much earlier it could have.

Without a straggler the other ranks are limited by their own hosts: a collective cannot start before each of
its ranks launched it. A host launches earlier only by the time it waited for the device before. Any runtime
call of at least `MIN_WAIT_CALL_NS` is taken to be such a wait (a launch into a full queue, a copy, an
allocation), and so is every synchronization, on any thread of the process; so the result is an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from tracekit.analysis.kernel_names import matches
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, covered_before
from tracekit.runs.run import Run
from tracekit.schema import C, HostKind

from ..shared.collectives import MatchedCollectives, end_together
from ..shared.common import Bools, ints, is_kind, spans
from ..shared.host_rows import LOADS_CODE, host_rows

MIN_WAIT_CALL_NS = 50_000
LAUNCHED_NS, WAITED_NS, PROFILED_NS = "launched_ns", "host_waited_ns", "profiled_ns"
SLACK_NS = "host_slack_ns"
_UNKNOWN = -1
_KINDS = (HostKind.RUNTIME, HostKind.SYNC, HostKind.OVERHEAD)


def read_launches(run: Run, rank: int, launch_rows: pd.Series) -> pd.DataFrame:
    """Launch times of kernels, and what their process had waited for the device and the profiler until then.

    Returns:
        Launch time (missing if unknown), time in waits and time in profiler overhead before it (else 0), ns.
    """
    calls = host_rows(run, launch_rows, [C.PID, C.START_NS])
    is_known = calls[C.START_NS].notna().to_numpy(bool)
    start = calls[C.START_NS].fillna(0).to_numpy(np.int64)
    process = calls[C.PID].fillna(_UNKNOWN).to_numpy(np.int64)
    before = {name: np.zeros(len(calls), np.int64) for name in (WAITED_NS, PROFILED_NS)}
    columns = [C.KIND, C.NAME, C.PID, C.START_NS, C.DUR_NS]
    host = run.of_ranks(rank).table("host_intervals", columns=columns, where=is_kind(*_KINDS))
    kind = host[C.KIND].astype(str).to_numpy(object)
    overhead = (kind == HostKind.OVERHEAD) & ~matches(host[C.NAME], LOADS_CODE).to_numpy(bool)
    waits = (kind == HostKind.SYNC) | (
        (kind == HostKind.RUNTIME) & (ints(host, C.DUR_NS) >= MIN_WAIT_CALL_NS)
    )
    host_process = host[C.PID].fillna(_UNKNOWN).to_numpy(np.int64)
    for pid in np.unique(process[is_known]):
        of_process = is_known & (process == pid)
        for name, is_interval in ((WAITED_NS, waits), (PROFILED_NS, overhead)):
            union = intervals.union(*spans(host[is_interval & (host_process == pid)]))
            before[name][of_process] = covered_before(union, start[of_process])
    times = pd.array(start, dtype="Int64")
    times[~is_known] = pd.NA
    return pd.DataFrame({LAUNCHED_NS: times, **before}, index=launch_rows.index)


def slack(
    matched: Sequence[MatchedCollectives], spreads: Iterable[Ints], kernels: pd.DataFrame, *, marked: bool
) -> pd.DataFrame:
    """How much earlier each device could have started its last collective, as far as its host allows.

    This is the time from the launch to the arrival of the last rank, and the host's waits for the device
    since the launch of the first collective. With `marked` only collectives in steps count.

    Returns:
        Rank, device and the time, missing if the launch is unknown.
    """
    counted = [
        _arrivals(collectives, end_together(collectives, spread) & ((collectives.step >= 0) | (not marked)))
        for collectives, spread in zip(matched, spreads, strict=True)
    ]
    rows = pd.concat(counted, ignore_index=True)
    times = kernels.set_index(C.ROW_ID)[[LAUNCHED_NS, WAITED_NS]]
    rows = rows.join(times, on=C.ROW_ID).sort_values([C.RANK, C.DEVICE, "arrival"])
    first, last = (getattr(rows.groupby([C.RANK, C.DEVICE], sort=True), name)(1) for name in ("head", "tail"))
    before = np.where(first[LAUNCHED_NS].notna(), ints(first, WAITED_NS), 0)
    earlier = last["arrival"] - last[LAUNCHED_NS] + ints(last, WAITED_NS) - before
    return pd.DataFrame(
        {
            C.RANK: ints(last, C.RANK),
            C.DEVICE: ints(last, C.DEVICE),
            SLACK_NS: pd.array(earlier.clip(lower=0), dtype="Int64"),
        }
    )


def _arrivals(collectives: MatchedCollectives, counted: Bools) -> pd.DataFrame:
    """Place, row and arrival of the last rank, on the clock of each rank, of the counted collectives."""
    dur = collectives.dur[counted]
    arrival = collectives.start[counted] + dur - dur.min(axis=1, keepdims=True)
    ranks, devices = (np.array([place[index] for place in collectives.places], np.int64) for index in (0, 1))
    return pd.DataFrame(
        {
            C.RANK: np.tile(ranks, len(dur)),
            C.DEVICE: np.tile(devices, len(dur)),
            C.ROW_ID: collectives.row_id[counted].ravel(),
            "arrival": arrival.ravel(),
        }
    )
