"""Exposed time of copies and communication, measured per rank and combined over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS
from tracekit.analysis.savings import Budget
from tracekit.runs import intervals
from tracekit.runs.intervals import overlap_lengths
from tracekit.runs.run import Run
from tracekit.schema import C, CopyKind, DeviceKind, Memory

from ..critical_path import saved_without_communication
from ..shared.collective_kinds import collective_kinds
from ..shared.common import Bools, Objects, concat_tables, ints, sort_by, spans
from ..shared.host_rows import NO_OP, fill_missing_text, host_rows
from ..shared.intervals_by_class import intervals_by_class, measured_window

COMMUNICATION = "communication"
WHAT = "what"
EXPOSED_NS = "exposed"
OP, COLLECTIVE = "op", "collective"


@dataclass(frozen=True, kw_only=True)
class Exposed:
    """Exposed intervals of one subject on some ranks."""

    rows: pd.DataFrame  # device intervals with the longest exposed time, at most `EVIDENCE_ROWS`
    ops: pd.DataFrame  # a row per launching op: its exposed time, and the interval with most of it
    kinds: pd.DataFrame  # exposed time by kind of collective; empty for copies
    pageable: bool  # whether any copies from or to pageable memory
    exposed_ns: int  # sum over ranks of that of the device with most of it
    hidable_ns: int  # upper bound of the part that can overlap, limited by the non-overlapped computation
    path_ns: int  # the same, limited by what the critical path is shorter without them
    union_ns: int  # length of the union, summed likewise


def limit_by_critical_path(run: Run, exposed: Exposed, budget: Budget, *, least: float) -> Exposed:
    """Limit the part of communication that can overlap by its part of the critical path.

    Args:
        run: The ranks that were measured.
        exposed: Their exposed communication.
        budget: Their steps.
        least: Minimum share of the steps of a finding: less is left as it is.
    """
    if not budget.matters(exposed.hidable_ns, least=least):
        return exposed
    saved = saved_without_communication(run)
    return exposed if saved is None else replace(exposed, path_ns=min(exposed.hidable_ns, saved))


def measure_exposed(run: Run, rows: pd.DataFrame, what: str, windows: pd.DataFrame) -> Exposed:
    """Measure the exposed intervals of one subject.

    Args:
        run: The run.
        rows: Device intervals with their subject.
        what: The subject.
        windows: The profiled steps.
    """
    best: dict[int, tuple[int, int, int]] = {}
    exposed_parts = []
    for _, of_device in rows.groupby([C.RANK, C.DEVICE], sort=True):
        rank = int(of_device[C.RANK].iloc[0])
        lengths, listed = _on_device(of_device, what, windows[windows[C.RANK] == rank])
        best[rank] = max(best.get(rank, (0, 0, 0)), lengths)
        exposed_parts.append(listed)
    totals = np.array(list(best.values()), np.int64).sum(axis=0)
    return _summarize(run, what, _longest_first(pd.concat(exposed_parts)), *(int(total) for total in totals))


def _on_device(
    of_device: pd.DataFrame, what: str, windows: pd.DataFrame
) -> tuple[tuple[int, int, int], pd.DataFrame]:
    """Exposed, hidable and union length on one device, and the exposed intervals."""
    selected = of_device[(of_device[WHAT] == what) & ~_overlap_is_prepared(of_device)]
    if selected.empty:
        return (0, 0, 0), selected.assign(**{EXPOSED_NS: 0})
    inside = measured_window(of_device, windows)
    unions = intervals_by_class(of_device)
    hiding = unions.computation if what == COMMUNICATION else unions.kernels
    subject = intervals.union(*spans(selected))
    exposed, uncovered = intervals.subtract(subject, hiding), intervals.subtract(hiding, subject)
    lengths = [
        intervals.length(intervals.intersect(union, inside)) for union in (exposed, uncovered, subject)
    ]
    start, end = spans(selected)
    listed = selected.assign(
        **{EXPOSED_NS: overlap_lengths(intervals.intersect(exposed, inside), start, end)}
    )
    return (lengths[0], min(lengths[0], lengths[1]), lengths[2]), listed[ints(listed, EXPOSED_NS) > 0]


def _overlap_is_prepared(of_device: pd.DataFrame) -> Bools:
    """Copies to which the advice does not apply.

    These are migrations of managed memory, and copies from or to pinned memory on a stream other than that of
    most computation: they can overlap already, and do so as far as the program's dependencies allow.
    """
    ends = of_device[[C.SRC_MEMORY, C.DST_MEMORY]].astype(object)
    computing = of_device[(of_device[C.KIND] == DeviceKind.KERNEL) & (of_device[WHAT] == "")]
    by_stream = computing.groupby(C.STREAM, sort=True)[C.DUR_NS].sum()
    main = by_stream.index[2 * by_stream >= by_stream.sum()]
    aside = of_device[C.STREAM].notna() & ~of_device[C.STREAM].isin(main) & bool(len(computing))
    pinned = (ends == Memory.PINNED).any(axis=1) & ~(ends == Memory.PAGEABLE).any(axis=1)
    managed = (ends == Memory.UNIFIED).any(axis=1)
    return ((of_device[WHAT] != COMMUNICATION) & (managed | (pinned & aside))).to_numpy(bool)


def _longest_first(rows: pd.DataFrame) -> pd.DataFrame:
    return sort_by(rows, f"-{EXPOSED_NS}", C.ROW_ID)


def _summarize(
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


def join_exposed(parts: Sequence[Exposed]) -> Exposed:
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


def _op_names(run: Run, rows: pd.DataFrame) -> Objects:
    """Launching ops; the parent op if the innermost is only the profiler's record."""
    host = host_rows(run, rows[C.OP_ROW], [C.NAME, C.PARENT_ROW])
    outer = host_rows(run, host[C.PARENT_ROW], [C.NAME])[C.NAME]
    record_only = (host[C.NAME] == "record_param_comms") & outer.notna()
    return fill_missing_text(host[C.NAME].mask(record_only, outer), NO_OP)


ALL_COPIES = "all copies"
ADVISED = (str(CopyKind.H2D), str(CopyKind.D2H), str(CopyKind.P2P))
