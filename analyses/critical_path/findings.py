"""Findings on the critical path, from what-if computations of the longest path."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import EVIDENCE_ROWS, Bottleneck, Finding, Rule, savings
from tracekit.analysis.kernel_names import brief
from tracekit.analysis.savings import WARN_SHARE, Budget
from tracekit.runs import intervals
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind, Memory

from ..idle_gaps.causes import due_to_launches
from ..idle_gaps.context import MAX_CLOCK_SKEW_NS
from ..shared import collectives
from ..shared.common import duration, percent
from ..shared.host_rows import NO_OP, advise_on_wait, largest_waits
from ..shared.pacing import delaying_waits, waited_ns
from .backtrack import ALL_KINDS, COMMUNICATE, Graph
from .host import SYNC
from .whatif import CLASS, COMMUNICATION, TOTAL, WAITS, MeasuredSpan

MIN_OUTSIZED_SHARE = 0.5
"""Share of the time of communication on the path from which a single collective is named."""
CONFIDENCE = 0.7
"""The path was recorded; that the rest is unchanged when a part is removed is a model."""
IDLE_AFTER_WAITS = "idle_after_waits_ns"
"""Idle time of a rank's devices directly after its waits, in its steps."""
UPLOADS, ALL_WAITS = "upload_waits_ns", "all_waits_ns"
"""Time of a rank's waits in its steps: for H2D copies, and for anything."""
COMPUTATION = "computation_ns"
"""Time of a rank's kernels other than communication."""

_STATES = (
    "the longest path, recomputed without {what}, is shorter by at least {{min_model_share}} of the steps' "
    "time"
)
_WHY = (
    "below {min_model_share} the model's simplifications (calls keep their length, the profiler's cost is "
    "included) are not small compared with the result"
)
SYNC_WAITS = Rule(
    "critical_path_sync_waits",
    states=_STATES.format(what="the host's waits for the device")
    + ", and by more than {min_ratio} times the idle time directly after the waits (else `sync_points` "
    "reports them); at most {max_upload_share} of the waiting is for host-to-device copies; the saving is "
    "at most the idle time due to waits and launches, and at least {min_saving_share} of the steps",
    why=_WHY,
    bound=Bottleneck.SYNC,
    thresholds={
        "min_model_share": 0.10,
        "min_ratio": 2,
        "max_upload_share": 0.5,
        "min_saving_share": WARN_SHARE,
    },
)
EXPOSED = Rule(
    "critical_path_communication",
    states=_STATES.format(what="communication kernels")
    + "; at least {min_saving_share} remain without the time in which matched collectives wait for their "
    "last rank; there are other kernels",
    why=_WHY,
    bound=Bottleneck.COMMUNICATION,
    thresholds={"min_model_share": 0.10, "min_saving_share": 0.10},
)
RULES = (SYNC_WAITS, EXPOSED)
_RULES = {WAITS: SYNC_WAITS, COMMUNICATION: EXPOSED}
_TITLES = {
    WAITS: "Host waits prevent asynchronous launches",
    COMMUNICATION: "Communication on the critical path for {length} {per}",
}
_OVERLAP = (
    "Overlap it with computation, or send less; the kernels include the wait for other ranks, so compare the "
    "ranks first"
)


def findings(run: Run, paths: pd.DataFrame, what_if: pd.DataFrame) -> tuple[Finding, ...]:
    """Findings on what bounds the steps of all ranks, largest saving first.

    Args:
        run: The run.
        paths: Segments of the paths of all ranks.
        what_if: What-if tables of all ranks, with the times of `measure_limits`.
    """
    budget = savings.budget(run)
    totals: Counter[str] = Counter()
    for where, what, saving in zip(*(what_if[name] for name in ("where", "removed", TOTAL)), strict=True):
        if where == CLASS:
            totals[what] += int(saving)
    result = []
    for what, saving in sorted(totals.items(), key=lambda total: (-total[1], total[0])):
        if what in _RULES:
            rule = _RULES[what]
            if not budget.matters(saving, least=rule["min_model_share"]):
                continue
            saving = min(saving, _limit(run, what, saving, what_if.drop_duplicates(C.RANK)))
            if budget.matters(saving, least=rule["min_saving_share"]):
                result.append(_class_finding(run, paths, what, saving, budget))
    return tuple(result)


def _limit(run: Run, what: str, saving: int, ranks: pd.DataFrame) -> int:
    """Upper bound of a saving from what else is known; 0 if the rule does not apply."""
    if what == COMMUNICATION:
        transferring = 1 - collectives.wait_share(collectives.read_collectives(run))
        return int(saving * transferring) if ranks[COMPUTATION].any() else 0
    uploads = ranks[UPLOADS].sum() > SYNC_WAITS["max_upload_share"] * ranks[ALL_WAITS].sum()
    if uploads or saving <= SYNC_WAITS["min_ratio"] * int(ranks[IDLE_AFTER_WAITS].sum()):
        return 0
    return due_to_launches(run)


def measure_limits(graph: Graph, span: MeasuredSpan) -> dict[str, int]:
    """Times of a rank in its steps that bound the savings."""
    joins, frame = graph.joins, graph.device.frame
    waits = np.flatnonzero(joins.is_call & joins.bound & span.contains(joins.end))
    target = joins.target[waits]
    from_host = frame[C.SRC_MEMORY].isin([str(Memory.PAGEABLE), str(Memory.PINNED)])
    uploads = (from_host & (frame[C.DST_MEMORY] == Memory.DEVICE)).to_numpy(bool)
    lengths = joins.end[waits] - joins.source[waits]
    kernels = (frame[C.KIND] == DeviceKind.KERNEL).to_numpy(bool)
    computing = kernels & (graph.kind != ALL_KINDS.index(COMMUNICATE))
    return {
        IDLE_AFTER_WAITS: _idle_after_waits(graph, span),
        UPLOADS: int(lengths[(target >= 0) & uploads[target]].sum()),
        ALL_WAITS: int(lengths.sum()),
        COMPUTATION: int((graph.device.end - graph.device.start)[computing].sum()),
    }


def _idle_after_waits(graph: Graph, span: MeasuredSpan) -> int:
    """Sum over the common idle times of a rank's devices of the minimum of it and the wait before."""
    joins = graph.joins
    waits = np.flatnonzero(joins.is_call)
    if not len(waits):
        return 0
    start, end = intervals.intersect(intervals.gaps(graph.device.start, graph.device.end), span.steps)
    called, done = joins.source[waits], joins.end[waits]
    order = np.argsort(done, kind="stable")
    place = np.searchsorted(done[order], start - MAX_CLOCK_SKEW_NS)
    wait = order[np.minimum(place, len(order) - 1)]
    fits = (place < len(order)) & (called[wait] < start)
    return int(np.where(fits, np.minimum(end - start, done[wait] - called[wait]), 0).sum())


def _class_finding(run: Run, paths: pd.DataFrame, what: str, saving: int, budget: Budget) -> Finding:
    path = paths[paths[C.KIND].isin({WAITS: (SYNC,), COMMUNICATION: (COMMUNICATE,)}[what])]
    amount, length = (duration(budget.per_step(total)) for total in (saving, int(path[C.DUR_NS].sum())))
    if what == WAITS:
        rows, advice = _longest_waits(run, budget)
        saves = f"removing them saves up to {amount} {budget.per}"
    else:
        rows, advice = _longest(path, "host_row"), _advice(run, path)
        saves = f"removing it saves up to {amount}"
    evidence = {"host_intervals": rows, "device_intervals": _longest(path, "device_row")}
    return budget.finding(
        _RULES[what],
        saving,
        f"{_TITLES[what].format(length=length, per=budget.per)}: {saves} ({percent(budget.share(saving))})",
        advice,
        f"the longest path through the recorded dependencies, recomputed with all {what} taking no time, "
        "compared with the recorded one: an upper bound; host times include the profiler's cost",
        confidence=CONFIDENCE,
        evidence={table: ids for table, ids in evidence.items() if ids},
    )


def _advice(run: Run, path: pd.DataFrame) -> str:
    """Advice on communication: the op with most of the time on the path, and a collective that dominates."""
    by_op = path.astype({"op": object}).groupby("op")[C.DUR_NS].sum()
    named = by_op[by_op.index != NO_OP]
    most = ""
    if not named.empty:
        most = f"; most of the time on the path belongs to {brief(str(named.idxmax()))}"
    return _OVERLAP + most + _outsized(run, path)


def _outsized(run: Run, path: pd.DataFrame) -> str:
    """Sentence on a single collective with most of the time on the path of its rank."""
    on_device = path[path["device_row"].notna()]
    total = on_device.groupby("device_row")[C.DUR_NS].sum()
    if total.empty or total.max() <= MIN_OUTSIZED_SHARE * on_device.groupby(C.RANK)[C.DUR_NS].sum().max():
        return ""
    row = pc.field(C.ROW_ID) == int(str(total.idxmax()))
    name = str(run.table("device_intervals", columns=[C.NAME], where=row)[C.NAME].iloc[0])
    return (
        f". A single one, {brief(name)}, takes {duration(int(total.max()))}: send less in it (keep large "
        "results such as logits sharded, or gather only the part that is used)"
    )


def _longest_waits(run: Run, budget: Budget) -> tuple[list[int], str]:
    """Rows of the calls that wait for a device, longest first, and advice on the ops with most time."""
    waits = delaying_waits(run, marked=budget.marked)
    if waits.empty:
        return [], "`sync_points` lists the waits"
    places: list[str] = []
    remedies: dict[str, None] = {}
    for op, call, took in largest_waits(waits)[["op", "call", C.DUR_NS]].itertuples(index=False):
        place = "outside ops" if op == NO_OP else f"in {brief(op)}"
        places.append(f"{duration(budget.per_step(took))} {place} ({brief(call)})")
        remedies[advise_on_wait(call, op)] = None
    ordered = waits.sort_values([C.DUR_NS, C.ROW_ID], ascending=[False, True])[C.ROW_ID]
    total = duration(budget.per_step(waited_ns(waits)))
    advice = f"The host waits {total} {budget.per}, {', '.join(places)}. {'. '.join(remedies)}; "
    return [int(row) for row in ordered[:EVIDENCE_ROWS]], f"{advice}`sync_points` lists the waits"


def _longest(path: pd.DataFrame, column: str) -> list[int]:
    """Ids of the rows with most time on the path."""
    total = path[path[column].notna()].groupby(column)[C.DUR_NS].sum().reset_index()
    ordered = total.sort_values([C.DUR_NS, column], ascending=[False, True])
    return [int(row) for row in ordered[column].head(EVIDENCE_ROWS)]
