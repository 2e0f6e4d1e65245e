"""Which device work was launched before the capture."""

from __future__ import annotations

import pandas as pd

from tracekit.runs.step_windows import backlog
from tracekit.schema import C


def test_the_backlog_of_a_rank_precedes_its_own_launches() -> None:
    rows = pd.DataFrame(
        {
            C.RANK: [0, 0, 1, 1, 1, 1],
            C.LAUNCH_ROW: pd.array([None, 5, None, None, 6, None], "Int64"),
            C.CORRELATION_ID: pd.array([3, 10, 50, 200, 100, None], "Int64"),
        }
    )
    assert backlog(rows).index.tolist() == [0, 2]


def test_without_launches_there_is_no_backlog() -> None:
    unlinked = {
        C.RANK: [0],
        C.LAUNCH_ROW: pd.array([None], "Int64"),
        C.CORRELATION_ID: pd.array([3], "Int64"),
    }
    assert backlog(pd.DataFrame(unlinked)).empty
