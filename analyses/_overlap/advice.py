"""What could be hidden that is not: the findings of `overlap`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit import intervals
from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding
from tracekit.intervals import covered
from tracekit.kernel_names import matches
from tracekit.savings import WARN_SHARE, Budget, budget
from tracekit.schema import C, CopyKind, HostKind, Memory
from tracekit.windows import step_windows

from .._shared.common import ints, spans
from .._shared.hosts import NO_OP, host_rows, source_lines, texts
from .._shared.lanes import collective_kinds, lanes, measured_in
from .._shared.units import duration, percent

if TYPE_CHECKING:
    from tracekit.run import Run

COMMUNICATION = "communication"
ALL_COPIES = "all copies"
WHAT = "what"
ADVISED = (str(CopyKind.H2D), str(CopyKind.D2H), str(CopyKind.P2P))
CONFIDENCE = 0.5
"""That the time stands alone was measured; whether the program's dependencies let it be hidden was not."""

_DDP = r"(?i)DistributedDataParallel|ddp\.reducer"
_FSDP = r"(?i)\bFSDP\b|FullyShardedDataParallel|fully_shard"
_SCHEMES = {
    "all_reduce": (_DDP, "ddp"),
    "all_gather": (_FSDP, "fsdp"),
    "reduce_scatter": (_FSDP, "fsdp"),
}
_RECORD = "record_param_comms"
_TEXT = {
    "ddp": (
        "DistributedDataParallel reduces gradients in buckets while backward runs, and the last bucket has "
        "nothing to hide behind: try another `bucket_cap_mb`, `gradient_as_bucket_view=True`, a compressed "
        "gradient (`bf16_compress_hook`), or accumulate gradients under `no_sync()`"
    ),
    "fsdp": (
        "FSDP gathers parameters layer by layer: prefetch the next layers (`forward_prefetch=True`, "
        "`backward_prefetch=BACKWARD_PRE`, or `set_modules_to_forward_prefetch`), or shard larger units"
    ),
    "other": (
        "start it early with `async_op=True` and wait where the result is used, so that independent kernels "
        "run meanwhile; where the next kernel needs the result (tensor parallelism), only splitting the work "
        "in chunks or sending less helps"
    ),
    CopyKind.H2D: (
        "copy the next batch on a side stream while this one is computed "
        "(`with torch.cuda.stream(side): x.to(device, non_blocking=True)`, then `wait_stream`)"
    ),
    CopyKind.D2H: (
        "copy into pinned memory with `non_blocking=True` on a side stream and read it one step later, or "
        "keep the values on the device (`.detach()` instead of `.item()` or `.cpu()`)"
    ),
    CopyKind.P2P: "send on a side stream while independent kernels run, or send less between devices",
}


@dataclass(frozen=True)
class _Exposed:
    """What stands alone of one subject.

    Attributes:
        rows: Its device intervals, the longest exposed first, those wholly hidden left out.
        exposed_ns: Of the ranks together; of a rank's devices the one with most.
        hidable_ns: At most so much of it, since no more computation is there to hide it.
        whole_ns: Length of the union, counted alike.
    """

    rows: pd.DataFrame
    exposed_ns: int
    hidable_ns: int
    whole_ns: int


def findings(run: Run, rows: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> tuple[Finding, ...]:
    """Communication, and copies of each direction, that stand alone for long."""
    present = set(tables["whole"][WHAT]) if "whole" in tables else set()
    asked = [what for what in (COMMUNICATION, *ADVISED) if what in present]
    if not asked:
        return ()
    spent, windows = budget(run), step_windows(run)
    found = [(what, _exposed(rows, what, windows)) for what in asked]
    return tuple(
        _finding(run, what, exposed, spent)
        for what, exposed in found
        if exposed.hidable_ns and spent.matters(exposed.hidable_ns, least=WARN_SHARE)
    )


def _exposed(rows: pd.DataFrame, what: str, windows: pd.DataFrame) -> _Exposed:
    best: dict[int, tuple[int, int, int]] = {}
    alone = []
    for _, own in rows.groupby([C.RANK, C.DEVICE], sort=True):
        rank = int(own[C.RANK].iloc[0])
        kept = own[own[WHAT] == what]
        inside = measured_in(own, windows[windows[C.RANK] == rank])
        unions = lanes(own)
        hiding = unions.computation if what == COMMUNICATION else unions.kernels
        subject = intervals.union(*spans(kept))
        exposed, free = intervals.subtract(subject, hiding), intervals.subtract(hiding, subject)
        lengths = [intervals.length(intervals.intersect(one, inside)) for one in (exposed, free, subject)]
        measured = lengths[0], min(lengths[0], lengths[1]), lengths[2]
        best[rank] = max(best.get(rank, (0, 0, 0)), measured)
        start, end = spans(kept)
        alone.append(kept.assign(alone=covered(intervals.intersect(exposed, inside), start, end)))
    listed = pd.concat(alone)
    listed = listed[ints(listed, "alone") > 0].sort_values(["alone", C.ROW_ID], ascending=[False, True])
    totals = np.array(list(best.values()), np.int64).sum(axis=0)
    return _Exposed(listed, int(totals[0]), int(totals[1]), int(totals[2]))


def _finding(run: Run, what: str, exposed: _Exposed, spent: Budget) -> Finding:
    top = exposed.rows.head(EVIDENCE_ROWS)
    talk = what == COMMUNICATION
    alone = spent.per_step(exposed.exposed_ns)
    part = exposed.exposed_ns / exposed.whole_ns
    subject = "Communication" if talk else f"{what} copies"
    runs, none = ("runs", "no other kernel") if talk else ("run", "no kernel")
    title = (
        f"{subject} {runs} beside {none} for {duration(alone)} {spent.per}: {percent(part)} of "
        f"{'its' if talk else 'their'} time, {percent(spent.share(exposed.exposed_ns))} of the step"
    )
    return Finding(
        code="exposed_communication" if talk else "exposed_copies",
        severity=spent.severity(exposed.hidable_ns),
        title=title if spent.marked else title.replace("of the step", "of the capture"),
        advice=f"{_where(run, exposed.rows)}: {_advice(run, what, exposed.rows)}.",
        saving_ns_per_step=spent.per_step(exposed.hidable_ns),
        basis=Basis.ESTIMATED,
        how=(
            "upper bound: the exposed time, at most the time of kernels that have nothing of the kind beside "
            f"them; {spent.per}"
        ),
        confidence=CONFIDENCE,
        evidence={
            "device_intervals": [int(row) for row in top[C.ROW_ID]],
            "host_intervals": [int(row) for row in top[C.OP_ROW].dropna().drop_duplicates()],
        },
    )


def _where(run: Run, rows: pd.DataFrame) -> str:
    """The op with most exposed time, and the line of its longest one."""
    names = _op_names(run, rows)
    totals = rows.assign(op=names).groupby("op", sort=True)["alone"].sum()
    op, part = str(totals.idxmax()), percent(int(totals.max()) / int(totals.sum()))
    longest = rows[names == op].head(1)
    if op == NO_OP:
        return f"{part} was launched outside of any recorded op, the longest as {longest[C.NAME].iloc[0]}"
    line = str(source_lines(run, longest[C.OP_ROW]).iloc[0])
    return f"{part} was launched by {op}" + (f", the longest at {line}" if line else "")


def _op_names(run: Run, rows: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """The launching ops; the one around it where the innermost is only the profiler's record of it."""
    host = host_rows(run, rows[C.OP_ROW], [C.NAME, C.PARENT_ROW])
    outer = host_rows(run, host[C.PARENT_ROW], [C.NAME])[C.NAME]
    bare = (host[C.NAME] == _RECORD) & outer.notna()
    return texts(host[C.NAME].mask(bare, outer), NO_OP)


def _advice(run: Run, what: str, rows: pd.DataFrame) -> str:
    if what == COMMUNICATION:
        waits = (
            "part of the time may be waiting for the slowest rank, see `ranks`"
            if run.table("device_intervals", columns=[C.RANK])[C.RANK].nunique() > 1
            else "import all ranks together to tell transfer from waiting for the slowest one"
        )
        return f"{_TEXT[_scheme(run, rows)]}; {waits}"
    ends = pd.concat([rows[C.SRC_MEMORY].astype(object), rows[C.DST_MEMORY].astype(object)])
    pageable = what != CopyKind.P2P and bool((ends == Memory.PAGEABLE).any())
    first = "pin the host memory first, pageable copies keep the host waiting; " if pageable else ""
    return first + _TEXT[what]


def _scheme(run: Run, rows: pd.DataFrame) -> str:
    """How the program communicates, where its ranges or ops and the collective with most time say so."""
    kinds = collective_kinds(run, rows)
    totals = rows.groupby(kinds.to_numpy(object), sort=True)["alone"].sum()
    pattern, scheme = _SCHEMES.get(str(totals.idxmax()), (None, "other"))
    if pattern is None:
        return scheme
    where = pc.field(C.KIND).isin([str(HostKind.ANNOTATION), str(HostKind.OP), str(HostKind.PYTHON)])
    names = run.table("host_intervals", columns=[C.NAME], where=where)[C.NAME]
    return scheme if matches(names, pattern).any() else "other"
