"""Memory copies of a run: direction, memory of the host side, and host time blocked.

* direction = the copy kind; memory = that of the host side: the source of H2D and H2H, the destination of
  D2H; `device` for D2D and P2P. AMD's profiler writes `Host`, neither pageable nor pinned: unknown.
* blocked = duration of the launching call plus that of the synchronize call that directly follows it on its
  thread inside the same op (`aten::copy_`, `aten::_local_scalar_dense`), as in a blocking copy of PyTorch.
  Outside an op the launching call alone: a wait after it may be the user's. Missing if the launch was not
  recorded.

The link's rate is PCIe generation × lanes as sampled by NVML during the run, else the maximum of the link
(`shared.pcie` has the rates). The best rate seen is that of a pinned copy of at least `LARGE_BYTES` in the
same direction and on the same device; below that size the fixed cost of a copy matters. The ceiling is the
larger of the known ones.

The rate a copy can reach is the best rate seen, else `REACHED_SHARE` of the link's, because of protocol
overhead.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import EVIDENCE_ROWS
from tracekit.analysis.kernel_names import brief, matches
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import C, CopyKind, DeviceKind, HostKind, Memory

from ..shared.common import NO_PARENT, PLACE, Objects, ids_or_absent, ints, is_kind, positions, sort_by
from ..shared.groups import number_by
from ..shared.host_rows import NO_OP, NO_SHAPES, fill_missing_text, host_rows, source_lines
from ..shared.pcie import link_rates

DIRECTION, MEMORY = "direction", "memory"
OP, OUTER, SOURCE = "op", "outer_op", "source"
BLOCKED_NS, EXPOSED_NS = "blocked_ns", "exposed_ns"
CALL_NS, WAIT_NS, CALL_START_NS = "call_ns", "wait_ns", "call_start_ns"
WORST = "on the device of each rank with most of it"
"""Explanation of times in findings: devices of a rank run concurrently."""

_ROW_COLUMNS = (C.ROW_ID, C.NAME, C.RANK, C.DEVICE, C.STREAM, C.STEP, C.START_NS, C.DUR_NS)
_COPY_COLUMNS = (*_ROW_COLUMNS, C.BYTES, C.LAUNCH_ROW, C.OP_ROW)
_ENDS = (C.SRC_MEMORY, C.DST_MEMORY)
_HOST_SIDES = (str(Memory.PAGEABLE), str(Memory.PINNED), str(Memory.UNIFIED))


def read_copies(run: Run, direction: CopyKind | None = None) -> pd.DataFrame:
    """Read the memcpys of a run, of one direction or all, sorted by start, with direction and memory."""
    where = is_kind(DeviceKind.MEMCPY)
    if direction is not None:
        where &= pc.field(C.COPY_KIND) == str(direction)
    frame = run.table("device_intervals", columns=(*_COPY_COLUMNS, C.COPY_KIND, *_ENDS), where=where)
    directions = fill_missing_text(frame[C.COPY_KIND], str(CopyKind.UNKNOWN))
    table = frame[[*_COPY_COLUMNS]].astype({C.NAME: object})
    table[DIRECTION], table[MEMORY] = directions, _host_side(directions, frame)
    return sort_by(table, C.START_NS, C.ROW_ID)


def _host_side(directions: Objects, frame: pd.DataFrame) -> Objects:
    source, target = (fill_missing_text(frame[name], str(Memory.UNKNOWN)) for name in _ENDS)
    side = np.where(directions == str(CopyKind.D2H), target, source)
    is_known = np.isin(side, _HOST_SIDES) & (directions != str(CopyKind.UNKNOWN))
    in_device = np.isin(directions, [str(CopyKind.D2D), str(CopyKind.P2P)])
    return np.where(in_device, str(Memory.DEVICE), np.where(is_known, side, str(Memory.UNKNOWN)))


def describe_copies(run: Run, copies: pd.DataFrame) -> pd.DataFrame:
    """Add launching op, outermost op, shapes, dtypes, source line and blocked host time to the copies."""
    launching = host_rows(run, copies[C.OP_ROW], [C.NAME, C.INPUT_SHAPES, C.INPUT_DTYPES])
    table = with_origins(run, copies).join(host_waits(run, copies))
    table[BLOCKED_NS] = table[CALL_NS] + table[WAIT_NS]
    table[OP] = fill_missing_text(launching[C.NAME], NO_OP)
    table[C.INPUT_SHAPES] = fill_missing_text(launching[C.INPUT_SHAPES], NO_SHAPES)
    table[C.INPUT_DTYPES] = fill_missing_text(launching[C.INPUT_DTYPES], "(no dtypes recorded)")
    return table


def with_origins(run: Run, copies: pd.DataFrame) -> pd.DataFrame:
    """Add the outermost op around each copy and the user's source line."""
    lines = source_lines(run, copies[C.OP_ROW].fillna(copies[C.LAUNCH_ROW]))
    return copies.assign(**{OUTER: _outermost(run, copies[C.OP_ROW]), SOURCE: lines})


def _outermost(run: Run, rows: pd.Series) -> pd.Series:
    """Name of the outermost op around each op."""
    ops = run.table("host_intervals", columns=[C.ROW_ID, C.PARENT_ROW], where=is_kind(HostKind.OP))
    parent = np.append(positions(ops[C.ROW_ID], ops[C.PARENT_ROW]), NO_PARENT)  # index -1 gives NO_PARENT
    position = positions(ops[C.ROW_ID], rows)
    while (climbing := parent[position] != NO_PARENT).any():
        position[climbing] = parent[position[climbing]]
    ids = np.append(ints(ops, C.ROW_ID), NO_PARENT)[position]
    top = pd.Series(ids, index=rows.index).astype("Int64").mask(position == NO_PARENT)
    return pd.Series(fill_missing_text(host_rows(run, top, [C.NAME])[C.NAME], NO_OP), index=rows.index)


def host_waits(run: Run, copies: pd.DataFrame) -> pd.DataFrame:
    """Start and duration of the launching call of each copy, and duration of the wait directly after it.

    Missing if the launch is unknown; the wait is 0 if none follows.
    """
    launch = host_rows(run, copies[C.LAUNCH_ROW], [C.PARENT_ROW])
    parents = launch[C.PARENT_ROW].dropna().to_numpy(np.int64)
    parent_ops = run.arrow("host_intervals", columns=[C.ROW_ID], where=is_kind(HostKind.OP), row_ids=parents)
    ops = parent_ops[C.ROW_ID].to_numpy()
    calls = _read_calls(run, copies[C.LAUNCH_ROW], ops)
    position = positions(calls[C.ROW_ID], copies[C.LAUNCH_ROW])
    times = {
        name: pd.arrays.IntegerArray(np.append(values, 0)[position], position == NO_PARENT)
        for name, values in _time_calls(calls).items()
    }
    return pd.DataFrame(times, copies.index)


def _read_calls(run: Run, launches: pd.Series, ops: Ints) -> pd.DataFrame:
    """Runtime calls inside these ops and these launches, by thread and start."""
    calls = run.arrow(
        "host_intervals",
        columns=[C.ROW_ID, C.PARENT_ROW],
        where=is_kind(HostKind.RUNTIME, HostKind.SYNC),
    )
    ids, parents = calls[C.ROW_ID].to_numpy(), calls[C.PARENT_ROW].fill_null(NO_PARENT).to_numpy()
    near = np.isin(ids, launches.dropna().to_numpy(np.int64)) | np.isin(parents, ops)
    return run.table(
        "host_intervals",
        columns=[C.ROW_ID, C.NAME, C.PARENT_ROW, C.RANK, C.PID, C.TID, C.START_NS, C.DUR_NS],
        row_ids=ids[near],
    ).sort_values([C.RANK, C.PID, C.TID, C.START_NS, C.ROW_ID], ignore_index=True)


def _time_calls(calls: pd.DataFrame) -> dict[str, Ints]:
    """Start and duration of each call, and duration of the wait right after it inside the same op."""
    start, duration = ints(calls, C.START_NS), ints(calls, C.DUR_NS)
    parent = ids_or_absent(calls[C.PARENT_ROW])
    is_wait = matches(calls[C.NAME], r"(?i)synchronize").to_numpy(bool)
    followed = np.zeros(len(calls), np.bool_)
    followed[:-1] = is_wait[1:] & (parent[1:] == parent[:-1]) & (parent[1:] != NO_PARENT)
    return {
        CALL_START_NS: start,
        CALL_NS: duration,
        WAIT_NS: np.where(followed, np.roll(duration, -1), 0),
    }


def exact_sum(values: pd.Series) -> int | None:
    """Sum of values, None if one is missing."""
    return None if values.isna().any() else int(values.sum())


def evidence_of_copies(copies: pd.DataFrame, weight: str = C.DUR_NS) -> dict[str, list[int]]:
    """Row ids of the copies with the largest weight and of the calls that launched them."""
    weighed = copies.assign(**{weight: copies[weight].fillna(0)})
    top = sort_by(weighed, f"-{weight}", C.START_NS, C.ROW_ID).head(EVIDENCE_ROWS)
    evidence = {"device_intervals": [int(row) for row in top[C.ROW_ID]]}
    launches = [int(row) for row in top[C.LAUNCH_ROW].dropna()]
    return evidence | ({"host_intervals": launches} if launches else {})


def describe_places(copies: pd.DataFrame, weight: str, most: int = 3) -> str:
    """Ops and source lines of these copies, largest weight first: `aten::to at train.py(12): main`.

    The copies have their origins; the weight is a column.
    """
    weights = copies.assign(weight=copies[weight].fillna(0))
    sums = weights.groupby([OUTER, SOURCE])["weight"].sum().reset_index()
    sums = sort_by(sums, "-weight", OUTER, SOURCE)
    words = [
        ("copies outside of recorded ops" if op == NO_OP else f"`{brief(op)}`")
        + (f" at {brief(line)}" if line else "")
        for op, line in zip(sums[OUTER], sums[SOURCE], strict=True)
    ]
    more = f" and {len(words) - most} more places" if len(words) > most else ""
    return ", ".join(words[:most]) + more


LARGE_BYTES = 1 << 20
LINKED = (str(CopyKind.H2D), str(CopyKind.D2H))
"""Directions of copies that cross the link."""
REACHED_SHARE = 0.8
LINK, SEEN, CEILING, REACHABLE = "link_gb_per_s", "seen_gb_per_s", "ceiling_gb_per_s", "reachable_gb_per_s"


def with_link_rates(run: Run, copies: pd.DataFrame) -> pd.DataFrame:
    """Add the known rates of the link of each copy; missing if unknown, or for copies inside a device."""
    codes, first = number_by(copies, [*PLACE, DIRECTION])
    size, duration = (copies[name].to_numpy(np.float64, na_value=np.nan) for name in (C.BYTES, C.DUR_NS))
    is_large = (copies[MEMORY] == str(Memory.PINNED)).to_numpy(bool) & (size >= LARGE_BYTES) & (duration > 0)
    seen = np.full(len(first), np.nan)
    np.fmax.at(seen, codes[is_large], size[is_large] / duration[is_large])
    links = link_rates(run)
    link = np.array([links.get(device, np.nan) for device in ints(copies, C.DEVICE)[first].tolist()])
    rates = {
        LINK: link,
        SEEN: seen,
        CEILING: np.fmax(link, seen),
        REACHABLE: np.where(np.isnan(seen), link * REACHED_SHARE, seen),
    }
    is_linked = copies[DIRECTION].isin(LINKED).to_numpy(bool)
    return copies.assign(**{name: np.where(is_linked, rate[codes], np.nan) for name, rate in rates.items()})


def faster_ns(size: pd.Series, duration: pd.Series, rate: pd.Series) -> pd.Series:
    """Time each copy would save at a rate, at least 0; missing if size or rate is unknown.

    Sizes are bytes, durations ns, and rates GB/s.
    """
    is_known = size.notna() & rate.notna()
    wanted = (size.astype(float) / rate.astype(float)).where(is_known).round().astype("Int64")
    return (duration.astype("Int64") - wanted).clip(lower=0)
