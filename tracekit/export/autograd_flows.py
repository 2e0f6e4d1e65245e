"""Links from forward ops to their backward ops, as torch.profiler draws them, and threads of autograd.

torch numbers the ops that autograd will differentiate; the backward op has the number of its forward op and
tells that it is one. Of several ops of a number, the innermost forward op and the outermost backward op are
linked, as torch does. Numbers count in each thread, so those of several forward threads are left out.
"""

from __future__ import annotations

import pandas as pd
import pyarrow.compute as pc

from tracekit.export.tables import Source
from tracekit.schema import C

FORWARD, BACKWARD = "forward", "backward"
_COLUMNS = [C.ROW_ID, C.RANK, C.PID, C.TID, C.START_NS, C.SEQUENCE, C.FWD_TID]
_JOB = [C.RANK, C.PID, C.SEQUENCE]
_LATER = "later_ns"


def find_links(source: Source) -> pd.DataFrame:
    """Return the rows of linked ops: `forward` and `backward`, each a row id of `host_intervals`."""
    rows = _numbered_ops(source)
    is_backward = rows[C.FWD_TID].fillna(0) > 0
    ahead = rows[~is_backward].sort_values(C.START_NS)
    ahead = ahead[ahead.groupby(_JOB)[C.TID].transform("nunique") == 1].drop_duplicates(_JOB, keep="last")
    behind = rows[is_backward].sort_values(C.START_NS).drop_duplicates(_JOB)
    both = ahead.rename(columns={C.ROW_ID: FORWARD}).merge(
        behind.rename(columns={C.ROW_ID: BACKWARD, C.START_NS: _LATER})[[*_JOB, BACKWARD, _LATER]], on=_JOB
    )
    return both.loc[both[C.START_NS] < both[_LATER], [FORWARD, BACKWARD]]


def find_autograd_threads(source: Source) -> set[tuple[int, int, int]]:
    """Return rank, process and thread of the threads that run only backward ops of those with numbers."""
    rows = _numbered_ops(source)
    rows["is_backward"] = rows[C.FWD_TID].fillna(0) > 0
    by_thread = rows.groupby([C.RANK, C.PID, C.TID])["is_backward"].all()
    return set(by_thread[by_thread].index)


def _numbered_ops(source: Source) -> pd.DataFrame:
    where = pc.field(C.SEQUENCE) >= 0
    parts = [batch.to_pandas() for batch in source.batches("host_intervals", _COLUMNS, where=where)]
    return pd.concat(parts) if parts else pd.DataFrame({name: [] for name in _COLUMNS})
