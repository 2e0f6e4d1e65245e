"""State of the driving thread in each profiled step: on a core, waiting for one, or blocked; its iterations.

The agent reads the thread's times at the begin of each step; those of a step are differences of readings.
"""

from __future__ import annotations

from math import ceil

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis.host_verdict import LIBRARY, HostPart
from tracekit.runs.conditions import SCHEDULER, STEP_THREAD_RAN, STEP_THREAD_WAITED
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.runs.step_windows import HOST_NS, HOST_START_NS, step_windows
from tracekit.schema import C

from ..shared.common import contains, ints
from ..shared.host_columns import HostColumns

STEP_NS, ON_CORE_NS, RUN_DELAY_NS, BLOCKED_NS = "step_ns", "on_core_ns", "run_delay_ns", "blocked_ns"
MIN_STEPS = 3
"""Minimum number of steps of which one can be left out."""


def read_states(run: Run, rank: int, steps: pd.DataFrame) -> pd.DataFrame:
    """Return the time of each step in each state, which sum to the step; empty if they were not recorded."""
    where = (pc.field(C.SOURCE) == SCHEDULER) & (pc.field(C.RANK) == rank)
    rows = run.table("counters", columns=[C.T_NS, C.METRIC, C.VALUE], where=where)
    metrics = rows[C.METRIC].astype(str)
    ran, waited = (rows[metrics == metric] for metric in (STEP_THREAD_RAN, STEP_THREAD_WAITED))
    times = ints(ran, C.T_NS)
    start = ints(steps, HOST_START_NS)
    first, last = (np.searchsorted(times, edge) for edge in (start, start + ints(steps, HOST_NS)))
    last = np.minimum(last, len(times) - 1)  # the last reading is just before the end of the last step
    known = first < last
    first, last = first[known], last[known]
    step_ns = ints(steps, HOST_NS)[known]
    ran_ns, waited_ns = (_difference(values, first, last) for values in (ran, waited))
    # a reading is a little after the begin of its step, mostly by a wait for a core
    blocked = np.clip(times[last] - times[first] - ran_ns - waited_ns, 0, step_ns)
    on_core = np.minimum(ran_ns, step_ns - blocked)
    return pd.DataFrame(
        {
            C.STEP: steps[C.STEP].to_numpy()[known],
            STEP_NS: step_ns,
            ON_CORE_NS: on_core,
            RUN_DELAY_NS: step_ns - on_core - blocked,
            BLOCKED_NS: blocked,
        }
    )


def _difference(readings: pd.DataFrame, first: Ints, last: Ints) -> Ints:
    values = readings[C.VALUE].to_numpy(np.float64).astype(np.int64)
    return values[last] - values[first]


def find_delays(
    host: HostColumns, windows: pd.DataFrame, drivers: dict[int, int], states: dict[int, pd.DataFrame]
) -> Ints:
    """For how long the driving thread waited for a core in the step that each of its rows begins in, ns."""
    delays = np.zeros(len(host.start), np.int64)
    for rank, thread in drivers.items():
        rows, steps = host.rows_of_thread[thread], windows[windows[C.RANK] == rank]
        of_step = states[rank].set_index(C.STEP)[RUN_DELAY_NS].reindex(steps[C.STEP], fill_value=0)
        in_order = np.append(of_step.to_numpy(np.int64), 0)  # -1: before the first step
        delays[rows] = in_order[np.searchsorted(ints(steps, HOST_START_NS), host.start[rows], "right") - 1]
    return delays


def find_blocked(tables: dict[str, pd.DataFrame], times: dict[HostPart, int]) -> tuple[int, int]:
    """Return for how long the driving threads are blocked outside of ops at least, and wait for a core.

    In other parts they may be blocked for all of the time. Both are 0 if they were not recorded.
    """
    states = tables.get("thread_states")
    if states is None or len(states) != len(tables["per_step"]):
        return 0, 0
    blocked_ns, delay_ns = (int(ints(states, name).sum()) for name in (BLOCKED_NS, RUN_DELAY_NS))
    return max(0, blocked_ns - sum(times.values()) + times[HostPart.OUTSIDE]), delay_ns


def sum_part(whole: pd.DataFrame, part: HostPart) -> int:
    """Time of a part in the table `whole`."""
    return int(ints(whole, "time_ns")[whole["part"] == part].sum())


def bound_waits(tables: dict[str, pd.DataFrame]) -> int:
    """Return for how long the driving threads may be blocked while they load data, at most.

    It is all of loading without steps, and in those of unknown states.
    """
    if "per_step" not in tables:
        return sum_part(tables["whole"], HostPart.LOADING)
    steps = tables["per_step"].set_index([C.RANK, C.STEP])
    loading, states = steps[f"{HostPart.LOADING}_ns"], tables.get("thread_states")
    if states is None:
        return int(loading.sum())
    blocked = states.set_index([C.RANK, C.STEP])[BLOCKED_NS].reindex(loading.index)
    return int(np.minimum(loading, blocked.fillna(loading)).sum())


def find_recurring_share(tables: dict[str, pd.DataFrame], part: HostPart) -> float:
    """Return the share of a part in all steps but the one with most of it; in all of fewer than three.

    The begin of an epoch, or a machine that halts, is in one of few steps, and need not be in others.
    """
    if "per_step" not in tables or len(tables["per_step"]) < MIN_STEPS:
        return sum_part(tables["whole"], part) / int(ints(tables["whole"], "time_ns").sum())
    times, lengths = (ints(tables["per_step"], name) for name in (f"{part}_ns", STEP_NS))
    others = np.arange(len(times)) != times.argmax()
    return int(times[others].sum()) / max(int(lengths[others].sum()), 1)


def select_rare(functions: pd.DataFrame, min_samples: float, steps: int, period: int) -> pd.DataFrame:
    """Return the functions of the program that run in some unprofiled steps, and in fewer profiled ones.

    The times of steps recur after `period` of them; it is 0 if they do not.
    """
    is_known = functions["samples"].max() >= min_samples  # what profiled steps usually do
    is_own = ~contains(functions[C.NAME], LIBRARY) & (functions["unprofiled_samples"] >= min_samples)
    is_rare = is_known & (2 * functions["share"].fillna(0) < functions["unprofiled_share"])
    if period:
        at_most = ceil(steps / period)
        is_rare |= (functions["sampled_steps"] <= at_most) & (at_most < steps)
    chosen: pd.DataFrame = functions[is_own & is_rare]
    return chosen


def count_iterations(run: Run, host: HostColumns) -> Ints:
    """Number of optimizer steps in each profiled step; those after the same backward pass count once."""
    updates = host.name_matches(r"^Optimizer\.step#") & ~host.in_backward  # some optimizers step in backward
    counts = [np.zeros(0, np.int64)]
    for rank, windows in step_windows(run).groupby(C.RANK):
        of_rank = host.rank == rank
        began, ended = np.sort(host.start[of_rank & host.in_backward]), np.sort(host.end[of_rank & updates])
        ended = ended[np.diff(np.searchsorted(began, ended), prepend=0) > 0]
        start = ints(windows, HOST_START_NS)
        until = np.searchsorted(ended, start + ints(windows, HOST_NS), side="right")
        counts.append(until - np.searchsorted(ended, start))
    return np.concatenate(counts)
