"""Exposed time of copies and communication, measured per rank and combined over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS
from tracekit.analysis.savings import Budget
from tracekit.runs import intervals
from tracekit.runs.intervals import Union, overlap_lengths
from tracekit.runs.run import Run
from tracekit.schema import C, CopyKind, DeviceKind, Memory

from ..critical_path import saved_without_communication
from ..shared.collective_kinds import collective_kinds, names_around
from ..shared.common import Bools, Objects, concat_tables, ints, sort_by, spans
from ..shared.groups import group_rows
from ..shared.host_rows import NO_OP
from ..shared.intervals_by_class import IntervalsByClass, intervals_by_class, measured_window

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

    What is less than the share `least` of the steps is left as it is.
    """
    if not budget.matters(exposed.hidable_ns, least=least):
        return exposed
    saved = saved_without_communication(run)
    return exposed if saved is None else replace(exposed, path_ns=min(exposed.hidable_ns, saved))


@dataclass(frozen=True)
class OnDevice:
    """What one device did."""

    rank: int
    device: int
    rows: pd.DataFrame  # its intervals with their subject
    windows: pd.DataFrame  # the profiled steps of its rank

    @cached_property
    def unions(self) -> IntervalsByClass:
        """The unions of its intervals by class."""
        return intervals_by_class(self.rows)

    @cached_property
    def is_prepared(self) -> Bools:
        """Whether each interval is a copy to which the advice does not apply.

        These are migrations of managed memory, and copies from or to pinned memory on a stream other than
        that of most computation: they can overlap already, as far as the program's dependencies allow.
        """
        rows = self.rows
        source, target = rows[C.SRC_MEMORY], rows[C.DST_MEMORY]
        computing = rows[((rows[C.KIND] == DeviceKind.KERNEL) & (rows[WHAT] == "")).to_numpy(bool)]
        by_stream = computing.groupby(C.STREAM, sort=True)[C.DUR_NS].sum()
        main = by_stream.index[2 * by_stream >= by_stream.sum()]
        aside = rows[C.STREAM].notna() & ~rows[C.STREAM].isin(main) & bool(len(computing))
        pinned = (source == Memory.PINNED) | (target == Memory.PINNED)
        pageable = (source == Memory.PAGEABLE) | (target == Memory.PAGEABLE)
        managed = (source == Memory.UNIFIED) | (target == Memory.UNIFIED)
        return (managed | (pinned & ~pageable & aside)).to_numpy(bool)

    def hiding(self, what: str) -> Union:
        """Union of what overlaps a subject."""
        return self.unions.computation if what == COMMUNICATION else self.unions.kernels


def measure_exposed(run: Run, devices: Sequence[OnDevice], what: str) -> Exposed:
    """Measure the exposed intervals of one subject.

    At least one of the devices has intervals of it.
    """
    best: dict[int, tuple[int, int, int]] = {}
    exposed_parts = []
    for device in devices:
        lengths, listed = _on_device(device, what)
        best[device.rank] = max(best.get(device.rank, (0, 0, 0)), lengths)
        exposed_parts.append(listed)
    totals = np.array(list(best.values()), np.int64).sum(axis=0)
    rows = exposed_parts[0] if len(exposed_parts) == 1 else pd.concat(exposed_parts)
    return _summarize(run, what, _longest_first(rows), *(int(total) for total in totals))


def _on_device(device: OnDevice, what: str) -> tuple[tuple[int, int, int], pd.DataFrame]:
    """Exposed, hidable and union length on one device, and the exposed intervals."""
    is_subject = (device.rows[WHAT] == what).to_numpy(bool)
    selected = device.rows[is_subject if what == COMMUNICATION else is_subject & ~device.is_prepared]
    if selected.empty:
        return (0, 0, 0), selected.assign(**{EXPOSED_NS: 0})
    inside = measured_window(device.rows, device.windows)
    start, end = spans(selected)
    subject, hiding = intervals.union(start, end), device.hiding(what)
    exposed, uncovered = intervals.subtract(subject, hiding), intervals.subtract(hiding, subject)
    lengths = [
        intervals.length(intervals.intersect(union, inside)) for union in (exposed, uncovered, subject)
    ]
    exposed_ns = overlap_lengths(intervals.intersect(exposed, inside), start, end)
    listed = selected.assign(**{EXPOSED_NS: exposed_ns})[exposed_ns > 0]
    return (lengths[0], min(lengths[0], lengths[1]), lengths[2]), listed


def _longest_first(rows: pd.DataFrame) -> pd.DataFrame:
    return sort_by(rows, f"-{EXPOSED_NS}", C.ROW_ID)


def _summarize(
    run: Run, what: str, rows: pd.DataFrame, exposed_ns: int, hidable_ns: int, union_ns: int
) -> Exposed:
    ops = _op_names(run, rows) if len(rows) else np.empty(0, object)
    named = rows[[C.ROW_ID, C.RANK, C.OP_ROW, EXPOSED_NS]]
    named = named.assign(**{C.NAME: rows[C.NAME].astype(object), OP: ops, "longest": rows[EXPOSED_NS]})
    kinds = rows[[EXPOSED_NS]][: len(rows) if what == COMMUNICATION else 0]
    kinds = kinds.assign(**{COLLECTIVE: collective_kinds(run, rows) if len(kinds) else ""})
    return Exposed(
        rows=named.head(EVIDENCE_ROWS),
        ops=_by_op(named),
        kinds=_by_kind(kinds),
        pageable=any((rows[name] == Memory.PAGEABLE).any() for name in (C.SRC_MEMORY, C.DST_MEMORY)),
        exposed_ns=exposed_ns,
        hidable_ns=hidable_ns,
        path_ns=hidable_ns,
        union_ns=union_ns,
    )


def _by_op(named: pd.DataFrame) -> pd.DataFrame:
    """Exposed time by op, sorted by name, with the longest interval of each."""
    longest_first = sort_by(named, "-longest", C.ROW_ID)
    groups = group_rows(longest_first, [OP])
    exposed_ns = groups.sums(ints(longest_first, EXPOSED_NS))
    return longest_first.take(groups.first).reset_index(drop=True).assign(**{EXPOSED_NS: exposed_ns})


def _by_kind(kinds: pd.DataFrame) -> pd.DataFrame:
    """Exposed time by kind of collective, sorted by name."""
    groups = group_rows(kinds, [COLLECTIVE])
    names = kinds[COLLECTIVE].to_numpy(object)[groups.first]
    return pd.DataFrame({COLLECTIVE: names, EXPOSED_NS: groups.sums(ints(kinds, EXPOSED_NS))})


def join_exposed(parts: Sequence[Exposed]) -> Exposed:
    """Combine the exposed intervals of one subject of all parts."""
    if len(parts) == 1:
        return parts[0]
    return Exposed(
        rows=_longest_first(concat_tables([part.rows for part in parts])).head(EVIDENCE_ROWS),
        ops=_by_op(concat_tables([part.ops for part in parts])),
        kinds=_by_kind(concat_tables([part.kinds for part in parts])),
        pageable=any(part.pageable for part in parts),
        exposed_ns=sum(part.exposed_ns for part in parts),
        hidable_ns=sum(part.hidable_ns for part in parts),
        path_ns=sum(part.path_ns for part in parts),
        union_ns=sum(part.union_ns for part in parts),
    )


def _op_names(run: Run, rows: pd.DataFrame) -> Objects:
    """Launching ops; the parent op if the innermost is only the profiler's record."""
    inner, outer = names_around(run, rows[C.OP_ROW], 2)
    names = inner.mask((inner == "record_param_comms") & (outer != ""), outer)
    return names.mask(names == "", NO_OP).to_numpy(object)


ALL_COPIES = "all copies"
ADVISED = (str(CopyKind.H2D), str(CopyKind.D2H), str(CopyKind.P2P))
WITHIN = str(CopyKind.D2D)
"""Copies within a device, which a program makes itself."""
