"""What stands alone of copies and communication: measured rank by rank, then put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit import intervals
from tracekit.analysis import EVIDENCE_ROWS
from tracekit.intervals import covered
from tracekit.schema import C, Memory

from .._shared.common import ints, spans
from .._shared.hosts import NO_OP, host_rows, texts
from .._shared.lanes import collective_kinds, lanes, measured_in
from .._shared.stacking import stacked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.run import Run

COMMUNICATION = "communication"
WHAT = "what"
ALONE = "alone"
OP, COLLECTIVE = "op", "collective"
_RECORD = "record_param_comms"
_ORDER = [ALONE, C.ROW_ID]


@dataclass(frozen=True, kw_only=True)
class Exposed:
    """What stands alone of one subject on some ranks.

    Attributes:
        rows: Its device intervals with the longest exposed time first, as many as a finding names.
        ops: A row per op that launched any: the exposed time of them, and the interval with most of it.
        kinds: Exposed time by kind of collective; empty for copies.
        pageable: Whether any copies from or to pageable memory.
        exposed_ns: Of the ranks together; of a rank's devices the one with most.
        hidable_ns: At most so much of it, since no more computation is there to hide it.
        whole_ns: Length of the union, counted alike.
    """

    rows: pd.DataFrame
    ops: pd.DataFrame
    kinds: pd.DataFrame
    pageable: bool
    exposed_ns: int
    hidable_ns: int
    whole_ns: int


def measured(run: Run, rows: pd.DataFrame, what: str, windows: pd.DataFrame) -> Exposed:
    """What stands alone of one subject.

    Args:
        run: The run.
        rows: Its device intervals, each with what it is.
        what: The subject.
        windows: The profiled steps.
    """
    best: dict[int, tuple[int, int, int]] = {}
    alone = []
    for _, own in rows.groupby([C.RANK, C.DEVICE], sort=True):
        rank = int(own[C.RANK].iloc[0])
        found, listed = _on_device(own, what, windows[windows[C.RANK] == rank])
        best[rank] = max(best.get(rank, (0, 0, 0)), found)
        alone.append(listed)
    totals = np.array(list(best.values()), np.int64).sum(axis=0)
    return _described(run, what, _longest_first(pd.concat(alone)), *(int(total) for total in totals))


def _on_device(
    own: pd.DataFrame, what: str, windows: pd.DataFrame
) -> tuple[tuple[int, int, int], pd.DataFrame]:
    """Exposed, hidable and whole length on one device, and the intervals that are exposed."""
    kept = own[own[WHAT] == what]
    inside = measured_in(own, windows)
    unions = lanes(own)
    hiding = unions.computation if what == COMMUNICATION else unions.kernels
    subject = intervals.union(*spans(kept))
    exposed, free = intervals.subtract(subject, hiding), intervals.subtract(hiding, subject)
    lengths = [intervals.length(intervals.intersect(one, inside)) for one in (exposed, free, subject)]
    start, end = spans(kept)
    listed = kept.assign(**{ALONE: covered(intervals.intersect(exposed, inside), start, end)})
    return (lengths[0], min(lengths[0], lengths[1]), lengths[2]), listed[ints(listed, ALONE) > 0]


def _longest_first(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sort_values(_ORDER, ascending=[False, True], ignore_index=True)


def _described(
    run: Run, what: str, rows: pd.DataFrame, exposed_ns: int, hidable_ns: int, whole_ns: int
) -> Exposed:
    named = rows[[C.ROW_ID, C.RANK, C.OP_ROW, C.NAME, ALONE]].astype({C.NAME: object})
    named = named.assign(**{OP: _op_names(run, rows) if len(rows) else ""})
    kinds = collective_kinds(run, rows) if what == COMMUNICATION else pd.Series([], dtype=object)
    by_kind = rows[: len(kinds)].groupby(kinds.to_numpy(object), sort=True)[ALONE].sum()
    ends = pd.concat([rows[C.SRC_MEMORY].astype(object), rows[C.DST_MEMORY].astype(object)])
    return Exposed(
        rows=named.head(EVIDENCE_ROWS),
        ops=_by_op(named.assign(longest=named[ALONE])),
        kinds=pd.DataFrame(
            {COLLECTIVE: by_kind.index.to_numpy(object), ALONE: ints(by_kind.to_frame(), ALONE)}
        ),
        pageable=bool((ends == Memory.PAGEABLE).any()),
        exposed_ns=exposed_ns,
        hidable_ns=hidable_ns,
        whole_ns=whole_ns,
    )


def _by_op(named: pd.DataFrame) -> pd.DataFrame:
    """Exposed time by op in the order of their names, with the longest interval of each."""
    ordered = named.sort_values(["longest", C.ROW_ID], ascending=[False, True])
    longest = ordered.drop_duplicates(OP).drop(columns=ALONE)
    sums = named.groupby(OP, sort=True)[ALONE].sum().reset_index()
    return sums.merge(longest, on=OP)


def joined(parts: Sequence[Exposed]) -> Exposed:
    """What stands alone of one subject on the ranks of all parts."""
    kinds = stacked([part.kinds for part in parts])
    return Exposed(
        rows=_longest_first(stacked([part.rows for part in parts])).head(EVIDENCE_ROWS),
        ops=_by_op(stacked([part.ops for part in parts])),
        kinds=kinds.groupby(COLLECTIVE, sort=True)[ALONE].sum().reset_index(),
        pageable=any(part.pageable for part in parts),
        exposed_ns=sum(part.exposed_ns for part in parts),
        hidable_ns=sum(part.hidable_ns for part in parts),
        whole_ns=sum(part.whole_ns for part in parts),
    )


def _op_names(run: Run, rows: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """The launching ops; the one around it where the innermost is only the profiler's record of it."""
    host = host_rows(run, rows[C.OP_ROW], [C.NAME, C.PARENT_ROW])
    outer = host_rows(run, host[C.PARENT_ROW], [C.NAME])[C.NAME]
    bare = (host[C.NAME] == _RECORD) & outer.notna()
    return texts(host[C.NAME].mask(bare, outer), NO_OP)
