"""What follows from the critical path: only what the longest path worked out anew can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Rule
from tracekit.render.cells import human
from tracekit.savings import budget
from tracekit.schema import C

from ._hosts import NO_OP, host_rows, source_lines
from ._path_host import RUNTIME, SYNC
from ._path_tables import HOST_KINDS, TOTAL
from ._path_walk import COMMUNICATE, MEMCPY
from ._path_whatif import CLASS, COMMUNICATION, COPIES, HOST_OP, WAITS

if TYPE_CHECKING:
    from tracekit.run import Run
    from tracekit.savings import Budget

BOUNDS_SHARE = 0.10
CONFIDENCE = 0.7
"""The path was seen; that the rest keeps its length when a part goes is a model."""

_WHY = (
    "below a tenth the model's simplifications (calls keep their length, the profiler's cost is included) "
    "are no longer small against what it says"
)


def _rule(code: str, what: str) -> Rule:
    return Rule(
        code,
        f"the longest path without {what}, worked out anew, is shorter by at least 10 % of the steps' time",
        _WHY,
    )


RULES = (
    _rule("critical_path_host_op", "the own host time of one op"),
    _rule("critical_path_sync_waits", "the host's waits for the device"),
    _rule("critical_path_copies", "copies"),
    _rule("critical_path_communication", "communication kernels"),
)
_CODES = {
    WAITS: ("critical_path_sync_waits", (SYNC,)),
    COPIES: ("critical_path_copies", (MEMCPY,)),
    COMMUNICATION: ("critical_path_communication", (COMMUNICATE,)),
}
_TITLES = {
    WAITS: "The host's waits for the device are on the critical path",
    COPIES: "Copies are on the critical path",
    COMMUNICATION: "Communication is on the critical path",
}
_ADVICE = {
    WAITS: (
        "let the host run ahead: read results (`.item()`, `.cpu()`, printing) less often or a step later; "
        "`sync_points` lists the calls"
    ),
    COPIES: (
        "copy from pinned memory with `non_blocking=True` on a stream of their own, ahead of the step that "
        "needs them, or copy less"
    ),
    COMMUNICATION: (
        "overlap it with computation, or send less; the kernels include the wait for other ranks, so compare "
        "the ranks before blaming the link"
    ),
}


def findings(run: Run, paths: pd.DataFrame, what_if: pd.DataFrame) -> tuple[Finding, ...]:
    """Advice on what bounds the steps, ranks together, the largest saving first."""
    known = budget(run)
    total = what_if.groupby(["where", "removed"], sort=True)[TOTAL].sum()
    ordered = total.reset_index().sort_values([TOTAL, "where", "removed"], ascending=[False, True, True])
    found = []
    for row in ordered.itertuples(index=False):
        where, what, saving = str(row.where), str(row.removed), int(getattr(row, TOTAL))
        if not known.matters(saving, least=BOUNDS_SHARE):
            continue
        if where == HOST_OP:
            found.append(_of_op(run, paths, what, saving, known))
        elif where == CLASS and what in _CODES:
            found.append(_of_class(run, paths, what, saving, known))
    return tuple(found)


def _of_op(run: Run, paths: pd.DataFrame, op: str, saving: int, known: Budget) -> Finding:
    own = paths[(paths["op"] == op) & paths[C.KIND].isin(HOST_KINDS)]
    rows = _weightiest(own, "host_row")
    name = "Host time outside of ops" if op == NO_OP else f"Host time of {op}"
    source = next((line for line in source_lines(run, pd.Series(rows, dtype="Int64")) if line), "")
    at = f" at {source}" if source else ""
    inside = _most_called(run, own)
    advice = (
        f"shorten, batch or move off the launching thread what {op} does on the host{at}: what comes after "
        "it on the path waits for it"
    )
    if inside:
        advice = (
            f"most of the host time of {op}{at} is in {inside}: where that is a first use (loading, "
            "autotuning), record after more warm-up; else keep such calls out of the step"
        )
    if op == NO_OP:
        stacks = "" if source else "; record stacks (`tracekit collect --stacks`) to see which lines"
        advice = (
            f"Python or other code between ops is on the path{at}{stacks}: move it to another thread, or "
            "let torch.compile or CUDA graphs take its place"
        )
    title = f"{name} is on the critical path: {_worth(saving, known)}"
    return _finding("critical_path_host_op", title, advice, saving, known, f"{op}'s own host time", rows, own)


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
    title = f"{_TITLES[what]}: {_worth(saving, known)}"
    rows = _weightiest(own, "host_row")
    return _finding(code, title, _advice(run, what, own), saving, known, f"all {what}", rows, own)


def _advice(run: Run, what: str, own: pd.DataFrame) -> str:
    """What to do, and about which op first."""
    by_op = own.groupby("op", observed=True)[C.DUR_NS].sum()
    named = by_op[by_op.index != NO_OP]
    if what == WAITS or named.empty:
        return _ADVICE[what]
    return f"{_ADVICE[what]}; most of their time on the path is of {named.idxmax()}"


def _worth(saving: int, known: Budget) -> str:
    amount, part = human(known.per_step(saving), "ns"), human(known.share(saving), "share")
    return f"at most {amount} ({part}) less {known.per} without it"


def _weightiest(own: pd.DataFrame, column: str) -> list[int]:
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
    evidence = {"host_intervals": rows, "device_intervals": _weightiest(own, "device_row")}
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
