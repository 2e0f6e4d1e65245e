"""Exposed copies and communication: measured per rank, then combined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Severity
from tracekit.analysis.kernel_names import matches
from tracekit.analysis.savings import WARN_SHARE, Budget
from tracekit.runs import intervals, rank_view
from tracekit.runs.intervals import covered
from tracekit.runs.run import Run
from tracekit.schema import C, CopyKind, DeviceKind, HostKind, Memory

from ..critical_path import saved_without_communication
from ..shared import collectives
from ..shared.collective_kinds import collective_kinds
from ..shared.common import concat_tables, duration, ints, percent, spans
from ..shared.host_rows import (
    NO_OP,
    fill_missing_text,
    host_rows,
    source_lines,
)
from ..shared.intervals_by_class import intervals_by_class, measured_window

if TYPE_CHECKING:
    from ..shared.intervals_by_class import Flags


COMMUNICATION = "communication"
WHAT = "what"
EXPOSED_NS = "exposed"
OP, COLLECTIVE = "op", "collective"
_RECORD = "record_param_comms"
_ORDER = [EXPOSED_NS, C.ROW_ID]


@dataclass(frozen=True, kw_only=True)
class Exposed:
    """Exposed intervals of one subject on some ranks.

    Attributes:
        rows: Device intervals with the longest exposed time, at most `EVIDENCE_ROWS`.
        ops: A row per launching op: its exposed time, and the interval with most of it.
        kinds: Exposed time by kind of collective; empty for copies.
        pageable: Whether any copies from or to pageable memory.
        exposed_ns: Sum over ranks of that of the device with most of it.
        hidable_ns: Upper bound of the part that can overlap, limited by the non-overlapped computation.
        path_ns: The same, limited by what the critical path is shorter without them.
        union_ns: Length of the union, summed likewise.
    """

    rows: pd.DataFrame
    ops: pd.DataFrame
    kinds: pd.DataFrame
    pageable: bool
    exposed_ns: int
    hidable_ns: int
    path_ns: int
    union_ns: int


def bounded(run: Run, exposed: Exposed, spent: Budget) -> Exposed:
    """Limit the part of communication that can overlap by its part of the critical path.

    Args:
        run: The ranks that were measured.
        exposed: Their exposed communication.
        spent: Their steps; less than a finding needs is left as it is.
    """
    if not spent.matters(exposed.hidable_ns, least=WARN_SHARE):
        return exposed
    saved = saved_without_communication(run)
    return exposed if saved is None else replace(exposed, path_ns=min(exposed.hidable_ns, saved))


def measured(run: Run, rows: pd.DataFrame, what: str, windows: pd.DataFrame) -> Exposed:
    """Measure the exposed intervals of one subject.

    Args:
        run: The run.
        rows: Device intervals with their subject.
        what: The subject.
        windows: The profiled steps.
    """
    best: dict[int, tuple[int, int, int]] = {}
    exposed_parts = []
    for _, own in rows.groupby([C.RANK, C.DEVICE], sort=True):
        rank = int(own[C.RANK].iloc[0])
        found, listed = _on_device(own, what, windows[windows[C.RANK] == rank])
        best[rank] = max(best.get(rank, (0, 0, 0)), found)
        exposed_parts.append(listed)
    totals = np.array(list(best.values()), np.int64).sum(axis=0)
    return _described(run, what, _longest_first(pd.concat(exposed_parts)), *(int(total) for total in totals))


def _on_device(
    own: pd.DataFrame, what: str, windows: pd.DataFrame
) -> tuple[tuple[int, int, int], pd.DataFrame]:
    """Exposed, hidable and union length on one device, and the exposed intervals."""
    selected = own[(own[WHAT] == what) & ~_overlap_is_prepared(own)]
    if selected.empty:
        return (0, 0, 0), selected.assign(**{EXPOSED_NS: 0})
    inside = measured_window(own, windows)
    unions = intervals_by_class(own)
    hiding = unions.computation if what == COMMUNICATION else unions.kernels
    subject = intervals.union(*spans(selected))
    exposed, uncovered = intervals.subtract(subject, hiding), intervals.subtract(hiding, subject)
    lengths = [intervals.length(intervals.intersect(one, inside)) for one in (exposed, uncovered, subject)]
    start, end = spans(selected)
    listed = selected.assign(**{EXPOSED_NS: covered(intervals.intersect(exposed, inside), start, end)})
    return (lengths[0], min(lengths[0], lengths[1]), lengths[2]), listed[ints(listed, EXPOSED_NS) > 0]


def _overlap_is_prepared(own: pd.DataFrame) -> Flags:
    """Copies to which the advice does not apply.

    These are migrations of managed memory, and copies from or to pinned memory on a stream other than that of
    most computation: they can overlap already, and do so as far as the program's dependencies allow.
    """
    ends = own[[C.SRC_MEMORY, C.DST_MEMORY]].astype(object)
    computing = own[(own[C.KIND] == DeviceKind.KERNEL) & (own[WHAT] == "")]
    by_stream = computing.groupby(C.STREAM, sort=True)[C.DUR_NS].sum()
    main = by_stream.index[2 * by_stream >= by_stream.sum()]
    aside = own[C.STREAM].notna() & ~own[C.STREAM].isin(main) & bool(len(computing))
    pinned = (ends == Memory.PINNED).any(axis=1) & ~(ends == Memory.PAGEABLE).any(axis=1)
    managed = (ends == Memory.UNIFIED).any(axis=1)
    return ((own[WHAT] != COMMUNICATION) & (managed | (pinned & aside))).to_numpy(bool)


def _longest_first(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sort_values(_ORDER, ascending=[False, True], ignore_index=True)


def _described(
    run: Run, what: str, rows: pd.DataFrame, exposed_ns: int, hidable_ns: int, union_ns: int
) -> Exposed:
    named = rows[[C.ROW_ID, C.RANK, C.OP_ROW, C.NAME, EXPOSED_NS]].astype({C.NAME: object})
    named = named.assign(**{OP: _op_names(run, rows) if len(rows) else ""})
    kinds = collective_kinds(run, rows) if what == COMMUNICATION else pd.Series([], dtype=object)
    by_kind = rows[: len(kinds)].groupby(kinds.to_numpy(object), sort=True)[EXPOSED_NS].sum()
    ends = pd.concat([rows[C.SRC_MEMORY].astype(object), rows[C.DST_MEMORY].astype(object)])
    return Exposed(
        rows=named.head(EVIDENCE_ROWS),
        ops=_by_op(named.assign(longest=named[EXPOSED_NS])),
        kinds=pd.DataFrame(
            {COLLECTIVE: by_kind.index.to_numpy(object), EXPOSED_NS: ints(by_kind.to_frame(), EXPOSED_NS)}
        ),
        pageable=bool((ends == Memory.PAGEABLE).any()),
        exposed_ns=exposed_ns,
        hidable_ns=hidable_ns,
        path_ns=hidable_ns,
        union_ns=union_ns,
    )


def _by_op(named: pd.DataFrame) -> pd.DataFrame:
    """Exposed time by op, sorted by name, with the longest interval of each."""
    ordered = named.sort_values(["longest", C.ROW_ID], ascending=[False, True])
    longest = ordered.drop_duplicates(OP).drop(columns=EXPOSED_NS)
    sums = named.groupby(OP, sort=True)[EXPOSED_NS].sum().reset_index()
    return sums.merge(longest, on=OP)


def joined(parts: Sequence[Exposed]) -> Exposed:
    """Combine the exposed intervals of one subject of all parts."""
    kinds = concat_tables([part.kinds for part in parts])
    return Exposed(
        rows=_longest_first(concat_tables([part.rows for part in parts])).head(EVIDENCE_ROWS),
        ops=_by_op(concat_tables([part.ops for part in parts])),
        kinds=kinds.groupby(COLLECTIVE, sort=True)[EXPOSED_NS].sum().reset_index(),
        pageable=any(part.pageable for part in parts),
        exposed_ns=sum(part.exposed_ns for part in parts),
        hidable_ns=sum(part.hidable_ns for part in parts),
        path_ns=sum(part.path_ns for part in parts),
        union_ns=sum(part.union_ns for part in parts),
    )


def _op_names(run: Run, rows: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """Launching ops; the parent op if the innermost is only the profiler's record."""
    host = host_rows(run, rows[C.OP_ROW], [C.NAME, C.PARENT_ROW])
    outer = host_rows(run, host[C.PARENT_ROW], [C.NAME])[C.NAME]
    record_only = (host[C.NAME] == _RECORD) & outer.notna()
    return fill_missing_text(host[C.NAME].mask(record_only, outer), NO_OP)


ALL_COPIES = "all copies"
ADVISED = (str(CopyKind.H2D), str(CopyKind.D2H), str(CopyKind.P2P))
MANY, SHORT_NS = 50, 1_000_000
"""All-reduces per step, and their mean duration, from and up to which combining them is advised."""
_ALL_REDUCE = "(?i)all_?reduce"
MOSTLY = 0.5
"""Share of waiting in communication above which the late rank is the cause, not a lack of overlap."""
CONFIDENCE = 0.5
"""The exposed time was measured; whether the program's dependencies allow overlap was not."""

_PATH = ", and what the critical path is shorter without communication"
_WITHOUT_WAITING = ", without the share of waiting"
_DDP = r"(?i)DistributedDataParallel|ddp\.reducer"
_FSDP = r"(?i)\bFSDP\b|FullyShardedDataParallel|fully_shard"
_SCHEMES = {
    "all_reduce": (_DDP, "ddp"),
    "all_gather": (_FSDP, "fsdp"),
    "reduce_scatter": (_FSDP, "fsdp"),
}
_TEXT = {
    "ddp": (
        "DistributedDataParallel reduces gradients in buckets during backward, and the last bucket cannot "
        "overlap: try another `bucket_cap_mb`, `gradient_as_bucket_view=True`, a compressed "
        "gradient (`bf16_compress_hook`), or accumulate gradients under `no_sync()`"
    ),
    "fsdp": (
        "FSDP gathers parameters layer by layer: prefetch the next layers (`forward_prefetch=True`, "
        "`backward_prefetch=BACKWARD_PRE`, or `set_modules_to_forward_prefetch`), or shard larger units"
    ),
    "other": (
        "start it early with `async_op=True` and wait only before the result is used, so that independent "
        "kernels overlap; if the next kernel needs the result (tensor parallelism), only splitting the work "
        "into chunks or sending less helps"
    ),
    CopyKind.H2D: (
        "copy the next batch on a side stream during the computation of the current one "
        "(`with torch.cuda.stream(side): x.to(device, non_blocking=True)`, then `wait_stream`)"
    ),
    CopyKind.D2H: (
        "copy into pinned memory with `non_blocking=True` on a side stream and read it one step later, or "
        "keep the values on the device (`.detach()` instead of `.item()` or `.cpu()`)"
    ),
    CopyKind.P2P: "send on a side stream while independent kernels run, or send less between devices",
}


def findings(
    run: Run, found: dict[str, Exposed], spent: Budget, ranks: int, calls: pd.DataFrame
) -> tuple[Finding, ...]:
    """Findings on exposed communication and exposed copies of each direction.

    Args:
        run: The run.
        found: Exposed intervals, by subject.
        spent: Time of the run's steps.
        ranks: Number of ranks with a device.
        calls: Communication kernels of all ranks.
    """
    advised = []
    for what in (COMMUNICATION, *ADVISED):
        exposed = found.get(what)
        if exposed and spent.matters(exposed.hidable_ns, least=WARN_SHARE):
            few = _many(calls, spent) if what == COMMUNICATION else ""
            waiting = None
            if what == COMMUNICATION:
                limited = exposed.path_ns < exposed.hidable_ns and not few
                most = exposed.path_ns if limited else exposed.hidable_ns
                path = exposed.path_ns if limited else exposed.exposed_ns
                waiting = _varying(calls, exposed) if ranks == 1 else None
                share = waiting.share(exposed) if waiting else 0.0
                transfer = min(_transferring(calls, most), int((1 - share) * most))
                exposed = replace(exposed, hidable_ns=transfer, path_ns=path)
            if waiting or spent.matters(exposed.hidable_ns, least=WARN_SHARE):
                advised.append(_finding(run, what, exposed, spent, ranks, few, waiting))
    return tuple(advised)


def _many(calls: pd.DataFrame, spent: Budget) -> str:
    """Advice to combine collectives if a step has many short all-reduces."""
    rows = calls[calls["family"].str.contains(_ALL_REDUCE)]
    each = len(rows) // spent.steps
    if each < MANY or ints(rows, C.DUR_NS).mean() > SHORT_NS:
        return ""
    mean = duration(int(ints(rows, C.DUR_NS).mean()))
    return (
        f"the {each:,} all-reduces {spent.per} take {mean} on average: combine them into few large ones "
        "(DistributedDataParallel's buckets, `torch._foreach` over flattened gradients); "
    )


def _transferring(calls: pd.DataFrame, hidable_ns: int) -> int:
    """Part of the exposed communication that is transfer; 0 if most of it is waiting for another rank.

    Waiting cannot be overlapped: it ends when the last rank arrives.
    """
    waiting = collectives.wait_share(calls)
    return 0 if waiting > MOSTLY else int((1 - waiting) * hidable_ns)


@dataclass(frozen=True)
class _Waiting:
    """Waiting in the exposed communication of one rank, seen from collectives whose times vary over steps.

    Attributes:
        total_ns: Its part of the exposed time of the longest intervals.
        kind: Kind of the collective with most of it.
        shortest_ns: Shortest time of that collective.
        longest_ns: Its longest time.
    """

    total_ns: int
    kind: str
    shortest_ns: int
    longest_ns: int

    def share(self, exposed: Exposed) -> float:
        """Its share of the exposed time."""
        return min(1.0, self.total_ns / exposed.exposed_ns)


def _varying(calls: pd.DataFrame, exposed: Exposed) -> _Waiting | None:
    """Waiting in collectives whose times vary over steps; None unless it is most of the exposed time."""
    found = collectives.varying_collectives(calls)
    rows = exposed.rows.set_index(C.ROW_ID)[[EXPOSED_NS]].join(found, how="inner")
    if rows.empty:
        return None
    waits = rows[["wait_ns", EXPOSED_NS]].min(axis=1).to_numpy(np.int64)
    most = rows.iloc[int(waits.argmax())]
    one = _Waiting(int(waits.sum()), str(most[C.KIND]), int(most["shortest_ns"]), int(most["longest_ns"]))
    return one if one.share(exposed) > MOSTLY else None


def _finding(
    run: Run,
    what: str,
    exposed: Exposed,
    spent: Budget,
    ranks: int,
    combine: str = "",
    waiting: _Waiting | None = None,
) -> Finding:
    top = exposed.rows
    is_communication = what == COMMUNICATION
    exposed_time = spent.per_step(exposed.exposed_ns)
    part = exposed.exposed_ns / exposed.union_ns
    subject = "communication" if is_communication else f"{what} copies"
    title = (
        f"Exposed (non-overlapped) {subject}: {duration(exposed_time)} {spent.per}, {percent(part)} of "
        f"{'its' if is_communication else 'their'} time, {percent(spent.share(exposed.exposed_ns))} of "
        "the step"
    )
    limited = is_communication and exposed.path_ns < exposed.exposed_ns
    if limited:
        title += f"; the critical path is {duration(spent.per_step(exposed.path_ns))} shorter without it"
    severity = spent.severity(exposed.hidable_ns)
    if is_communication and ranks == 1 and severity is Severity.HIGH:
        severity = Severity.WARN  # one rank does not tell its waiting from the transfer
    mostly = ""
    if waiting:
        severity = Severity.INFO
        mostly = (
            f"mostly waiting for other ranks (at least {percent(waiting.share(exposed))} of this time): "
            f"the same {waiting.kind} takes {duration(waiting.shortest_ns)} to "
            f"{duration(waiting.longest_ns)} over the steps, and overlap hides only transfer; "
        )
    return Finding(
        code="exposed_communication" if is_communication else "exposed_copies",
        severity=severity,
        title=title if spent.marked else title.replace("of the step", "of the capture"),
        advice=f"{_where(run, exposed.ops)}: {mostly}{combine}{_advice(run, what, exposed, ranks)}.",
        saving_ns_per_step=spent.per_step(exposed.hidable_ns),
        basis=Basis.ESTIMATED,
        how=(
            "upper bound: the exposed time, at most the time of kernels that do not overlap with it"
            f"{_PATH if limited else ''}{_WITHOUT_WAITING if waiting else ''}; {spent.per}"
        ),
        confidence=CONFIDENCE,
        evidence={
            "device_intervals": [int(row) for row in top[C.ROW_ID]],
            "host_intervals": [int(row) for row in top[C.OP_ROW].dropna().drop_duplicates()],
        },
    )


def _where(run: Run, ops: pd.DataFrame) -> str:
    """Op with most exposed time, and the source line of its longest interval."""
    most = ops.iloc[int(ints(ops, EXPOSED_NS).argmax())]
    op, part = str(most[OP]), percent(int(most[EXPOSED_NS]) / int(ops[EXPOSED_NS].sum()))
    if op == NO_OP:
        return f"{part} was launched outside recorded ops, the longest as {most[C.NAME]}"
    op_row = pd.Series([most[C.OP_ROW]], dtype="Int64")
    line = str(source_lines(run.of_ranks(int(most[C.RANK])), op_row).iloc[0])
    return f"{part} was launched by {op}" + (f", the longest at {line}" if line else "")


def _advice(run: Run, what: str, exposed: Exposed, ranks: int) -> str:
    if what == COMMUNICATION:
        waits = (
            "part of the time may be waiting for the slowest rank, see `ranks`"
            if ranks > 1
            else "import all ranks together to distinguish transfer from waiting for the slowest one"
        )
        return f"{_TEXT[_scheme(run, exposed.kinds)]}; {waits}"
    pageable = what != CopyKind.P2P and exposed.pageable
    first = "pin the host memory first, pageable copies block the host; " if pageable else ""
    return first + _TEXT[what]


def _scheme(run: Run, kinds: pd.DataFrame) -> str:
    """Communication scheme, from the collective with most time and the program's ranges or ops."""
    most = kinds.iloc[int(ints(kinds, EXPOSED_NS).argmax())]
    pattern, scheme = _SCHEMES.get(str(most[COLLECTIVE]), (None, "other"))
    if pattern is None:
        return scheme
    where = pc.field(C.KIND).isin([str(HostKind.ANNOTATION), str(HostKind.OP), str(HostKind.PYTHON)])
    for one in rank_view.split_by_rank(run):
        names = one.table("host_intervals", columns=[C.NAME], where=where)[C.NAME]
        if matches(names, pattern).any():
            return scheme
    return "other"
