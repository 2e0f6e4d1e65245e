"""The windows of profiled steps, which end on the host or on the device, whichever is later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit import rank_view
from tracekit.run import busy
from tracekit.schema import C

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.run import Run

HOST_NS = "host_ns"
END_NS = "end_ns"
_KEYS = [C.RANK, C.STEP]


def step_windows(run: Run) -> pd.DataFrame:
    """Profiled steps in order: rank, step, start, host duration, and end of the window.

    The window ends at the later of the step's end on the host and the end of the last device interval
    launched in it, on any device of the rank.
    """
    import pandas as pd

    return pd.concat([_windows(one) for one in rank_view.pieces(run)], ignore_index=True)


def _windows(run: Run) -> pd.DataFrame:
    steps = run.table("steps", columns=[C.RANK, C.STEP, C.START_NS, C.DUR_NS])
    launched = busy(run, [C.RANK, C.STEP, C.START_NS, C.DUR_NS])
    launched = launched[launched[C.STEP].notna()]
    ends = launched.assign(**{END_NS: launched[C.START_NS] + launched[C.DUR_NS]})
    last = ends.groupby(_KEYS, as_index=False)[END_NS].max()
    last[C.STEP] = last[C.STEP].astype(np.int64)
    last[END_NS] = last[END_NS].astype("Int64")  # a left merge makes plain integers floats
    table = steps.merge(last, how="left", on=_KEYS)
    host_end = table[C.START_NS] + table[C.DUR_NS]
    table[END_NS] = table[END_NS].fillna(host_end).to_numpy(dtype=np.int64)
    table[END_NS] = np.maximum(table[END_NS], host_end)
    return table.rename(columns={C.DUR_NS: HOST_NS}).sort_values(_KEYS, ignore_index=True)
