"""Split a run into views of its ranks, which are read one after the other or in parallel."""

from __future__ import annotations

from itertools import pairwise

from tracekit.runs.run import RANKED, Run

MAX_VIEW_ROWS = 300_000
"""Rows of ranks that are read together; with fewer rows, opening files would dominate."""


def split_by_rank(run: Run, max_rows: int | None = None, *, min_views: int = 1) -> list[Run]:
    """Split a run into views of ranks: one rank each, or several if they have few rows.

    Args:
        run: The run; returned as a whole if its ranks are not in separate files.
        max_rows: Approximate rows of a view; `MAX_VIEW_ROWS` by default.
        min_views: Minimum number of views, if there are enough ranks.
    """
    ranks = run.ranks
    names = [name for name in RANKED if run.rows(name)]
    rows = sum(run.rows(name) for name in names)
    limit = MAX_VIEW_ROWS if max_rows is None else max_rows
    count = min(len(ranks), max(min_views, -(-rows // max(1, limit))))
    if count < 2 or not any(len(run.files(name)) > 1 for name in names):
        return [run]
    ends = [view * len(ranks) // count for view in range(count + 1)]
    return [run.of_ranks(*ranks[low:high]) for low, high in pairwise(ends)]
