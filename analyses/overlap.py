"""How much of the copies and of the communication ran beside kernels, and how much stood alone.

K, C and N are the kernels, the memcpys and the communication kernels (told by their names) of one device; N
is a part of K, and K∖N are the kernels that are not communication. |X| is the length of the union of X, in
exact integer nanoseconds.

* Copies of one direction: overlapped = |C∩K|, exposed = |C∖K|. Their sum is |C|, the denominator of the
  shares. Directions may overlap each other, so theirs do not sum to those of all copies.
* Communication: overlapped = |N∩(K∖N)|, exposed = |N∖(K∖N)|. Their sum is |N|, the denominator of the
  shares.
* Collectives: the same for the kernels of one kind of collective. Kinds may overlap each other.
* Streams: busy = time with work (kernel, copy, memset, opaque graph) on at least one stream of the device,
  concurrent = on at least two; the denominator of the share is busy.
* `whole`: all that was recorded. `per_step`: the part of each interval inside the step's window, from its
  start to the later of its end on the host and the end of the last interval launched in it.
  `profiled_steps`: inside the union of those windows.

The numbers of communication are those of `gpu_breakdown`. Its movement is |(C∪S)∖K| with memsets S, so it
equals the exposed copies where nothing is set. TraceLens counts as exposed a memcpy beside neither
computation nor communication, with memsets as computation: the same number where no memset runs beside a
copy. TorchExpert subtracts overlap twice, which is not copied here.

A saving is at most the exposed time, and at most the time of kernels with nothing of the kind beside them,
since only they can hide more. Devices of one rank run side by side, so the one with most counts.

Thresholds: exposed time of 3% of a step, since rearranging a program costs work; copies between places of
one device are left out: they use the memory that kernels would use.

Sources: HTA communication/computation overlap; TraceLens GPU timeline; nsys recipes.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "overlap")  # doctest: +SKIP
    >>> result.tables["whole"]  # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit import intervals
from tracekit.analysis import Analysis, ByRank, Column, Remark, Result, Rule, TableSpec
from tracekit.run import busy
from tracekit.savings import Spent, budget_of, spent
from tracekit.schema import C, CopyKind, DeviceKind
from tracekit.windows import END_NS, step_windows

from ._overlap.advice import ADVISED, ALL_COPIES, findings
from ._overlap.exposed import COMMUNICATION, WHAT, Exposed, joined, measured
from ._overlap.tables import KEYS, collectives, extent, per_window, streams, together
from ._shared.common import DEVICE, NO_STEPS, RANK, STEP, absent_device_note, ints, spans
from ._shared.lanes import communicates, lanes
from ._shared.stacking import stacked_by_name
from .gpu_breakdown import OPAQUE_GRAPHS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.run import Run

_READ = (
    C.ROW_ID,
    C.KIND,
    C.NAME,
    C.RANK,
    C.DEVICE,
    C.STREAM,
    C.START_NS,
    C.DUR_NS,
    C.STEP,
    C.OP_ROW,
    C.BYTES,
    C.COPY_KIND,
    C.SRC_MEMORY,
    C.DST_MEMORY,
)
_TABLES = ("whole", "profiled_steps", "per_step", "collectives", "streams")
NOTHING = Remark("neither copies nor communication kernels in this capture: there is nothing to overlap")
NO_STREAMS = "no streams were recorded for {count:,} device intervals; they are left out of the table streams"


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What is kept of some ranks.

    Attributes:
        tables: Their rows of the tables; empty where they have no device.
        exposed: What stands alone, by subject.
        spent: Their steps.
        ranks: How many of them have a device.
        opaque: Whether a graph was recorded as one block.
        unplaced: Device intervals without a stream.
    """

    tables: dict[str, pd.DataFrame]
    spent: Spent
    exposed: dict[str, Exposed] = field(default_factory=dict)
    ranks: int = 0
    opaque: bool = False
    unplaced: int = 0


def keep(run: Run) -> Kept:
    """Measure what copies and communication overlapped."""
    frame = busy(run, _READ)
    if frame.empty:
        return Kept(tables={}, spent=spent(run))
    rows = frame.assign(**{WHAT: _what(frame)})
    windows = step_windows(run)
    tables = {name: table for name, parts in _measured(rows, windows).items() if len(table := _joined(parts))}
    present = set(tables["whole"][WHAT]) if "whole" in tables else set()
    talk = rows[rows[WHAT] == COMMUNICATION]
    if len(talk):
        tables["collectives"] = collectives(run, rows, talk)
    on_streams = rows[rows[C.STREAM].notna()]
    if len(on_streams):
        tables["streams"] = streams(on_streams)
    return Kept(
        tables=tables,
        spent=spent(run),
        exposed={
            what: measured(run, rows, what, windows) for what in (COMMUNICATION, *ADVISED) if what in present
        },
        ranks=rows[C.RANK].nunique(),
        opaque=bool((rows[C.KIND] == DeviceKind.GRAPH).any()),
        unplaced=int(rows[C.STREAM].isna().sum()),
    )


def combine(run: Run, kept: Sequence[Kept]) -> Result:
    """The tables of all ranks, and what their exposed time together advises."""
    if not any(one.ranks for one in kept):
        return Result(notes=(absent_device_note(run),))
    tables = stacked_by_name([one.tables for one in kept], _TABLES)
    subjects = dict.fromkeys(what for one in kept for what in one.exposed)
    exposed = {what: joined([one.exposed[what] for one in kept if what in one.exposed]) for what in subjects}
    against = budget_of(one.spent for one in kept)
    advised = findings(run, exposed, against, sum(one.ranks for one in kept))
    return Result(tables, advised, _notes(tables, kept, has_steps=against.marked))


def _notes(tables: dict[str, pd.DataFrame], kept: Sequence[Kept], *, has_steps: bool) -> tuple[str, ...]:
    notes: list[str] = [] if has_steps else [NO_STEPS]
    if "whole" not in tables:
        notes.append(NOTHING)
    if any(one.opaque for one in kept):
        notes.append(OPAQUE_GRAPHS)
    unknown = sum(one.unplaced for one in kept)
    return (*notes, *([NO_STREAMS.format(count=unknown)] if unknown else []))


def _what(frame: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """Communication, the direction of a copy, or nothing of interest."""
    kinds = frame[C.COPY_KIND].astype(object)
    directions = kinds.where(kinds.notna(), str(CopyKind.UNKNOWN)).to_numpy(object)
    is_copy = (frame[C.KIND] == DeviceKind.MEMCPY).to_numpy(bool)
    return np.where(communicates(frame), COMMUNICATION, np.where(is_copy, directions, "")).astype(object)


def _joined(parts: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _measured(rows: pd.DataFrame, windows: pd.DataFrame) -> dict[str, list[pd.DataFrame]]:
    """The parts of the tables `whole`, `profiled_steps` and `per_step`, device by device."""
    parts: dict[str, list[pd.DataFrame]] = {"whole": [], "profiled_steps": [], "per_step": []}
    for (rank, device), own in rows.groupby(KEYS, sort=True):
        unions = lanes(own)
        mine = windows[windows[C.RANK] == rank]
        start, end = ints(mine, C.START_NS), ints(mine, END_NS)
        stepped = intervals.union(start, end)
        for what, kept in _subjects(own):
            key = {C.RANK: rank, C.DEVICE: device, WHAT: what}
            subject = intervals.union(*spans(kept))
            hiding = unions.computation if what == COMMUNICATION else unions.kernels
            extra = _plain(kept)
            parts["whole"].append(together(subject, hiding, extent(kept), key, extra))
            if len(mine):
                parts["profiled_steps"].append(together(subject, hiding, stepped, key, {}))
                keys = {**key, C.STEP: ints(mine, C.STEP)}
                parts["per_step"].append(per_window(subject, hiding, (start, end), keys))
    if parts["per_step"]:
        order = [*KEYS, C.STEP]
        parts["per_step"] = [_joined(parts["per_step"]).sort_values(order, kind="stable")]
    return parts


def _subjects(own: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Communication, all copies, and those of each direction, as far as there are any."""
    copies = own[own[C.KIND] == DeviceKind.MEMCPY]
    found = [(COMMUNICATION, own[own[WHAT] == COMMUNICATION]), (ALL_COPIES, copies)]
    found += [(str(what), rows) for what, rows in copies.groupby(WHAT, sort=True)]
    return [(what, rows) for what, rows in found if len(rows)]


def _plain(kept: pd.DataFrame) -> dict[str, object]:
    """What is told of the whole capture beside the unions."""
    size = kept[C.BYTES]
    known = bool(size.notna().all())
    return {
        "sum_ns": int(ints(kept, C.DUR_NS).sum()),
        "count": len(kept),
        C.BYTES: pd.array([int(size.sum()) if known else None], dtype="Int64"),
    }


_OVERLAP = (
    Column("union_ns", "ns", "at least one of them runs"),
    Column("exposed_ns", "ns", "one runs and no kernel that could hide it"),
    Column("overlapped_ns", "ns", "one runs beside such a kernel"),
    Column("overlapped_share", "share", "overlapped over union"),
)
_PLAIN = (
    Column("sum_ns", "ns", "Σ of durations, overlaps counted twice"),
    Column("count", "count", "how many"),
)
_WHAT = Column(WHAT, "", "communication, all copies, or the copies of one direction")

_BY_RANK = ByRank(map=keep, combine=combine)
ANALYSIS = Analysis(
    name="overlap",
    title="Overlap of copies and communication with kernels",
    question="How much of the copies and of the communication is hidden behind kernels, and how much is not?",
    definition=(
        "Per device, with K kernels, C memcpys (of one direction, or all), N communication kernels (told by "
        "name, a part of K) and |X| the length of the union: copies overlapped = |C∩K|, exposed = |C∖K|; "
        "communication overlapped = |N∩(K∖N)|, exposed = |N∖(K∖N)|; shares are over |C| and |N|. Steps: the "
        "part inside the window from the step's start to the later of its end on the host and the end of the "
        "last interval launched in it. Streams: busy = work on at least one stream, concurrent = on at least "
        "two, its share is over busy."
    ),
    tables=(
        TableSpec(
            "whole",
            "Whole capture, per device",
            (
                RANK,
                DEVICE,
                _WHAT,
                *_OVERLAP,
                *_PLAIN,
                Column(C.BYTES, "bytes", "bytes copied; missing where unknown, as of communication"),
            ),
        ),
        TableSpec(
            "profiled_steps", "Union of the profiled steps, per device", (RANK, DEVICE, _WHAT, *_OVERLAP)
        ),
        TableSpec(
            "collectives",
            "Communication by kind of collective, whole capture",
            (
                RANK,
                DEVICE,
                Column("collective", "", "kind, by the kernel's name and the launching op's"),
                *_OVERLAP,
                *_PLAIN,
            ),
        ),
        TableSpec(
            "streams",
            "Work on several streams at once, whole capture",
            (
                RANK,
                DEVICE,
                Column("streams", "count", "streams with work"),
                Column("busy_ns", "ns", "at least one stream is busy"),
                Column("concurrent_ns", "ns", "at least two streams are busy"),
                Column("concurrent_share", "share", "concurrent over busy"),
                Column("most_streams", "count", "most streams busy at once"),
                Column("sum_ns", "ns", "Σ over the streams of the time each is busy"),
            ),
        ),
        TableSpec("per_step", "Per profiled step and device", (RANK, DEVICE, _WHAT, STEP, *_OVERLAP)),
    ),
    sources=("HTA communication computation overlap", "TraceLens GPU timeline", "nsys recipes"),
    order=35,
    compute=_BY_RANK.whole,
    by_rank=_BY_RANK,
    rules=(
        Rule(
            "exposed_communication",
            "communication runs beside no other kernel, and kernels run beside no communication: the "
            "shorter of the two times is 3% of a step or more",
            "below 3% of a step the gain does not pay for rearranging a program; only computation can hide "
            "communication",
        ),
        Rule(
            "exposed_copies",
            "copies of one direction (H2D, D2H or P2P) run beside no kernel, and kernels beside no such "
            "copy: the shorter of the two times is 3% of a step or more",
            "below 3% of a step the gain does not pay for rearranging a program; copies within a device are "
            "left out because they use the memory that kernels would use",
        ),
    ),
)
