"""Openings: the time from the start of a profiled step to the first work of a device.

An opening lies before the first interval of its device, so it is in no gap. If that interval was launched in
the same step, nothing earlier was running, and what the host did until the launch explains the time like that
of a gap. It stays an edge of the capture if the work was queued meanwhile, or if the host later got ahead of
the device for longer than it was late in all, so that later steps do not begin with an idle device.
"""

from __future__ import annotations

import pandas as pd

from tracekit.runs.run import Run
from tracekit.runs.step_windows import END_NS, step_windows
from tracekit.schema import C

from ..shared.common import NO_PARENT, PLACE, ints
from ..shared.host_columns import HostColumns
from ..shared.idle_neighbors import AFTER, BEFORE, EARLIER, LAUNCH


def read_openings(run: Run, device: pd.DataFrame, host: HostColumns) -> pd.DataFrame:
    """Return one row per device that has an opening, with the columns of `read_gaps`.

    Its row is that of the device's first interval, which also stands for the interval before.

    Args:
        run: The run.
        device: The intervals that occupy a device.
        host: Host rows.
    """
    windows = step_windows(run)[[C.RANK, C.STEP, C.START_NS]]
    if windows.empty or device.empty:
        return pd.DataFrame()
    is_first = device[C.START_NS] == device.groupby(PLACE)[C.START_NS].transform("min")
    first = device[is_first & device[C.STEP].notna()].sort_values([*PLACE, C.ROW_ID])
    first = first.assign(**{AFTER: first.index}).drop_duplicates(PLACE).astype({C.STEP: "int64"})
    rows = first.rename(columns={C.START_NS: END_NS}).merge(windows, on=[C.RANK, C.STEP])
    launch, length = host.positions(rows[C.LAUNCH_ROW]), ints(rows, END_NS) - ints(rows, C.START_NS)
    rows[C.DUR_NS], rows[LAUNCH], rows[BEFORE] = length, launch, rows[AFTER]
    rows[EARLIER], rows["replayed"] = NO_PARENT, False
    return rows[(launch >= 0) & (length > 0)].reset_index(drop=True)
