"""Memory copies of a run: direction, memory of the host side, and host time blocked.

* direction = the copy kind; memory = that of the host side: the source of H2D and H2H, the destination of
  D2H; `device` for D2D and P2P. AMD's profiler writes `Host`, neither pageable nor pinned: unknown.
* blocked = duration of the launching call plus that of the synchronize call that directly follows it on its
  thread inside the same op (`aten::copy_`, `aten::_local_scalar_dense`), as in a blocking copy of PyTorch.
  Outside an op the launching call alone: a wait after it may be the user's. Missing if the launch was not
  recorded.

Groups are matched in the order of their first copies in a step, by the first of these keys that agrees: op,
shape, dtype, bytes, memory and the function of the source line; the same without the function; without the
memory; op and shape; op, dtype and every dimension but the first; op, dtype and number of dimensions; op and
number of dimensions (at least two).

If a shape is unknown the op must agree, and bytes decide: a ratio explained by the runs' settings, then equal
bytes, then the nearest; if bytes are unknown, the order. The rest is copied in only one run.

The link's rate is PCIe generation × lanes as sampled by NVML during the run, else the maximum of the link
(`shared.groups` has the rates). The best rate seen is that of a pinned copy of at least 1 MiB in the same
direction and on the same device; below that size the fixed cost of a copy matters. The ceiling is the larger
of the known ones.

The rate a copy can reach is the best rate seen, else 80% of the link's, because of protocol overhead.
"""

from __future__ import annotations

from bisect import bisect
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.analysis import EVIDENCE_ROWS
from tracekit.analysis.kernel_names import brief, matches
from tracekit.schema import C, CopyKind, DeviceKind, HostKind, Memory

from ..shared.common import NO_PARENT, ints, positions
from ..shared.groups import link_rates
from ..shared.hosts import NO_OP, NO_SHAPES, host_rows, source_lines, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tracekit.analysis.savings import Budget
    from tracekit.runs.intervals import Ints
    from tracekit.runs.run import Run

    from .groups import Group


DIRECTION, MEMORY = "direction", "memory"
OP, OUTER, SOURCE = "op", "outer_op", "source"
BLOCKED_NS, EXPOSED_NS = "blocked_ns", "exposed_ns"
CALL_NS, WAIT_NS, WAIT_START_NS, CALL_START_NS = "call_ns", "wait_ns", "wait_start_ns", "call_start_ns"
NO_DTYPES = "(no dtypes recorded)"
SCALAR_BYTES = 8
WAIT_PATTERN = r"(?i)synchronize"
KEYS = (C.RANK, C.DEVICE)
WORST = "on the device of each rank with most of it"
"""Explanation of times in findings: devices of a rank run concurrently."""

_READ = (
    C.ROW_ID,
    C.NAME,
    C.RANK,
    C.DEVICE,
    C.STEP,
    C.START_NS,
    C.DUR_NS,
    C.BYTES,
    C.COPY_KIND,
    C.SRC_MEMORY,
    C.DST_MEMORY,
    C.LAUNCH_ROW,
    C.OP_ROW,
)
_HOST_SIDES = (str(Memory.PAGEABLE), str(Memory.PINNED), str(Memory.UNIFIED))


def read(run: Run, direction: CopyKind | None = None) -> pd.DataFrame:
    """Read the memcpys of a run, of one direction or all, sorted by start, with direction and memory."""
    where = pc.field(C.KIND) == str(DeviceKind.MEMCPY)
    if direction is not None:
        where &= pc.field(C.COPY_KIND) == str(direction)
    frame = run.table("device_intervals", columns=_READ, where=where)
    directions = texts(frame[C.COPY_KIND], str(CopyKind.UNKNOWN))
    memory = _host_side(directions, frame)
    table = frame.drop(columns=[C.COPY_KIND, C.SRC_MEMORY, C.DST_MEMORY])
    table[C.NAME] = frame[C.NAME].astype(object)
    table[DIRECTION], table[MEMORY] = directions, memory
    return table.sort_values([C.START_NS, C.ROW_ID], ignore_index=True)


def _host_side(directions: np.ndarray[tuple[int], np.dtype[np.object_]], frame: pd.DataFrame) -> pd.Series:
    source = pd.Series(texts(frame[C.SRC_MEMORY], str(Memory.UNKNOWN)), index=frame.index)
    target = pd.Series(texts(frame[C.DST_MEMORY], str(Memory.UNKNOWN)), index=frame.index)
    way = pd.Series(directions, index=frame.index)
    side = source.where(way != str(CopyKind.D2H), target)
    side = side.where(side.isin(_HOST_SIDES) & (way != str(CopyKind.UNKNOWN)), str(Memory.UNKNOWN))
    return side.mask(way.isin([str(CopyKind.D2D), str(CopyKind.P2P)]), str(Memory.DEVICE))


def described(run: Run, copies: pd.DataFrame) -> pd.DataFrame:
    """Add launching op, outermost op, shapes, dtypes, source line and blocked host time to the copies."""
    launching = host_rows(run, copies[C.OP_ROW], [C.NAME, C.INPUT_SHAPES, C.INPUT_DTYPES])
    table = with_origins(run, copies).join(host_waits(run, copies))
    table[BLOCKED_NS] = table[CALL_NS] + table[WAIT_NS]
    table[OP] = texts(launching[C.NAME], NO_OP)
    table[C.INPUT_SHAPES] = texts(launching[C.INPUT_SHAPES], NO_SHAPES)
    table[C.INPUT_DTYPES] = texts(launching[C.INPUT_DTYPES], NO_DTYPES)
    return table


def with_origins(run: Run, copies: pd.DataFrame) -> pd.DataFrame:
    """Add the outermost op around each copy and the user's source line."""
    lines = source_lines(run, copies[C.OP_ROW].fillna(copies[C.LAUNCH_ROW]))
    return copies.assign(**{OUTER: _outermost(run, copies[C.OP_ROW]), SOURCE: lines})


def _outermost(run: Run, rows: pd.Series) -> pd.Series:
    """Name of the outermost op around each op."""
    ops = run.table("host_intervals", columns=[C.ROW_ID, C.PARENT_ROW], where=_is(HostKind.OP))
    parent = np.append(positions(ops[C.ROW_ID], ops[C.PARENT_ROW]), NO_PARENT)  # index -1 gives NO_PARENT
    at = positions(ops[C.ROW_ID], rows)
    while (climbing := parent[at] != NO_PARENT).any():
        at[climbing] = parent[at[climbing]]
    ids = np.append(ints(ops, C.ROW_ID), NO_PARENT)[at]
    top = pd.Series(ids, index=rows.index).astype("Int64").mask(at == NO_PARENT)
    return pd.Series(texts(host_rows(run, top, [C.NAME])[C.NAME], NO_OP), index=rows.index)


def _is(*kinds: HostKind) -> pc.Expression:
    return pc.field(C.KIND).isin([str(kind) for kind in kinds])


def host_waits(run: Run, copies: pd.DataFrame) -> pd.DataFrame:
    """Starts and durations of the launching call of each copy and of the wait directly after it.

    Missing if the launch is unknown; the wait is 0 if none follows.
    """
    launch = host_rows(run, copies[C.LAUNCH_ROW], [C.PARENT_ROW])
    inside = run.arrow("host_intervals", columns=[C.ROW_ID], where=_is(HostKind.OP))
    parents = launch[C.PARENT_ROW].dropna().unique()
    ops = pd.Index(parents).intersection(pd.Index(inside[C.ROW_ID].to_numpy()))
    calls = _calls(run, copies[C.LAUNCH_ROW], ops.to_numpy(dtype=np.int64))
    at = positions(calls[C.ROW_ID], copies[C.LAUNCH_ROW])
    unknown = pd.Series(at == NO_PARENT, index=copies.index)
    picked = calls.reindex(at).set_axis(copies.index)
    names = [CALL_START_NS, CALL_NS, WAIT_START_NS, WAIT_NS]
    return pd.DataFrame({name: picked[name].astype("Int64").mask(unknown) for name in names})


def _calls(run: Run, launches: pd.Series, ops: Ints) -> pd.DataFrame:
    """Runtime calls inside these ops and these launches, each with the wait that directly follows it."""
    own = pa.array(np.unique(launches.dropna().to_numpy(dtype=np.int64)), pa.int64())
    near = pc.field(C.ROW_ID).isin(own) | pc.field(C.PARENT_ROW).isin(pa.array(ops, pa.int64()))
    calls = run.table(
        "host_intervals",
        columns=[C.ROW_ID, C.NAME, C.PARENT_ROW, C.RANK, C.PID, C.TID, C.START_NS, C.DUR_NS],
        where=_is(HostKind.RUNTIME, HostKind.SYNC) & near,
    ).sort_values([C.RANK, C.PID, C.TID, C.START_NS, C.ROW_ID], ignore_index=True)
    after = calls[[C.PARENT_ROW]].shift(-1)
    waits = matches(calls[C.NAME], WAIT_PATTERN).shift(-1, fill_value=False)
    follows = waits & (after[C.PARENT_ROW] == calls[C.PARENT_ROW])
    followed = follows.fillna(value=False).to_numpy(dtype=bool)
    duration, start = ints(calls, C.DUR_NS), ints(calls, C.START_NS)
    return pd.DataFrame(
        {
            C.ROW_ID: calls[C.ROW_ID],
            CALL_START_NS: start,
            CALL_NS: duration,
            WAIT_START_NS: np.where(followed, np.append(start[1:], 0)[: len(start)], start + duration),
            WAIT_NS: np.where(followed, np.append(duration[1:], 0)[: len(start)], 0),
        }
    )


def counted(copies: pd.DataFrame, *, marked: bool) -> pd.DataFrame:
    """Copies in profiled steps, or all if no steps are marked."""
    return copies[copies[C.STEP].notna()] if marked else copies


def per(steps: Budget) -> str:
    """Short unit of amounts in titles; `Budget.per` is longer."""
    return "per step" if steps.marked else "per capture"


def exact_sum(values: pd.Series) -> int | None:
    """Sum of values, None if one is missing."""
    return None if values.isna().any() else int(values.sum())


def evidence(copies: pd.DataFrame, weight: str = C.DUR_NS) -> dict[str, list[int]]:
    """Row ids of the copies with the largest weight and of the calls that launched them."""
    order = copies.assign(**{weight: copies[weight].fillna(0)}).sort_values(
        [weight, C.START_NS, C.ROW_ID], ascending=[False, True, True]
    )
    top = order.head(EVIDENCE_ROWS)
    found = {"device_intervals": [int(row) for row in top[C.ROW_ID]]}
    launches = [int(row) for row in top[C.LAUNCH_ROW].dropna()]
    return found | ({"host_intervals": launches} if launches else {})


def places(copies: pd.DataFrame, weight: str, most: int = 3) -> str:
    """Ops and source lines of these copies, largest weight first: `aten::to at train.py(12): main`."""
    weights = copies.assign(weight=copies[weight].fillna(0))
    sums = weights.groupby([OUTER, SOURCE])["weight"].sum().reset_index()
    sums = sums.sort_values(["weight", OUTER, SOURCE], ascending=[False, True, True])
    words = [_place(op, line) for op, line in zip(sums[OUTER], sums[SOURCE], strict=True)]
    more = f" and {len(words) - most} more places" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def _place(op: str, line: str) -> str:
    named = "an unrecorded op" if op == NO_OP else f"`{brief(op)}`"
    return f"{named} at {brief(line)}" if line else named


def code_by(frame: pd.DataFrame, keys: Sequence[str]) -> tuple[Ints, int]:
    """Number the distinct combinations of keys: the code of each row, and how many there are."""
    grouped = frame.groupby(list(keys), sort=True, dropna=False, observed=True)
    return grouped.ngroup().to_numpy().astype(np.int64), grouped.ngroups


if TYPE_CHECKING:
    Key: TypeAlias = Callable[[Group], Any]
    Pairs: TypeAlias = list[tuple[Group, Group]]

_KEYS: tuple[Key, ...] = (
    lambda one: (one.op, one.shape, one.dtype, one.size, one.memory, one.function),
    lambda one: (one.op, one.shape, one.dtype, one.size, one.memory),
    lambda one: (one.op, one.shape, one.dtype, one.size),
    lambda one: (one.op, one.shape) if one.shape else None,
    lambda one: (one.op, one.dtype, one.dimensions[1:]) if one.shape else None,
    lambda one: (one.op, one.dtype, len(one.dimensions)) if one.shape else None,
    lambda one: (one.op, len(one.dimensions)) if len(one.dimensions) > 1 else None,
)


def matched(
    base: list[Group], head: list[Group], ratios: Collection[Fraction] = ()
) -> list[tuple[Group | None, Group | None]]:
    """Pair each group of one run with its counterpart in the other, None if there is none.

    Args:
        base: Groups of one run.
        head: Groups of the other.
        ratios: Bytes of a copy in base over those in head that the runs' settings explain.
    """
    pairs: Pairs = []
    left, right = base, head
    for key in _KEYS:
        left, right = _pair(pairs, left, right, key, key)
    for op in dict.fromkeys(one.op for one in left):
        for shaped in (False, True):
            ones = [one for one in left if one.op == op and bool(one.shape) is shaped]
            others = [one for one in right if one.op == op and not (shaped and one.shape)]
            found = _by_bytes(ones, others, ratios)
            pairs += found
            left, right = _rest(left, right, found)
    return [*pairs, *((one, None) for one in left), *((None, other) for other in right)]


def _pair(
    pairs: Pairs, left: list[Group], right: list[Group], key: Key, other_key: Key
) -> tuple[list[Group], list[Group]]:
    """Add groups with equal keys to the pairs, in their order; return the remaining groups of both sides."""
    unmatched: dict[Any, list[Group]] = {}
    for one in left:
        if (value := key(one)) is not None:
            unmatched.setdefault(value, []).append(one)
    found = [(queue.pop(0), other) for other in right if (queue := unmatched.get(other_key(other)))]
    pairs += found
    return _rest(left, right, found)


def _rest(left: list[Group], right: list[Group], pairs: Pairs) -> tuple[list[Group], list[Group]]:
    """Return the groups of both sides that are in no pair."""
    taken = {id(one) for pair in pairs for one in pair}
    return [one for one in left if id(one) not in taken], [one for one in right if id(one) not in taken]


def _by_bytes(ones: list[Group], others: list[Group], ratios: Collection[Fraction]) -> Pairs:
    """Pair groups of one op whose shapes cannot be compared."""
    pairs: Pairs = []
    for ratio in (*ratios, Fraction(1)):
        ones, others = _pair(pairs, ones, others, _size, _sized(ratio))
    near = _nearest(*([one for one in side if one.size is not None] for side in (ones, others)))
    left, right = _rest(ones, others, near)
    blank = list(zip([one for one in left if one.size is None], right, strict=False))
    left, right = _rest(left, right, blank)
    return [*pairs, *near, *blank, *zip(left, [one for one in right if one.size is None], strict=False)]


def _size(one: Group) -> int | None:
    return one.size


def _sized(ratio: Fraction) -> Key:
    """Key: bytes of a group of head, scaled to base."""
    return lambda one: None if one.size is None else one.size * ratio


def _nearest(ones: list[Group], others: list[Group]) -> Pairs:
    """Pair each group of the shorter side with the group of the other with the nearest ratio of bytes.

    Sides of equal length are matched in order of size, so that the result is symmetric.
    """
    few, many = sorted((ones, others), key=len)
    left = sorted(many, key=_bytes)
    if len(few) == len(many):
        found = list(zip(sorted(few, key=_bytes), left, strict=True))
    else:
        found = [(one, left.pop(_nearest_at(one, left))) for one in sorted(few, key=_bytes, reverse=True)]
    return found if few is ones else [(other, one) for one, other in found]


def _nearest_at(one: Group, by_size: list[Group]) -> int:
    place = bisect(by_size, _bytes(one), key=_bytes)
    near = range(max(place - 1, 0), min(place + 1, len(by_size)))
    return min(near, key=lambda at: _times(_bytes(one), _bytes(by_size[at])))


def _bytes(one: Group) -> int:
    return max(one.size or 0, 1)


def _times(one: int, other: int) -> Fraction:
    return Fraction(max(one, other), min(one, other))


LARGE_BYTES = 1 << 20
REACHED_SHARE = 0.8
LINK, SEEN, CEILING, REACHABLE = "link_gb_per_s", "seen_gb_per_s", "ceiling_gb_per_s", "reachable_gb_per_s"


def ceilings(run: Run, copies: pd.DataFrame) -> pd.DataFrame:
    """Known rates of each rank, device and direction of these copies; missing if unknown."""
    keys = [*KEYS, DIRECTION]
    table = copies[keys].drop_duplicates().sort_values(keys, ignore_index=True)
    large = copies[(copies[MEMORY] == str(Memory.PINNED)) & (copies[C.BYTES] >= LARGE_BYTES)]
    large = large[large[C.DUR_NS] > 0]
    rates = large[C.BYTES].astype(float) / large[C.DUR_NS].astype(float)
    best = large[keys].assign(**{SEEN: rates}).groupby(keys, as_index=False)[SEEN].max()
    table = table.merge(best, on=keys, how="left")
    links = link_rates(run)
    table[LINK] = table[C.DEVICE].map(links).astype(float)
    table[CEILING] = table[[LINK, SEEN]].max(axis=1)
    table[REACHABLE] = table[SEEN].fillna(table[LINK] * REACHED_SHARE)
    return table


def faster_ns(size: pd.Series, duration: pd.Series, rate: pd.Series) -> pd.Series:
    """Time each copy would save at a rate, at least 0; missing if size or rate is unknown."""
    known = size.notna() & rate.notna()
    wanted = (size.astype(float) / rate.astype(float)).where(known).round().astype("Int64")
    return (duration.astype("Int64") - wanted).clip(lower=0)
