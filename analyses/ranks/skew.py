"""Times of each rank, and the last rank to arrive in each collective."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analysis.kernel_names import family
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, Union, covered_before, overlap_lengths
from tracekit.runs.run import Run, busy
from tracekit.runs.step_windows import END_NS
from tracekit.schema import C, DeviceKind

from ..shared.collectives import (
    READ,
    MatchedCollectives,
    describe_collectives,
    end_spreads,
    end_together,
    last_arrivals,
)
from ..shared.common import ints, map_categories, spans
from ..shared.groups import group_rows, keys_of
from ..shared.intervals_by_class import (
    IntervalsByClass,
    intervals_by_class,
    is_communication,
    measured_window,
)
from .host_slack import PROFILED_NS, read_launches


def skew(matched: list[MatchedCollectives]) -> pd.DataFrame:
    """Every matched collective, in the order of the first rank."""
    spreads = end_spreads(matched)
    tables = [_skew_of(collectives, spread) for collectives, spread in zip(matched, spreads, strict=True)]
    order = ["first_start_ns", "family", "number"]
    return pd.concat(tables).sort_values(order, ignore_index=True).drop(columns="first_start_ns")


def _skew_of(collectives: MatchedCollectives, spread: Ints) -> pd.DataFrame:
    ordered = np.sort(collectives.dur, axis=1)
    last = last_arrivals(collectives.dur)
    ranks = np.array([rank for rank, _ in collectives.places], np.int64)
    return pd.DataFrame(
        {
            "collective": collectives.names[0],
            "number": np.arange(len(collectives.dur)),
            C.STEP: pd.array(np.where(collectives.step < 0, 0, collectives.step), dtype="Int64"),
            "last_rank": pd.array(ranks[last], dtype="Int64"),
            "wait_ns": (collectives.dur - ordered[:, :1]).sum(axis=1),
            "shortest_ns": ordered[:, 0],
            "next_ns": ordered[:, 1],
            "longest_ns": ordered[:, -1],
            "ranks": len(collectives.places),
            "end_spread_ns": spread,
            "aligned": end_together(collectives, spread),
            "family": collectives.names[1],
            "first_start_ns": collectives.start[:, 0],
        }
    ).assign(
        **{
            C.STEP: lambda table: table[C.STEP].mask(collectives.step < 0),
            "last_rank": lambda table: table["last_rank"].mask(last < 0),
        }
    )


def waits(matched: list[MatchedCollectives], kernels: pd.DataFrame, *, marked: bool) -> pd.DataFrame:
    """One row per device of each aligned collective: wait, lateness, whether it was last, and why.

    The saving is without the idle time in which the profiler held the host of the last rank longer than those
    of the others. With `marked` only collectives in steps count.
    """
    spreads = end_spreads(matched)
    tables = [
        _waits_of(collectives, spread, marked=marked)
        for collectives, spread in zip(matched, spreads, strict=True)
    ]
    rows = pd.concat(tables, ignore_index=True)
    excess = _excess(matched, spreads, kernels).reindex(ints(rows, C.ROW_ID), fill_value=0)
    for name in EXCESS:
        rows[name] = np.where(rows["last"], ints(excess, name), 0)
    profiled = np.minimum(ints(excess, PROFILED_NS), ints(rows, "excess_idle_ns"))
    return rows.assign(gain_ns=ints(rows, "gain_ns") - np.clip(profiled, 0, ints(rows, "gain_ns")))


WAITING_ROW = "waiting_row"
"""Row of the kernel that waited longest in the same collective."""
EXCESS = ("excess_computation_ns", "excess_idle_ns", "excess_other_ns")
_PARTS = ("computation", "kernels", "occupied")
"""Unions of `Lanes` whose time before the start and the end of each communication kernel is kept."""


def _excess(matched: list[MatchedCollectives], spreads: list[Ints], kernels: pd.DataFrame) -> pd.DataFrame:
    """What each device did longer than the mean of the others since the collective before, by row id.

    Also by how much the overhead of the profiler in its process, between the launches of both, is longer.

    All devices end a collective together, so the times from there to their arrivals at the next one differ by
    what some of them did longer, on whatever clock. Collectives whose devices had not all ended one before
    are left out.
    """
    before = kernels.set_index(C.ROW_ID)[
        [PROFILED_NS, *(_column(name, edge) for name in _PARTS for edge in _EDGES)]
    ]
    tables = [pd.DataFrame({name: [] for name in (*EXCESS, PROFILED_NS)}, dtype=np.int64)]
    groups = {tuple(collectives.places) for collectives in matched}
    for devices in sorted(groups):
        pairs = [pair for pair in zip(matched, spreads, strict=True) if tuple(pair[0].places) == devices]
        selected = [(collectives, end_together(collectives, spread)) for collectives, spread in pairs]
        start = np.concatenate([collectives.start[is_aligned] for collectives, is_aligned in selected])
        dur = np.concatenate([collectives.dur[is_aligned] for collectives, is_aligned in selected])
        rows = np.concatenate([collectives.row_id[is_aligned] for collectives, is_aligned in selected])
        order = np.argsort(start[:, 0], kind="stable")
        start, end, rows = start[order], (start + dur)[order], rows[order]
        # where a device had not ended the collective before, the span has no common start
        follows = (start[1:] >= end[:-1]).all(axis=1)
        tables.append(_longer(before, rows[1:][follows], rows[:-1][follows], (start[1:] - end[:-1])[follows]))
    return pd.concat(tables)


def _longer(before: pd.DataFrame, rows: Ints, earlier: Ints, length: Ints) -> pd.DataFrame:
    """Excess times of the devices (columns) between an earlier collective and this one, by row id."""

    def time_between(name: str) -> Ints:
        at_start, at_end = (
            ints(before.loc[row_ids.ravel()], _column(name, edge)).reshape(row_ids.shape)
            for edge, row_ids in zip(_EDGES, (rows, earlier), strict=True)
        )
        return at_start - at_end

    computation, active, occupied = (time_between(name) for name in _PARTS)
    measures = (computation, length - occupied, occupied - active)
    columns = {name: _over_others(values).ravel() for name, values in zip(EXCESS, measures, strict=True)}
    overhead = [
        ints(before.loc[row_ids.ravel()], PROFILED_NS).reshape(row_ids.shape) for row_ids in (rows, earlier)
    ]
    columns[PROFILED_NS] = _over_others(overhead[0] - overhead[1]).ravel()
    return pd.DataFrame(columns, index=rows.ravel())


def _over_others(values: Ints) -> Ints:
    """Each value minus the mean of the others in its row."""
    others = values.shape[1] - 1
    excess: Ints = values - (values.sum(axis=1, keepdims=True) - values) // others
    return excess


_EDGES = ("start", "end")


def _column(name: str, edge: str) -> str:
    return f"{name}_before_{edge}"


def _waits_of(collectives: MatchedCollectives, spread: Ints, *, marked: bool) -> pd.DataFrame:
    counted = end_together(collectives, spread) & ((collectives.step >= 0) | (not marked))
    dur, exposed, rows = collectives.dur[counted], collectives.exposed[counted], collectives.row_id[counted]
    places = len(collectives.places)
    ordered = np.sort(dur, axis=1)
    waited = np.minimum(dur - ordered[:, :1], exposed)
    last = last_arrivals(dur)[:, None] == np.arange(places)
    mean = waited.sum(axis=1, keepdims=True) // (places - 1)
    gain = np.minimum(ordered[:, 1:2] - ordered[:, :1], mean)
    return pd.DataFrame(
        {
            C.RANK: np.tile([rank for rank, _ in collectives.places], len(dur)).astype(np.int64),
            C.DEVICE: np.tile([device for _, device in collectives.places], len(dur)).astype(np.int64),
            C.ROW_ID: rows.ravel(),
            C.START_NS: collectives.start[counted].ravel(),
            "last": last.ravel(),
            "waited_ns": waited.ravel(),
            "late_ns": (ordered[:, -1:] - dur).ravel(),
            "caused_ns": np.where(last, mean, 0).ravel(),
            "gain_ns": np.where(last, gain, 0).ravel(),
            WAITING_ROW: np.repeat(rows[np.arange(len(dur)), dur.argmax(axis=1)], places),
        }
    )


@dataclass(frozen=True)
class RankPart:
    """Tables of one rank."""

    devices: pd.DataFrame  # a row per device: times over the measured windows
    # a row per profiled step: its length, and the computation in it on the busiest device
    steps: pd.DataFrame
    # a row per communication kernel, in order, with what its device had done before it started and before it
    # ended, its launch, and what its host had waited until then
    collectives: pd.DataFrame
    kernels: pd.DataFrame  # a row per family of the other kernels: number and sum of durations


def measure_rank(run: Run, rank: int, windows: pd.DataFrame) -> RankPart | None:
    """Measure one rank; None without device intervals.

    The windows are its profiled steps in order, empty if none are marked.
    """
    rows = busy(run.of_ranks(rank), [*READ, C.LAUNCH_ROW])
    if rows.empty:
        return None
    devices = [int(device) for device in np.unique(ints(rows, C.DEVICE))]
    unions = {device: intervals_by_class(rows[rows[C.DEVICE] == device]) for device in devices}
    times = [
        _measure_device(rows[rows[C.DEVICE] == device], union, windows) for device, union in unions.items()
    ]
    return RankPart(
        pd.DataFrame(times),
        _measure_steps(rank, windows, list(unions.values())),
        _measure_collectives(run, rank, rows, unions),
        _sum_kernels(rows, marked=len(windows) > 0),
    )


def _sum_kernels(rows: pd.DataFrame, *, marked: bool) -> pd.DataFrame:
    """Computation by family, in profiled steps if steps are marked."""
    selected = (rows[C.KIND] == DeviceKind.KERNEL).to_numpy(bool) & ~is_communication(rows)
    selected &= rows[C.STEP].notna().to_numpy(bool) | (not marked)
    kernels = rows[selected]
    keys = pd.DataFrame({C.RANK: kernels[C.RANK], "family": map_categories(kernels[C.NAME], family)})
    groups = group_rows(keys, [C.RANK, "family"])
    sums = {"sum_ns": groups.sums(ints(kernels, C.DUR_NS)), "count": groups.sizes()}
    return keys_of(keys, [C.RANK, "family"], groups.first, object).assign(**sums)


def _measure_device(rows: pd.DataFrame, unions: IntervalsByClass, windows: pd.DataFrame) -> dict[str, object]:
    """Times of one device in its profiled steps, or the capture if none are marked."""
    inside = measured_window(rows, windows)

    def amount(union: Union) -> int:
        return intervals.length(intervals.intersect(union, inside))

    window, active = intervals.length(inside), amount(unions.kernels)
    occupied, computation, communication = (
        amount(union) for union in (unions.occupied, unions.computation, unions.communication)
    )
    return {
        C.RANK: int(rows[C.RANK].iloc[0]),
        C.DEVICE: int(rows[C.DEVICE].iloc[0]),
        "window_ns": window,
        "computation_ns": computation,
        "communication_exposed_ns": active - computation,
        "communication_overlapped_ns": communication - (active - computation),
        "other_ns": occupied - active,
        "idle_ns": window - occupied,
    }


def _measure_steps(rank: int, windows: pd.DataFrame, unions: list[IntervalsByClass]) -> pd.DataFrame:
    start, end = ints(windows, C.START_NS), ints(windows, END_NS)
    computed = np.zeros(len(windows), np.int64)
    for union in unions:
        computed = np.maximum(computed, overlap_lengths(union.computation, start, end))
    columns = {
        C.STEP: ints(windows, C.STEP),
        "length_ns": end - start,
        "computation_ns": computed,
    }
    return pd.DataFrame({C.RANK: np.full(len(windows), rank, np.int64), **columns})


def _measure_collectives(
    run: Run, rank: int, rows: pd.DataFrame, unions: dict[int, IntervalsByClass]
) -> pd.DataFrame:
    """Communication kernels with their exposed time."""
    kernels = rows[is_communication(rows)].sort_values(
        [C.DEVICE, C.START_NS, C.DUR_NS, C.ROW_ID], ignore_index=True
    )
    start, end = spans(kernels)
    exposed = ints(kernels, C.DUR_NS).copy()
    before = {_column(name, edge): np.zeros(len(kernels), np.int64) for name in _PARTS for edge in _EDGES}
    for device, union in unions.items():
        on_device = (kernels[C.DEVICE] == device).to_numpy(bool)
        exposed[on_device] -= overlap_lengths(union.computation, start[on_device], end[on_device])
        for name in _PARTS:
            for edge, moments in zip(_EDGES, (start, end), strict=True):
                before[_column(name, edge)][on_device] = covered_before(
                    getattr(union, name), moments[on_device]
                )
    host = read_launches(run, rank, kernels.pop(C.LAUNCH_ROW))
    return describe_collectives(run, kernels).assign(exposed_ns=exposed, **before).join(host)
