"""Findings on the critical path, from what-if computations of the longest path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import EVIDENCE_ROWS, Basis, Bottleneck, Finding, Rule
from tracekit.analysis.kernel_names import brief
from tracekit.analysis.savings import WARN_SHARE, Budget, budget
from tracekit.runs import intervals
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind, Memory

from ..idle_gaps.causes import CLOCKS_NS, due_to_launches
from ..shared import collectives
from ..shared.common import duration, percent
from ..shared.host_rows import (
    NO_OP,
    advise_on_wait,
    blocking_calls,
)
from .host import SYNC
from .walk import ALL_KINDS, COMMUNICATE
from .whatif import CLASS, COMMUNICATION, TOTAL, WAITS

if TYPE_CHECKING:
    from .walk import Graph
    from .whatif import Span

BOUNDS_SHARE = 0.10
OUTSIZED = 0.5
"""Share of the time of communication on the path from which a single collective is named."""
CONFIDENCE = 0.7
"""The path was recorded; that the rest is unchanged when a part is removed is a model."""

_WHY = (
    f"below {BOUNDS_SHARE:.0%} the model's simplifications (calls keep their length, the profiler's cost is "
    "included) are not small compared with the result"
)


LEAST = {WAITS: WARN_SHARE, COMMUNICATION: BOUNDS_SHARE}
"""Minimum share of the steps of a bounded saving."""
IDLE_AFTER_WAITS = "idle_after_waits_ns"
"""Idle time of a rank's devices directly after its waits, in its steps."""
UPLOADS, ALL_WAITS = "upload_waits_ns", "all_waits_ns"
"""Time of a rank's waits in its steps: for H2D copies, and for anything."""
COMPUTATION = "computation_ns"
"""Time of a rank's kernels other than communication."""
ASYNC_FACTOR = 2
"""Minimum ratio of the saving without waits to the idle time directly after them."""


def _rule(code: str, what: str, bound: Bottleneck, besides: str) -> Rule:
    return Rule(
        code,
        f"the longest path, recomputed without {what}, is shorter by at least {BOUNDS_SHARE:.0%} of the "
        f"steps' time{besides}",
        _WHY,
        bound=bound,
    )


RULES = (
    _rule(
        "critical_path_sync_waits",
        "the host's waits for the device",
        Bottleneck.SYNC,
        ", and by more than twice the idle time directly after the waits (else `sync_points` reports them); "
        "at most half of the waiting is for H2D copies; the saving is at most the idle time due to waits and "
        f"launches, and at least {LEAST[WAITS]:.0%} of the steps",
    ),
    _rule(
        "critical_path_communication",
        "communication kernels",
        Bottleneck.COMMUNICATION,
        ", without the time in which matched collectives wait for their last rank; there are other kernels",
    ),
)
_CODES = {
    WAITS: ("critical_path_sync_waits", (SYNC,)),
    COMMUNICATION: ("critical_path_communication", (COMMUNICATE,)),
}
_TITLES = {
    WAITS: "The host's waits for the device prevent asynchronous launches",
    COMMUNICATION: "Communication is on the critical path",
}
_OVERLAP = (
    "Overlap it with computation, or send less; the kernels include the wait for other ranks, so compare the "
    "ranks first"
)


def findings(run: Run, paths: pd.DataFrame, what_if: pd.DataFrame) -> tuple[Finding, ...]:
    """Findings on what bounds the steps of all ranks, largest saving first."""
    known = budget(run)
    total = what_if.groupby(["where", "removed"], sort=True)[TOTAL].sum()
    ordered = total.reset_index().sort_values([TOTAL, "where", "removed"], ascending=[False, True, True])
    found = []
    for row in ordered.itertuples(index=False):
        where, what, saving = str(row.where), str(row.removed), int(getattr(row, TOTAL))
        if where == CLASS and what in _CODES and known.matters(saving, least=BOUNDS_SHARE):
            saving = min(saving, _bound(run, what, saving, what_if.drop_duplicates(C.RANK)))
            if known.matters(saving, least=LEAST[what]):
                found.append(_of_class(run, paths, what, saving, known))
    return tuple(found)


def _bound(run: Run, what: str, saving: int, ranks: pd.DataFrame) -> int:
    """Upper bound of a saving from what else is known; 0 if the rule does not apply.

    Args:
        run: The run.
        what: The class of removed parts.
        saving: The saving of the model.
        ranks: A row per rank with the times that `_what_if` measures.
    """
    if what == COMMUNICATION:
        transferring = 1 - collectives.wait_share(collectives.read_collectives(run))
        return int(saving * transferring) if ranks[COMPUTATION].any() else 0
    uploads = 2 * ranks[UPLOADS].sum() > ranks[ALL_WAITS].sum()
    if uploads or saving <= ASYNC_FACTOR * int(ranks[IDLE_AFTER_WAITS].sum()):
        return 0
    return due_to_launches(run)


def measured(own: Graph, span: Span) -> dict[str, int]:
    """Times of a rank in its steps that bound the savings."""
    joins, frame = own.joins, own.device.frame
    waits = np.flatnonzero(joins.is_call & joins.bound & span.contains(joins.end))
    target = joins.target[waits]
    from_host = frame[C.SRC_MEMORY].isin([str(Memory.PAGEABLE), str(Memory.PINNED)])
    uploads = (from_host & (frame[C.DST_MEMORY] == Memory.DEVICE)).to_numpy(bool)
    lengths = joins.end[waits] - joins.source[waits]
    kernels = (frame[C.KIND] == DeviceKind.KERNEL).to_numpy(bool)
    computing = kernels & (own.kind != ALL_KINDS.index(COMMUNICATE))
    return {
        IDLE_AFTER_WAITS: _idle_after_waits(own, span),
        UPLOADS: int(lengths[(target >= 0) & uploads[target]].sum()),
        ALL_WAITS: int(lengths.sum()),
        COMPUTATION: int((own.device.end - own.device.start)[computing].sum()),
    }


def _idle_after_waits(own: Graph, span: Span) -> int:
    """Sum over the common idle times of a rank's devices of the minimum of it and the wait before."""
    joins = own.joins
    waits = np.flatnonzero(joins.is_call)
    if not len(waits):
        return 0
    start, end = intervals.intersect(intervals.gaps(own.device.start, own.device.end), span.steps)
    called, done = joins.source[waits], joins.end[waits]
    order = np.argsort(done, kind="stable")
    place = np.searchsorted(done[order], start - CLOCKS_NS)
    wait = order[np.minimum(place, len(order) - 1)]
    fits = (place < len(order)) & (called[wait] < start)
    return int(np.where(fits, np.minimum(end - start, done[wait] - called[wait]), 0).sum())


def _of_class(run: Run, paths: pd.DataFrame, what: str, saving: int, known: Budget) -> Finding:
    code, kinds = _CODES[what]
    own = paths[paths[C.KIND].isin(kinds)]
    if what == WAITS:
        rows, longest = _longest_waits(run, marked=known.marked)
        title = (
            f"{_TITLES[what]}: removing them saves at most {duration(known.per_step(saving))} {known.per}, "
            f"{percent(known.share(saving))} of the time"
        )
        return _finding(code, title, longest, saving, known, f"all {what}", rows, own)
    amount, length = (duration(known.per_step(total)) for total in (saving, int(own[C.DUR_NS].sum())))
    title = (
        f"{_TITLES[what]}: removing it saves at most {amount} of "
        f"{length} {known.per}, {percent(known.share(saving))} of the time"
    )
    rows = _longest(own, "host_row")
    return _finding(code, title, _advice(run, own), saving, known, f"all {what}", rows, own)


def _advice(run: Run, own: pd.DataFrame) -> str:
    """Advice on communication: the op with most of the time on the path, and a collective that dominates."""
    by_op = own.astype({"op": object}).groupby("op")[C.DUR_NS].sum()
    named = by_op[by_op.index != NO_OP]
    most = ""
    if not named.empty:
        most = f"; most of the time on the path belongs to {brief(str(named.idxmax()))}"
    return _OVERLAP + most + _outsized(run, own)


def _outsized(run: Run, own: pd.DataFrame) -> str:
    """Sentence on a single collective with most of the time on the path of its rank."""
    on_device = own[own["device_row"].notna()]
    total = on_device.groupby("device_row")[C.DUR_NS].sum()
    if total.empty or total.max() <= OUTSIZED * on_device.groupby(C.RANK)[C.DUR_NS].sum().max():
        return ""
    row = pc.field(C.ROW_ID) == int(str(total.idxmax()))
    name = str(run.table("device_intervals", columns=[C.NAME], where=row)[C.NAME].iloc[0])
    return (
        f". A single one, {brief(name)}, takes {duration(int(total.max()))}: send less in it (keep large "
        "results such as logits sharded, or gather only the part that is used)"
    )


def _longest_waits(run: Run, *, marked: bool) -> tuple[list[int], str]:
    """Rows of the calls that wait for a device, longest first, and advice on those with the longest waits."""
    waits = blocking_calls(run, marked=marked)
    if waits.empty:
        return [], "`sync_points` lists the waits"
    total = waits.groupby(["call", "op"])[C.DUR_NS].sum().reset_index()
    most = total.sort_values([C.DUR_NS, "call", "op"], ascending=[False, True, True]).iloc[0]
    call, op, took = str(most["call"]), str(most["op"]), int(most[C.DUR_NS])
    place = "outside ops" if op == NO_OP else f"in {brief(op)}"
    ordered = waits.sort_values([C.DUR_NS, C.ROW_ID], ascending=[False, True])[C.ROW_ID]
    advice = f"The longest waits are in {brief(call)} {place}, {duration(took)} in all. "
    advice += f"{advise_on_wait(call, op)}; "
    return [int(row) for row in ordered[:EVIDENCE_ROWS]], f"{advice}`sync_points` lists the waits"


def _longest(own: pd.DataFrame, column: str) -> list[int]:
    """Ids of the rows with most time on the path."""
    total = own[own[column].notna()].groupby(column)[C.DUR_NS].sum().reset_index()
    ordered = total.sort_values([C.DUR_NS, column], ascending=[False, True])
    return [int(row) for row in ordered[column].head(EVIDENCE_ROWS)]


def _finding(
    code: str,
    title: str,
    advice: str,
    saving: int,
    known: Budget,
    without: str,
    rows: list[int],
    own: pd.DataFrame,
) -> Finding:
    evidence = {"host_intervals": rows, "device_intervals": _longest(own, "device_row")}
    return Finding(
        code,
        known.severity(saving),
        title,
        advice,
        saving_ns_per_step=known.per_step(saving),
        basis=Basis.ESTIMATED,
        how=(
            f"the longest path through the recorded dependencies, recomputed with {without} taking no time, "
            "compared with the recorded one: an upper bound; host times include the profiler's cost"
        ),
        confidence=CONFIDENCE,
        evidence={table: ids for table, ids in evidence.items() if ids},
    )
