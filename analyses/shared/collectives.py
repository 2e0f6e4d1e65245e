"""Matching of the collectives of several ranks or devices, and the time in which they wait for the last one.

This needs no common clock: all ranks end a collective together, so the one with the shortest kernel arrived
last, and each other rank waited for the time by which its kernel is longer. Clocks are used only to check the
match: after subtracting the ranks' clock offsets (median difference of the ends of all matched kernels), the
ends must agree within 10% of the longest duration, or 200 µs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis.kernel_names import family
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.schema import C

from .collective_kinds import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    OTHER,
    REDUCE,
    SEND_RECV,
    collective_kinds,
    kinds_of,
)
from .common import NO_PARENT, PLACE, Bools, ids_or_absent, ints, map_texts, percentile, positions, sort_by
from .groups import number_by, rows_by_number
from .host_rows import fill_missing_text, host_rows
from .intervals_by_class import is_communication
from .tensor_shapes import item_bytes, numel, parse_dtypes, parse_shapes

END_TOLERANCE_SHARE = 10
"""Ends agree within the longest duration over this, or within `END_TOLERANCE_NS`."""
END_TOLERANCE_NS = 200_000
MIN_WAIT_RATIO = 2
"""Ratio of times of equally large collectives from which the longer one waits."""
NEARLY_ALL_ALIGNED = 0.9
"""Share of collectives that must end together where the ranks have different numbers of them."""
RECORDED = (
    *(C.COLLECTIVE_SEQUENCE, C.DTYPE, C.ELEMENTS_IN, C.ELEMENTS_OUT),
    *(C.GROUP_NAME, C.GROUP_DESCRIPTION, C.GROUP_RANKS, C.GROUP_SIZE, C.SRC_RANK, C.DST_RANK),
)
"""Columns of the launching op, or of the kernel, that describe a collective."""
READ = (C.ROW_ID, C.KIND, C.NAME, *PLACE, C.STREAM, C.START_NS, C.DUR_NS, C.STEP, C.OP_ROW)
"""Columns of communication kernels that `describe_collectives` needs."""
_DESCRIBED = (
    *(name for name in READ if name not in (C.NAME, C.OP_ROW)),
    *("exposed_ns", "family", "group", C.BYTES, "size"),
)
"""Columns that it returns in addition to `RECORDED`."""
_MATCHED = [
    *(*PLACE, C.ROW_ID, C.KIND, C.STREAM, C.STEP, C.START_NS, C.DUR_NS, C.COLLECTIVE_SEQUENCE),
    *("family", "group", "exposed_ns"),
]
"""Columns by which collectives are matched."""
_OF_ONE_SIZE = {ALL_REDUCE, BROADCAST, REDUCE, SEND_RECV}
"""Kinds whose input and output are of one size: that of the input is the bytes of the collective."""


@dataclass(frozen=True)
class MatchedCollectives:
    """Collectives of one family, process group and stream: rows are collectives in order, columns devices."""

    places: list[tuple[int, int]]  # rank and device of each column
    row_id: Ints  # device rows of the kernels
    step: Ints  # step of the first place's kernel, -1 outside steps
    start: Ints  # starts, each on the clock of its rank
    dur: Ints  # durations
    exposed: Ints  # exposed time of each kernel
    names: tuple[str, str]  # kind of collective and family


def match_collectives(kernels: pd.DataFrame) -> tuple[list[MatchedCollectives], list[str]]:
    """Match the kernels of a family, process group and stream of all ranks, counted from the end.

    The captures of ranks begin at different points, so the last kernels correspond; where sequence numbers
    are recorded, only collectives that every rank has are counted. If streams do not agree between ranks they
    are ignored, since their ids may differ. Where counts differ, the kernels match only if nearly all of them
    end together. Returns also the families that could not be matched.
    """
    matched: list[MatchedCollectives] = []
    unmatched: list[str] = []
    device, places = number_by(kernels, PLACE)
    if len(places) < 2:
        return matched, unmatched
    times = (ints(kernels, name) for name in (C.ROW_ID, C.DUR_NS, C.START_NS))
    order = np.lexsort((*times, device))
    ordered, device = kernels[_MATCHED].take(order), device[order]
    stream, sequence = ints(ordered, C.STREAM), ids_or_absent(ordered[C.COLLECTIVE_SEQUENCE])
    for _, of_group in rows_by_number(number_by(ordered, ["family", "group"])[0]):
        rows = _of_all_devices(of_group, device, sequence)
        # Strictest first: stream by stream, then regardless of streams, then without the first kernels.
        grids = [_grid(on_stream, device) for on_stream in _split(rows, stream)]
        is_on_one_stream = all(len(np.unique(stream[part])) == 1 for part in _split(rows, device))
        if any(grid is None for grid in grids) and is_on_one_stream:
            grids = [_grid(rows, device)]
        complete = [grid for grid in grids if grid is not None]
        if len(complete) == len(grids):
            matched += [_matched(ordered, grid) for grid in complete]
        elif is_on_one_stream and (ending := _match_from_the_end(ordered, rows, device)):
            matched.append(ending)
        elif len(_split(rows, device)) > 1:
            unmatched.append(str(ordered["family"].iloc[rows[0]]))
    return matched, unmatched


def _split(rows: Ints, numbers: Ints) -> list[Ints]:
    """The positions of rows by their number, in the order of the numbers."""
    return [rows[of_number] for _, of_number in rows_by_number(numbers[rows])]


def _of_all_devices(rows: Ints, device: Ints, sequence: Ints) -> Ints:
    """The collectives whose sequence number every device has; all of them where a number is unknown."""
    if (sequence[rows] == NO_PARENT).any():
        return rows
    # Captures of ranks begin and end at different times, so the k-th last kernels need not correspond.
    devices, number = np.unique(device[rows], return_inverse=True)
    numbers, of_row = np.unique(sequence[rows], return_inverse=True)
    pairs = np.unique(of_row * len(devices) + number)
    counts = np.bincount(pairs // max(1, len(devices)), minlength=len(numbers))
    shared: Ints = rows[counts[of_row] == len(devices)]
    return shared


def _grid(rows: Ints, device: Ints) -> Ints | None:
    """Rows by collective and device, if several devices have the same number of kernels; else None."""
    counts = np.unique(device[rows], return_counts=True)[1]
    if len(counts) < 2 or (counts != counts[0]).any():
        return None
    grid: Ints = rows.reshape(len(counts), -1).T
    return grid


def _match_from_the_end(ordered: pd.DataFrame, rows: Ints, device: Ints) -> MatchedCollectives | None:
    """Match the last kernels of every device; None if they do not end together."""
    of_devices = _split(rows, device)
    fewest = min(map(len, of_devices))
    if len(of_devices) < 2:
        return None
    ending = _matched(ordered, np.stack([part[-fewest:] for part in of_devices], axis=1))
    spread = end_spreads([ending])[0]
    together = end_together(ending, spread).mean() >= NEARLY_ALL_ALIGNED
    # A match that is one collective early or late is off by the time between collectives.
    distances = np.diff(np.sort(ending.start[:, 0] + ending.dur[:, 0]))
    distance = float(np.median(distances)) if len(distances) else float("inf")
    return ending if together and 2 * np.median(spread) <= distance else None


def _matched(ordered: pd.DataFrame, grid: Ints) -> MatchedCollectives:
    """The collectives at the positions of a grid, of which each column is a device."""
    row_id, start, dur, exposed = (
        ints(ordered, name)[grid] for name in (C.ROW_ID, C.START_NS, C.DUR_NS, "exposed_ns")
    )
    step = ids_or_absent(ordered[C.STEP])[grid[:, 0]]
    pairs = [*zip(*(ints(ordered, name)[grid[0]].tolist() for name in PLACE), strict=True)]
    names = str(ordered[C.KIND].iloc[grid[0, 0]]), str(ordered["family"].iloc[grid[0, 0]])
    return MatchedCollectives(pairs, row_id, step, start, dur, exposed, names)


def end_spreads(matched: list[MatchedCollectives]) -> list[Ints]:
    """Spread of the ends of each collective, after subtracting clock offsets."""
    offsets = _offsets(matched)
    spreads = []
    for collectives in matched:
        offset = np.array([offsets[place] for place in collectives.places], np.int64)
        spreads.append(np.ptp(collectives.start + collectives.dur - offset, axis=1))
    return spreads


def _offsets(matched: list[MatchedCollectives]) -> dict[tuple[int, int], int]:
    """Clock offset of each device relative to the first one, ns: the median difference of matched ends."""
    # All collectives together: a device has one clock, and the median passes over wrong matches.
    differences: dict[tuple[int, int], list[Ints]] = {}
    for collectives in matched:
        ends = collectives.start + collectives.dur
        for column, place in enumerate(collectives.places):
            differences.setdefault(place, []).append(ends[:, column] - ends[:, 0])
    return {place: percentile(np.concatenate(values), 50) for place, values in differences.items()}


def end_together(matched: MatchedCollectives, spread: Ints) -> Bools:
    """Whether the kernels of each collective end together; `spread` is that of their ends, ns."""
    tolerance = np.maximum(matched.dur.max(axis=1) // END_TOLERANCE_SHARE, END_TOLERANCE_NS)
    together: Bools = spread <= tolerance
    return together


def read_collectives(run: Run) -> pd.DataFrame:
    """The communication kernels of a run, as `describe_collectives` returns them."""
    rows = busy(run, READ)
    return describe_collectives(run, rows[is_communication(rows)].reset_index(drop=True))


def describe_collectives(run: Run, kernels: pd.DataFrame) -> pd.DataFrame:
    """Communication kernels, with what is recorded of their collective.

    The kernels have the columns `READ`.

    Returns:
        Row id, rank, device, step, start, duration; stream (-1 if unknown), exposed_ns (the duration),
        family, kind of collective, bytes as nccl-tests count them, size (the same, of the op's first input if
        unknown, else 0), group (the process group's name and ranks; empty if unknown) and `RECORDED`.
    """
    if kernels.empty:  # of any types, as empty tables do not affect those of others
        return kernels.reindex(columns=[*_DESCRIBED, *RECORDED])
    recorded = read_metadata(run, kernels, [C.COLLECTIVE, *RECORDED])
    recorded = recorded.join(host_rows(run, kernels[C.OP_ROW], [C.INPUT_SHAPES, C.INPUT_DTYPES]))
    named = kinds_of(recorded[C.COLLECTIVE].astype(object).fillna(""))
    kinds = named.where(named != OTHER, collective_kinds(run, kernels))
    inputs = (fill_missing_text(recorded[name], "") for name in (C.INPUT_SHAPES, C.INPUT_DTYPES))
    reduced = map_texts(kernels[C.NAME], _reduced_bytes)
    first_sizes = [_first_bytes(*row) for row in zip(*inputs, reduced, strict=True)]
    first = pd.Series(first_sizes, index=recorded.index, dtype=np.int64)
    sent = _recorded_bytes(recorded, kinds)
    sent = sent.fillna(first.where(kinds.isin(_OF_ONE_SIZE) & (first > 0)))
    columns = {
        C.STREAM: kernels[C.STREAM].fillna(-1).astype(np.int64),
        C.KIND: kinds,
        "exposed_ns": kernels[C.DUR_NS],
        "family": map_texts(kernels[C.NAME], family),
        "group": group_keys(recorded),
        C.BYTES: sent,
        "size": sent.fillna(first).astype(np.int64),
    }
    kept = {name: values for name, values in kernels.items() if name not in (C.NAME, C.OP_ROW)}
    return pd.DataFrame(kept | columns | {name: recorded[name] for name in RECORDED})


def read_metadata(run: Run, kernels: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """What the launching ops recorded of the collectives of some kernels, else the kernels themselves.

    `device_intervals` has the columns, too.
    """
    recorded = host_rows(run, kernels[C.OP_ROW], [*columns, C.COLLECTIVE])
    lacking = np.flatnonzero(recorded[C.COLLECTIVE].isna())
    if len(lacking):
        described = pc.field(C.COLLECTIVE).is_valid()
        own = run.table("device_intervals", columns=[C.ROW_ID, *columns], where=described)
        at = positions(own[C.ROW_ID], kernels[C.ROW_ID].iloc[lacking])
        lacking, at = lacking[at != NO_PARENT], at[at != NO_PARENT]
        for name in columns if len(at) else ():
            kept = own[name].astype(recorded[name].dtype)
            recorded.loc[recorded.index[lacking], name] = kept.iloc[at].to_numpy()
    return recorded[[*columns]]


def group_keys(recorded: pd.DataFrame) -> pd.Series:
    """Name and ranks of each process group: together they are the same on all of its ranks."""
    names = (fill_missing_text(recorded[name], "") for name in (C.GROUP_NAME, C.GROUP_RANKS))
    keys = [" ".join(pair).strip() for pair in zip(*names, strict=True)]
    return pd.Series(keys, index=recorded.index, dtype=object)


def _recorded_bytes(recorded: pd.DataFrame, kinds: pd.Series) -> pd.Series:
    """Bytes by the recorded elements and dtype: what a rank receives in an all-gather, else what it sends."""
    gathered = (kinds == ALL_GATHER).to_numpy(bool)
    elements = recorded[C.ELEMENTS_IN].where(~gathered, recorded[C.ELEMENTS_OUT]).astype("Int64")
    item_sizes = [item_bytes(dtype) for dtype in fill_missing_text(recorded[C.DTYPE], "")]
    return elements * pd.Series(pd.array(item_sizes, "Int64"), index=recorded.index)


def _reduced_bytes(kernel: str) -> int:
    """Bytes of an element that a kernel of NCCL reduces, 0 if its name does not tell.

    Example:
        >>> _reduced_bytes("ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*)"), _reduced_bytes("gemm")
        (2, 0)
    """
    named = re.search(_REDUCES, kernel)
    return int(named[1]) // 8 if named and named[1] else 4 if named else 0


_REDUCES = (
    r"^nccl\w*?Reduce(?:Scatter)?_(?:[A-Z0-9]+_)*(?:Sum|Prod|Min|Max|MinMax|Avg)_(?:b?f(\d+)|float)(?:_|\b)"
)
"""Kernels of NCCL that reduce, with the bits of the elements; other kinds move bytes of any dtype."""


@lru_cache(maxsize=1 << 16)
def _first_bytes(shapes: str, dtypes: str, reduced: int) -> int:
    """Bytes of the first input of an op, 0 if unknown; of a list of tensors the kernel tells the dtype."""
    shape, dtype = next(iter(parse_shapes(shapes)), None), next(iter(parse_dtypes(dtypes)), "")
    item_size = item_bytes(dtype) or (reduced if dtype == "TensorList" else 0)
    if isinstance(shape, list):
        return item_size * sum(numel(dimensions) for dimensions in shape)
    return item_size * numel(shape) if shape else 0


def collective_waits(rows: pd.DataFrame) -> pd.DataFrame:
    """Waiting in the collectives that are matched over ranks, by row id, of the kernels of all ranks.

    wait_ns is the time by which the kernel is longer than the shortest one of its collective, and caused_ns
    the sum of the waits of the others if this kernel is the only shortest one, else 0.
    """
    # Sends and receives are between two ranks, not all of a group: they are matched by their peers.
    peers = rows[C.SRC_RANK].notna() | rows[C.DST_RANK].notna()
    matched, _ = match_collectives(rows[~peers])
    parts = [_message_waits(rows[peers])]
    for collectives, spread in zip(matched, end_spreads(matched), strict=True):
        together = end_together(collectives, spread)
        dur = collectives.dur[together]
        waits = dur - dur.min(axis=1, keepdims=True)
        last = last_arrivals(dur)[:, None] == np.arange(dur.shape[1])
        caused = np.where(last, waits.sum(axis=1, keepdims=True), 0)
        parts.append(np.stack([part.ravel() for part in (collectives.row_id[together], waits, caused)]))
    row_id, wait_ns, caused_ns = np.concatenate(parts, axis=1)
    return pd.DataFrame({"wait_ns": wait_ns, "caused_ns": caused_ns}, index=row_id)


def _message_waits(rows: pd.DataFrame) -> Ints:
    """Waits of messages whose peers are recorded: the k-th last send to a rank is its k-th last receive.

    Returns:
        Row ids, wait_ns and caused_ns.
    """
    parts = [np.empty((3, 0), np.int64)]
    send = rows[C.DST_RANK].notna()
    source = rows[C.SRC_RANK].where(~send, rows[C.RANK]).astype(np.int64)
    target = rows[C.DST_RANK].where(send, rows[C.RANK]).astype(np.int64)
    by = ["group", source, target]
    for _, messages in rows.sort_values([C.START_NS, C.ROW_ID]).groupby(by, sort=True) if len(rows) else ():
        sends, receives = messages[messages[C.DST_RANK].notna()], messages[messages[C.DST_RANK].isna()]
        count = min(len(sends), len(receives))
        if not count:
            continue
        ends = [sends.tail(count), receives.tail(count)]
        row_id, start, dur = (
            np.stack([ints(side, name) for side in ends], axis=1) for name in (C.ROW_ID, C.START_NS, C.DUR_NS)
        )
        # The ends of a message differ by the offset of the two clocks, which is the median of all messages.
        difference = np.diff(start + dur, axis=1)[:, 0]
        spread = np.abs(difference - percentile(difference, 50))
        together = spread <= np.maximum(dur.max(axis=1) // END_TOLERANCE_SHARE, END_TOLERANCE_NS)
        wait = (dur - dur.min(axis=1, keepdims=True))[together]
        caused = wait[:, ::-1]  # by the other of the two
        parts.append(np.stack([part.ravel() for part in (row_id[together], wait, caused)]))
    return np.concatenate(parts, axis=1)


def last_arrivals(dur: Ints) -> Ints:
    """Column of the shortest kernel of each row, -1 for ties.

    Example:
        >>> last_arrivals(np.array([[5, 3], [4, 4]]))
        array([ 1, -1])
    """
    ordered = np.sort(dur, axis=1)
    return np.where(ordered[:, 0] < ordered[:, 1], np.argmin(dur, axis=1), -1)


def _longer_than_larger_ones(rows: pd.DataFrame) -> pd.Series:
    """Time by which each kernel exceeds the shortest one of its name, group and device that is as large.

    Of one that is not larger it counts from `MIN_WAIT_RATIO` on: transfers beside other work vary.
    """
    # From the largest: the running minimum is over all kernels that are as large or larger.
    keys = ["family", "group", *PLACE]
    ordered = sort_by(rows.loc[rows["size"] > 0, [*keys, "size", C.DUR_NS, C.ROW_ID]], "-size", C.DUR_NS)
    numbers, times = number_by(ordered, keys)[0], ordered[C.DUR_NS]
    shortest = times.groupby(numbers).cummin()
    same = times.groupby(number_by(ordered.assign(of=numbers), ["of", "size"])[0]).transform("min")
    varies = (shortest < same) | (times >= MIN_WAIT_RATIO * shortest)
    excess = (times - shortest).where(varies, 0)
    return pd.Series(excess.to_numpy(np.int64), index=ordered[C.ROW_ID].to_numpy())


def wait_times(rows: pd.DataFrame) -> Ints:
    """Time in which each of these kernels waits for the last rank, as far as they tell.

    Of a matched collective it is its wait. Of another one it is the time by which it is longer than a
    kernel of the same name and group on the same device that moved at least as many bytes: the transfer
    cannot have taken longer than that.
    """
    matched = collective_waits(rows)["wait_ns"]
    others = rows[~rows[C.ROW_ID].isin(matched.index)]
    waits = pd.concat([matched, _longer_than_larger_ones(others)])
    of_rows: Ints = waits.reindex(ints(rows, C.ROW_ID), fill_value=0).to_numpy(np.int64)
    return of_rows


def wait_share(rows: pd.DataFrame, waits: Ints | None = None, *, in_steps: bool = True) -> float:
    """Share of the time of these kernels, in steps if there are any, that is waiting (`wait_times`)."""
    stepped = rows[C.STEP].notna().to_numpy(bool)
    chosen = stepped if in_steps and stepped.any() else np.ones(len(rows), np.bool_)
    total = int(ints(rows, C.DUR_NS)[chosen].sum())
    waited = (wait_times(rows) if waits is None else waits)[chosen].sum()
    return float(waited / total) if total else 0.0


def varying_collectives(rows: pd.DataFrame, *, min_steps: float, min_ratio: float) -> pd.DataFrame:
    """Collectives without recorded sizes whose times vary widely over the steps of one rank.

    The k-th collective of a step is the same as the k-th of the others, if all steps of the device have the
    same sequence of kernels. It transfers as much each time, so what exceeds its shortest time is waiting for
    other ranks. Messages between two ranks are left out: their sizes may differ. A collective must recur in
    `min_steps`, and its longest time be `min_ratio` times its shortest.

    Returns:
        By row id: kind, wait_ns, and the shortest and the longest time of the collective over the steps.
    """
    stepped = rows[rows[C.STEP].notna()].sort_values([*PLACE, C.START_NS, C.ROW_ID])
    tables = [pd.DataFrame({C.KIND: [], "wait_ns": [], "shortest_ns": [], "longest_ns": []})]
    for _, of_device in stepped.groupby(PLACE, sort=True):
        steps = np.unique(ints(of_device, C.STEP), return_counts=True)[1]
        if len(steps) < min_steps or (steps != steps[0]).any():
            continue
        names, _ = number_by(of_device, ["family", C.KIND])
        by_step = names[np.argsort(ints(of_device, C.STEP), kind="stable")].reshape(len(steps), -1)
        if (by_step != by_step[0]).any():
            continue
        times = of_device.groupby(of_device.groupby(C.STEP).cumcount())[C.DUR_NS]
        shortest, longest = times.transform("min"), times.transform("max")
        columns = {"wait_ns": of_device[C.DUR_NS] - shortest, "shortest_ns": shortest, "longest_ns": longest}
        varies = longest >= min_ratio * shortest
        varies &= (of_device["size"] == 0) & (of_device[C.KIND] != SEND_RECV)
        table = of_device.assign(**columns).set_index(C.ROW_ID)
        tables.append(table.loc[varies.to_numpy(), tables[0].columns])
    return pd.concat(tables) if len(tables) > 1 else tables[0]
