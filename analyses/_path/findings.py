"""What follows from the critical path: only what the longest path worked out anew can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit import intervals
from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Rule
from tracekit.intervals import covered
from tracekit.kernel_names import LINE, brief
from tracekit.savings import budget
from tracekit.schema import C

from .._idle.causes import CLOCKS_NS
from .._shared.common import ints
from .._shared.hosts import NO_OP, host_rows, source_lines
from .._shared.units import duration, percent
from .host import RUNTIME, SYNC
from .tables import HOST_KINDS, TOTAL
from .walk import COMMUNICATE, MEMCPY
from .whatif import CLASS, COMMUNICATION, COPIES, HOST_OP, WAITS

if TYPE_CHECKING:
    from tracekit.run import Run
    from tracekit.savings import Budget

    from .walk import Graph
    from .whatif import Span

BOUNDS_SHARE = 0.10
CONFIDENCE = 0.7
"""The path was seen; that the rest keeps its length when a part goes is a model."""

_WHY = (
    "below a tenth the model's simplifications (calls keep their length, the profiler's cost is included) "
    "are no longer small against what it says"
)


BEHIND = "behind_ns"
"""Idle time of a rank's devices right behind its waits, in its steps."""
IDLE = "idle_ns"
"""How much of a segment all devices of the rank were idle between their first start and last end."""
RUNS_AHEAD = 2
"""How many times the idle time right behind its waits a host gains that runs ahead without them."""


def _rule(code: str, what: str, besides: str = "") -> Rule:
    return Rule(
        code,
        f"the longest path without {what}, worked out anew, is shorter by at least 10% of the steps' time"
        + besides,
        _WHY,
    )


RULES = (
    _rule(
        "critical_path_host_op",
        "the own host time of one op",
        ", and in half of that op's time on the path or more a device worked or none had begun (else "
        "`idle_gaps` names it)",
    ),
    _rule(
        "critical_path_sync_waits",
        "the host's waits for the device",
        ", and by more than twice the idle time right behind the waits (else `sync_points` names them)",
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
    WAITS: "The host's waits for the device keep it from running ahead",
    COPIES: "Copies are on the critical path",
    COMMUNICATION: "Communication is on the critical path",
}
_ADVICE = {
    WAITS: (
        "Let the host run ahead: read results (`.item()`, `.cpu()`, printing) less often or a step later; "
        "`sync_points` lists the calls"
    ),
    COPIES: (
        "Copy from pinned memory with `non_blocking=True` on a stream of their own, ahead of the step that "
        "needs them, or copy less"
    ),
    COMMUNICATION: (
        "Overlap it with computation, or send less; the kernels include the wait for other ranks, so compare "
        "the ranks before blaming the link"
    ),
}


def findings(run: Run, paths: pd.DataFrame, what_if: pd.DataFrame) -> tuple[Finding, ...]:
    """Advice on what bounds the steps, ranks together, the largest saving first."""
    known = budget(run)
    total = what_if.groupby(["where", "removed"], sort=True)[TOTAL].sum()
    ordered = total.reset_index().sort_values([TOTAL, "where", "removed"], ascending=[False, True, True])
    behind = int(what_if.drop_duplicates(C.RANK)[BEHIND].sum())
    found = []
    for row in ordered.itertuples(index=False):
        where, what, saving = str(row.where), str(row.removed), int(getattr(row, TOTAL))
        if not known.matters(saving, least=BOUNDS_SHARE):
            continue
        if where == HOST_OP:
            own = paths[(paths["op"] == what) & paths[C.KIND].isin(HOST_KINDS)]
            if 2 * own[IDLE].sum() <= own[C.DUR_NS].sum():
                found.append(_of_op(run, own, what, saving, known))
        elif where == CLASS and what in _CODES and (what != WAITS or saving > RUNS_AHEAD * behind):
            found.append(_of_class(run, paths, what, saving, known))
    return tuple(found)


def with_idle(path: pd.DataFrame, own: Graph) -> pd.DataFrame:
    """The segments of a rank with how much of each its devices were idle, all of them."""
    gaps = intervals.gaps(own.device.start, own.device.end)
    start = ints(path, C.START_NS)
    return path.assign(**{IDLE: covered(gaps, start, start + ints(path, C.DUR_NS))})


def idle_behind_waits(own: Graph, span: Span) -> int:
    """Σ over the idle times of a rank, all its devices together, of the smaller of it and the wait before."""
    joins = own.joins
    waits = np.flatnonzero(joins.is_call)
    if not len(waits):
        return 0
    start, end = intervals.intersect(intervals.gaps(own.device.start, own.device.end), span.steps)
    begun, done = joins.source[waits], joins.end[waits]
    order = np.argsort(done, kind="stable")
    place = np.searchsorted(done[order], start - CLOCKS_NS)
    wait = order[np.minimum(place, len(order) - 1)]
    fits = (place < len(order)) & (begun[wait] < start)
    return int(np.where(fits, np.minimum(end - start, done[wait] - begun[wait]), 0).sum())


def _of_op(run: Run, own: pd.DataFrame, op: str, saving: int, known: Budget) -> Finding:
    rows = _longest(own, "host_row")
    what = "what runs between ops" if op == NO_OP else brief(op)
    name = "Host time outside of ops" if op == NO_OP else f"Host time of {what}"
    source = next((line for line in source_lines(run, pd.Series(rows, dtype="Int64")) if line), "")
    at = f" at {brief(source, LINE)}" if source else ""
    inside = _most_called(run, own)
    advice = (
        f"Shorten, batch or move off the launching thread what {what} does on the host{at}: what comes after "
        "it on the path waits for it"
    )
    if inside:
        advice = (
            f"Most of the host time of {what}{at} is in {inside}: where that is a first use (loading, "
            "autotuning), record after more warm-up; else keep such calls out of the step"
        )
    if op == NO_OP:
        stacks = "" if source else "; record stacks (`tracekit collect --stacks`) to see which lines"
        advice = (
            f"Python or other code between ops is on the path{at}{stacks}: move it to another thread, or "
            "let torch.compile or CUDA graphs take its place"
        )
    title = f"{name} is on the critical path: {_worth(saving, known)}"
    return _finding(
        "critical_path_host_op", title, advice, saving, known, f"the own host time of {what}", rows, own
    )


def _most_called(run: Run, own: pd.DataFrame) -> str:
    """The runtime call that more than half of an op's host time is in, empty if there is none."""
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
        title = f"{_TITLES[what]}: {_worth(saving, known, 'them')}"
        return _finding(code, title, _ADVICE[what] + longest, saving, known, f"all {what}", rows, own)
    amount, length = (duration(known.per_step(total)) for total in (saving, int(own[C.DUR_NS].sum())))
    title = (
        f"{_TITLES[what]}: of {length} there at most {amount} {known.per} would go without "
        f"{'it' if what == COMMUNICATION else 'them'}, {percent(known.share(saving))} of the time"
    )
    rows = _longest(own, "host_row")
    return _finding(code, title, _advice(what, own), saving, known, f"all {what}", rows, own)


def _longest_waits(run: Run, own: pd.DataFrame) -> tuple[list[int], str]:
    """Rows of the waits on the path, the longest first, and which call and op wait longest in all."""
    waits = own.dropna(subset=["host_row"]).drop_duplicates("host_row")
    if waits.empty:
        return [], ""
    waits = waits.assign(**host_rows(run, waits["host_row"], [C.NAME, C.DUR_NS]))
    waits = waits.astype({"op": object})  # ties go by name, categories by their order in the file
    total = waits.groupby([C.NAME, "op"])[C.DUR_NS].sum().reset_index()
    most = total.sort_values([C.DUR_NS, C.NAME, "op"], ascending=[False, True, True]).iloc[0]
    place = "outside of ops" if most["op"] == NO_OP else f"in {brief(str(most['op']))}"
    ordered = waits.sort_values([C.DUR_NS, "host_row"], ascending=[False, True])["host_row"]
    where = f"{brief(str(most[C.NAME]))} {place}"
    return [int(row) for row in ordered[:EVIDENCE_ROWS]], f". On the path most is waited in {where}"


def _advice(what: str, own: pd.DataFrame) -> str:
    """What to do, and about which op first."""
    by_op = own.astype({"op": object}).groupby("op")[C.DUR_NS].sum()
    named = by_op[by_op.index != NO_OP]
    if named.empty:
        return _ADVICE[what]
    return f"{_ADVICE[what]}; most of the time on the path is of {brief(str(named.idxmax()))}"


def _worth(saving: int, known: Budget, it: str = "it") -> str:
    amount = duration(known.per_step(saving))
    return f"at most {amount} less {known.per} without {it}, {percent(known.share(saving))} of the time"


def _longest(own: pd.DataFrame, column: str) -> list[int]:
    """Ids of the rows with the most time on the path."""
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
            f"the longest path through the recorded dependences worked out again with {without} taking no "
            "time, against the recorded one: an upper bound, in which host times include the profiler's cost"
        ),
        confidence=CONFIDENCE,
        evidence={table: ids for table, ids in evidence.items() if ids},
    )
