"""How long launches take on the host and until the device starts them, and how full the queue is.

A launch is a runtime or driver call that gave intervals on a device; the first of them counts, so that a
CUDA graph's replay is one launch. Times are integer nanoseconds.

* api = length of the call; delay = max(0, start on the device − end of the call); reach = start on the
  device − start of the call, negative where the clocks of host and device disagree. A long delay is no fault:
  it says that the host runs ahead of a busy device.
* `queue`: per device, launches called and not started: +1 at the call's start, −1 at the first interval's
  start (not before the call's). The mean is over time, from the device's first start to its last end.
  launch_bound_share is the share of that time with nothing in the queue and the device idle.
* `slowest`: the 50 longest calls, with a reason where the trace shows one: a full queue (1,000 launches or
  more were waiting: the driver then blocks the caller), the profiler's overhead or the loading of code during
  the call, a copy that blocked, an allocation on another thread, the kernel's first launch in the capture.
* `histogram`: calls and delays by length, in powers of two of 1 µs.

Medians are the lower of the two middle values, p95 the smallest value that 95% do not exceed.

Source: HTA's CUDA kernel launch statistics and queue length. HTA's mean length is over the instants at which
it changes, per stream, and so counts a queue that is full for long like one that is full for a moment.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "launch_latency")  # doctest: +SKIP
    >>> result.tables["queue"]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Analysis, Basis, Column, Finding, Result, Rule, TableSpec
from tracekit.savings import budget
from tracekit.schema import C, DeviceKind

from ._latency import launches, reasons
from ._latency.launches import (
    API_NS,
    AT,
    BEGUN_NS,
    CALL,
    CALLED_NS,
    DELAY_NS,
    DEPTH,
    IDLE_IN_CALL,
    KIND,
    PLACE,
    REACH_NS,
)
from ._shared import gaps, host_lines
from ._shared.common import DEVICE, RANK, absent_device_note, ints
from ._shared.hosts import NO_OP, source_lines
from ._shared.units import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.intervals import Ints
    from tracekit.run import Run
    from tracekit.savings import Budget

    from ._shared.host_lines import HostLines

SLOWEST = 50
SLOW_NS = 20_000
USUAL_NS = 5_000
"""A launch call takes about this long; what is below it is not called an excess."""
FEWEST = 20
UNIT_NS = 1_000
WHY, HOST_ROW, SOURCE = "why", "host_row", "source_line"

NO_LINKS = (
    "no device interval could be linked to its launch call, so nothing is known of launches: record the CUDA "
    "runtime calls too (`--collector torch` does)"
)
SLOW_CALLS = Rule(
    "slow_launch_calls",
    states="the median call that launches a kernel takes more than 20 µs (of 20 or more), and the device was "
    "idle during such calls for 1% of the steps or more beyond 5 µs a call",
    why="a launch call takes 3 to 10 µs; a median of twice the upper end is the machine's, not the program's",
)


def compute(run: Run) -> Result:
    """Measure each launch of a run."""
    device = gaps.occupying(run)
    if device.empty:
        return Result(notes=(absent_device_note(run),))
    host = host_lines.read(run)
    table = launches.launches(device, host)
    if table.empty:
        return Result(notes=(NO_LINKS,))
    tables = {
        "summary": _summary(table),
        "queue": launches.queue(table, device)[[column.name for column in _QUEUE]],
        "slowest": _slowest(run, table, device, host),
        "histogram": _histogram(table),
    }
    return Result(tables, _findings(run, table), _notes(device, table))


def _notes(device: pd.DataFrame, table: pd.DataFrame) -> tuple[str, ...]:
    unlinked, early = int(device[C.LAUNCH_ROW].isna().sum()), int((table[REACH_NS] < 0).sum())
    notes = []
    if unlinked:
        verb = "has" if unlinked == 1 else "have"
        notes.append(
            f"{unlinked:,} of {len(device):,} device intervals {verb} no recorded launch and no part in it: "
            "the queue was at least as deep as shown"
        )
    if early:
        some = "launch starts" if early == 1 else "launches start"
        notes.append(
            f"{early:,} {some} on the device before the call began: the clocks of host and device disagree, "
            "and short delays mean little"
        )
    return tuple(notes)


def _summary(table: pd.DataFrame) -> pd.DataFrame:
    """One row per device and kind of launch."""
    rows = []
    for key, own in table.groupby([*PLACE, KIND], sort=True):
        api, delay, reach = (np.sort(ints(own, name)) for name in (API_NS, DELAY_NS, REACH_NS))
        row = {**dict(zip([*PLACE, KIND], key, strict=True)), "launches": len(own)}
        row |= {"api_median_ns": _at(api, 0.5), "api_p95_ns": _at(api, 0.95), "api_max_ns": int(api[-1])}
        row |= {"delay_median_ns": _at(delay, 0.5), "delay_p95_ns": _at(delay, 0.95)}
        row |= {"delay_max_ns": int(delay[-1]), "reach_median_ns": _at(reach, 0.5)}
        row |= {"api_sum_ns": int(api.sum()), "early": int((reach < 0).sum())}
        rows.append(row)
    return pd.DataFrame(rows)[[column.name for column in _SUMMARY]]


def _at(ordered: Ints, part: float) -> int:
    """The smallest value that this part of the values does not exceed."""
    return int(ordered[max(0, int(np.ceil(part * len(ordered))) - 1)])


def _histogram(table: pd.DataFrame) -> pd.DataFrame:
    longest = max(int(ints(table, API_NS).max()), int(ints(table, DELAY_NS).max()), UNIT_NS)
    bins = int(longest // UNIT_NS).bit_length()
    edges = np.array([0, *(UNIT_NS << place for place in range(bins + 1))], np.int64)
    frames = []
    for key, own in table.groupby(PLACE, sort=True):
        counts = {
            name: np.bincount(np.searchsorted(edges, ints(own, column), side="right") - 1, minlength=bins + 1)
            for name, column in (("calls", API_NS), ("delays", DELAY_NS))
        }
        place = dict(zip(PLACE, key, strict=True))
        frames.append(pd.DataFrame({**place, "from_ns": edges[:-1], "to_ns": edges[1:], **counts}))
    found = pd.concat(frames, ignore_index=True)
    return found[(found["calls"] > 0) | (found["delays"] > 0)].reset_index(drop=True)


def _slowest(run: Run, table: pd.DataFrame, device: pd.DataFrame, host: HostLines) -> pd.DataFrame:
    """The longest calls, with the reason where there is evidence of one."""
    order = [API_NS, CALLED_NS, C.ROW_ID]
    first = table.sort_values(order, ascending=[False, True, True])[:SLOWEST].reset_index(drop=True)
    rows = first[AT].to_numpy()
    op = host.at(first[C.OP_ROW])
    first[WHY] = reasons.reasons(first, table, device, host)
    first["op"] = host.labels(op, NO_OP)
    first[HOST_ROW] = host.ids(rows).astype(np.int64)
    first[SOURCE] = source_lines(run, host.ids(np.where(op >= 0, op, rows)))
    first[C.NAME] = first[C.NAME].astype(object)
    return first[[column.name for column in _SLOWEST]]


def _findings(run: Run, table: pd.DataFrame) -> tuple[Finding, ...]:
    """Advice where kernel launches are slow throughout and the device idles during them."""
    allowed = budget(run)
    kernels = table[table[KIND] == DeviceKind.KERNEL]
    if allowed.marked:
        kernels = kernels[kernels[C.STEP].notna()]
    if len(kernels) < FEWEST:
        return ()
    median = _at(np.sort(ints(kernels, API_NS)), 0.5)
    costly = kernels.assign(excess=np.maximum(ints(kernels, IDLE_IN_CALL) - USUAL_NS, 0))
    by_device = costly.groupby(PLACE, as_index=False)["excess"].sum()
    saving = int(by_device.groupby(C.RANK)["excess"].max().sum())
    if median <= SLOW_NS or not allowed.matters(saving):
        return ()
    return (_finding(costly, median, saving, allowed),)


def _finding(costly: pd.DataFrame, median: int, saving: int, allowed: Budget) -> Finding:
    weighty = costly.sort_values(["excess", C.ROW_ID], ascending=[False, True])[:EVIDENCE_ROWS]
    return Finding(
        code=SLOW_CALLS.code,
        severity=allowed.severity(saving),
        title=f"Launching a kernel takes {duration(median)} on the host (median of {len(costly):,} calls)",
        advice=(
            "Calls this slow point to the machine: a slow or throttled CPU, fewer cores than threads, a "
            "tracing tool beside this one, or a virtual machine. Compare with another machine; until then "
            "launch less often (CUDA graphs, torch.compile)"
        ),
        saving_ns_per_step=allowed.per_step(saving),
        basis=Basis.ESTIMATED,
        how=f"Σ of the device's idle time during each such call beyond 5 µs, {allowed.per}; it is a part of "
        "what `idle_gaps` calls launch_bound, not in addition to it",
        confidence=0.6,
        evidence={
            "device_intervals": _ids(weighty[C.ROW_ID]),
            "host_intervals": _ids(weighty[C.LAUNCH_ROW]),
        },
    )


def _ids(rows: Sequence[int] | pd.Series) -> list[int]:
    return [int(row) for row in rows]


_KIND = Column(KIND, "", "what was launched: kernel, memcpy, memset, or graph (a replay, counted once)")
_LAUNCHES = Column("launches", "count", "launch calls")

_SUMMARY = (
    *(RANK, DEVICE, _KIND, _LAUNCHES),
    Column("api_median_ns", "ns", "median length of the call"),
    Column(
        "delay_median_ns", "ns", "median delay from the call's end to the start on the device, 0 if before"
    ),
    Column("api_p95_ns", "ns", "95th percentile of the calls"),
    Column("delay_p95_ns", "ns", "95th percentile of the delays"),
    Column("reach_median_ns", "ns", "median from the call's start to the start on the device, signed"),
    Column("api_max_ns", "ns", "longest call"),
    Column("delay_max_ns", "ns", "longest delay"),
    Column("api_sum_ns", "ns", "Σ of the calls"),
    Column("early", "count", "launches that start on the device before their call, by its clock"),
)
_QUEUE = (
    *(RANK, DEVICE),
    Column("launch_bound_share", "share", "time with an empty queue and the device idle, over the window"),
    Column("mean_depth", "", "mean number of launches called and not started, over time"),
    Column("max_depth", "count", "most launches called and not started"),
    _LAUNCHES,
    Column("empty_idle_ns", "ns", "time with an empty queue and the device idle"),
    Column("empty_ns", "ns", "time with an empty queue"),
    Column("idle_ns", "ns", "time the device is idle"),
    Column("window_ns", "ns", "first start to last end on the device"),
)
_SLOWEST = (
    Column(CALL, "", "the launch call"),
    Column(API_NS, "ns", "its length"),
    Column(WHY, "prose", "what the trace shows of the reason; empty where it shows none"),
    Column("op", "", "innermost op around it"),
    Column(SOURCE, "", "user's source line; empty where no stack was recorded"),
    Column(C.NAME, "", "what it launched first"),
    Column(DELAY_NS, "ns", "from its end to the start on the device, 0 if before"),
    Column(IDLE_IN_CALL, "ns", "the part of the call in which the device was idle, inside of its window"),
    Column(DEPTH, "count", "launches of the device that waited when the call began"),
    Column(CALLED_NS, "ns", "start of the call"),
    Column(BEGUN_NS, "ns", "start on the device"),
    *(RANK, DEVICE, _KIND),
    Column(HOST_ROW, "", "row of the call in host_intervals"),
    Column(C.ROW_ID, "", "row of what it launched first in device_intervals"),
)
_HISTOGRAM = (
    *(RANK, DEVICE),
    Column("from_ns", "ns", "lower edge of the bin"),
    Column("to_ns", "ns", "upper edge of the bin, exclusive"),
    Column("calls", "count", "launch calls of that length"),
    Column("delays", "count", "delays of that length"),
)

ANALYSIS = Analysis(
    name="launch_latency",
    title="Launch latency",
    question="How long do launches take until the device starts, and does its queue run dry?",
    definition=(
        "api = length of the launch call; delay = max(0, start on the device − end of the call); reach = "
        "start on the device − start of the call; of a CUDA graph's replay the first interval counts. Queue: "
        "+1 at each call's start, −1 at its first interval's start; launch-bound share = time with an empty "
        "queue and the device idle over the device's window."
    ),
    tables=(
        TableSpec("summary", "Launches by kind, per device", _SUMMARY),
        TableSpec("queue", "Launches called and not started, per device", _QUEUE),
        TableSpec("slowest", f"The {SLOWEST} longest launch calls", _SLOWEST),
        TableSpec("histogram", "Calls and delays by length", _HISTOGRAM),
    ),
    sources=("HTA CUDA kernel launch statistics", "HTA queue length"),
    order=42,
    compute=compute,
    rules=(SLOW_CALLS,),
)
