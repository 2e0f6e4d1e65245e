"""Findings on the critical path, from what-if computations of the longest path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Rule
from tracekit.analysis.kernel_names import LINE, brief
from tracekit.analysis.savings import budget
from tracekit.runs import intervals
from tracekit.runs.intervals import covered
from tracekit.schema import C

from ..idle.causes import CLOCKS_NS
from ..shared.common import duration, ints, percent
from ..shared.hosts import NO_OP, host_rows, source_lines
from .host import RUNTIME, SYNC
from .tables import HOST_KINDS, TOTAL
from .walk import COMMUNICATE, MEMCPY
from .whatif import CLASS, COMMUNICATION, COPIES, HOST_OP, WAITS

if TYPE_CHECKING:
    from tracekit.analysis.savings import Budget
    from tracekit.runs.run import Run

    from .walk import Graph
    from .whatif import Span

BOUNDS_SHARE = 0.10
CONFIDENCE = 0.7
"""The path was recorded; that the rest is unchanged when a part is removed is a model."""

_WHY = (
    "below 10% the model's simplifications (calls keep their length, the profiler's cost is included) "
    "are not small compared with the result"
)


IDLE_AFTER_WAITS = "idle_after_waits_ns"
"""Idle time of a rank's devices directly after its waits, in its steps."""
IDLE = "idle_ns"
"""Time of a segment in which all devices of the rank were idle between their first start and last end."""
ASYNC_FACTOR = 2
"""Minimum ratio of the saving without waits to the idle time directly after them."""


def _rule(code: str, what: str, besides: str = "") -> Rule:
    return Rule(
        code,
        f"the longest path, recomputed without {what}, is shorter by at least 10% of the steps' time"
        + besides,
        _WHY,
    )


RULES = (
    _rule(
        "critical_path_host_op",
        "the host time of one op",
        ", and during at least half of that op's time on the path a device was busy or none had started "
        "(else `idle_gaps` reports it)",
    ),
    _rule(
        "critical_path_sync_waits",
        "the host's waits for the device",
        ", and by more than twice the idle time directly after the waits (else `sync_points` reports them)",
    ),
    _rule("critical_path_copies", "copies"),
    _rule("critical_path_communication", "communication kernels"),
)
_CODES = {
    WAITS: ("critical_path_sync_waits", (SYNC,)),
    COPIES: ("critical_path_copies", (MEMCPY,)),
    COMMUNICATION: ("critical_path_communication", (COMMUNICATE,)),
}
_TITLES = {
    WAITS: "The host's waits for the device prevent asynchronous launches",
    COPIES: "Copies are on the critical path",
    COMMUNICATION: "Communication is on the critical path",
}
_ADVICE = {
    WAITS: (
        "Avoid synchronization: read results (`.item()`, `.cpu()`, printing) less often or one step later; "
        "`sync_points` lists the calls"
    ),
    COPIES: (
        "Copy from pinned memory with `non_blocking=True` on a separate stream, before the step that "
        "needs the data, or copy less"
    ),
    COMMUNICATION: (
        "Overlap it with computation, or send less; the kernels include the wait for other ranks, so compare "
        "the ranks first"
    ),
}


def findings(run: Run, paths: pd.DataFrame, what_if: pd.DataFrame) -> tuple[Finding, ...]:
    """Findings on what bounds the steps of all ranks, largest saving first."""
    known = budget(run)
    total = what_if.groupby(["where", "removed"], sort=True)[TOTAL].sum()
    ordered = total.reset_index().sort_values([TOTAL, "where", "removed"], ascending=[False, True, True])
    idle_after = int(what_if.drop_duplicates(C.RANK)[IDLE_AFTER_WAITS].sum())
    found = []
    for row in ordered.itertuples(index=False):
        where, what, saving = str(row.where), str(row.removed), int(getattr(row, TOTAL))
        if not known.matters(saving, least=BOUNDS_SHARE):
            continue
        if where == HOST_OP:
            own = paths[(paths["op"] == what) & paths[C.KIND].isin(HOST_KINDS)]
            if 2 * own[IDLE].sum() <= own[C.DUR_NS].sum():
                found.append(_of_op(run, own, what, saving, known))
        elif where == CLASS and what in _CODES and (what != WAITS or saving > ASYNC_FACTOR * idle_after):
            found.append(_of_class(run, paths, what, saving, known))
    return tuple(found)


def with_idle(path: pd.DataFrame, own: Graph) -> pd.DataFrame:
    """Add the time in which all devices of the rank were idle to each segment."""
    gaps = intervals.gaps(own.device.start, own.device.end)
    start = ints(path, C.START_NS)
    return path.assign(**{IDLE: covered(gaps, start, start + ints(path, C.DUR_NS))})


def idle_after_waits(own: Graph, span: Span) -> int:
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


def _of_op(run: Run, own: pd.DataFrame, op: str, saving: int, known: Budget) -> Finding:
    rows = _longest(own, "host_row")
    what = "code between ops" if op == NO_OP else brief(op)
    name = "Host time outside ops" if op == NO_OP else f"Host time of {what}"
    source = next((line for line in source_lines(run, pd.Series(rows, dtype="Int64")) if line), "")
    at = f" at {brief(source, LINE)}" if source else ""
    inside = _most_called(run, own)
    advice = (
        f"Shorten or batch the host work of {what}{at}, or move it off the launching thread: later work "
        "on the path waits for it"
    )
    if inside:
        advice = (
            f"Most of the host time of {what}{at} is in {inside}: if that is a first use (loading, "
            "autotuning), record after more warm-up; else avoid such calls in the step"
        )
    if op == NO_OP:
        stacks = "" if source else "; record stacks (`tracekit collect --stacks`) to see the lines"
        advice = (
            f"Python or other code between ops is on the path{at}{stacks}: move it to another thread, or "
            "avoid it with torch.compile or CUDA graphs"
        )
    title = f"{name} is on the critical path: {_saving_text(saving, known)}"
    return _finding(
        "critical_path_host_op", title, advice, saving, known, f"the host time of {what}", rows, own
    )


def _most_called(run: Run, own: pd.DataFrame) -> str:
    """Runtime call with more than half of an op's host time, empty if there is none."""
    inside = own[own[C.KIND] == RUNTIME]
    if 2 * inside[C.DUR_NS].sum() <= own[C.DUR_NS].sum():
        return ""
    names = host_rows(run, inside["host_row"], [C.NAME])[C.NAME]
    total = inside.groupby(names)[C.DUR_NS].sum()
    return str(total.idxmax()) if 2 * total.max() > own[C.DUR_NS].sum() else ""


def _of_class(run: Run, paths: pd.DataFrame, what: str, saving: int, known: Budget) -> Finding:
    code, kinds = _CODES[what]
    own = paths[paths[C.KIND].isin(kinds)]
    if what == WAITS:
        rows, longest = _longest_waits(run, own)
        title = f"{_TITLES[what]}: {_saving_text(saving, known, 'them')}"
        return _finding(code, title, _ADVICE[what] + longest, saving, known, f"all {what}", rows, own)
    amount, length = (duration(known.per_step(total)) for total in (saving, int(own[C.DUR_NS].sum())))
    title = (
        f"{_TITLES[what]}: removing {'it' if what == COMMUNICATION else 'them'} saves at most {amount} of "
        f"{length} {known.per}, {percent(known.share(saving))} of the time"
    )
    rows = _longest(own, "host_row")
    return _finding(code, title, _advice(what, own), saving, known, f"all {what}", rows, own)


def _longest_waits(run: Run, own: pd.DataFrame) -> tuple[list[int], str]:
    """Rows of the waits on the path, longest first, and the call and op with the largest total wait."""
    waits = own.dropna(subset=["host_row"]).drop_duplicates("host_row")
    if waits.empty:
        return [], ""
    waits = waits.assign(**host_rows(run, waits["host_row"], [C.NAME, C.DUR_NS]))
    waits = waits.astype({"op": object})  # sort ties by name, not by category order
    total = waits.groupby([C.NAME, "op"])[C.DUR_NS].sum().reset_index()
    most = total.sort_values([C.DUR_NS, C.NAME, "op"], ascending=[False, True, True]).iloc[0]
    place = "outside ops" if most["op"] == NO_OP else f"in {brief(str(most['op']))}"
    ordered = waits.sort_values([C.DUR_NS, "host_row"], ascending=[False, True])["host_row"]
    where = f"{brief(str(most[C.NAME]))} {place}"
    return [int(row) for row in ordered[:EVIDENCE_ROWS]], f". The longest waits on the path are in {where}"


def _advice(what: str, own: pd.DataFrame) -> str:
    """Advice, with the op to change first."""
    by_op = own.astype({"op": object}).groupby("op")[C.DUR_NS].sum()
    named = by_op[by_op.index != NO_OP]
    if named.empty:
        return _ADVICE[what]
    return f"{_ADVICE[what]}; most of the time on the path belongs to {brief(str(named.idxmax()))}"


def _saving_text(saving: int, known: Budget, it: str = "it") -> str:
    amount = duration(known.per_step(saving))
    return f"removing {it} saves at most {amount} {known.per}, {percent(known.share(saving))} of the time"


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
