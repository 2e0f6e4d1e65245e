"""Wait times in collectives by the rank that arrived last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.schema import C

from .heat import heatmap

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = 60
"""Maximum collectives shown separately; with more, waits are summed by step or by kind."""


def matrix(skew: pd.DataFrame) -> tuple[dict[str, Any], str]:
    """Draw a heatmap of wait time by the rank that arrived last.

    Args:
        skew: Rows of `ranks`' `skew` with a last rank.

    Returns:
        The figure, and a description of its columns.
    """
    keys, by = _columns(skew)
    columns = list(dict.fromkeys(keys))
    ranks = sorted({int(rank) for rank in skew["last_rank"]})
    sums: dict[tuple[int, str], int] = {}
    for rank, key, wait in zip(skew["last_rank"], keys, skew["wait_ns"], strict=True):
        sums[int(rank), key] = sums.get((int(rank), key), 0) + int(wait)
    values = [[sums.get((rank, column)) for column in columns] for rank in ranks]
    names = [f"rank {rank}" for rank in ranks]
    return heatmap(names, columns, values, "ns", title="wait", column_title=by.removeprefix("by ")), by


def _columns(skew: pd.DataFrame) -> tuple[list[str], str]:
    one = skew.sort_index()
    if len(one) <= COLUMNS:
        pairs = zip(one["collective"], one["number"], strict=True)
        return [f"{kind} {number}" for kind, number in pairs], "by collective"
    if one[C.STEP].notna().any() and one[C.STEP].nunique() > 1:
        return [
            "no step" if step != step else f"step {step}" for step in one[C.STEP].astype(object)
        ], "by step"
    return [str(kind) for kind in one["collective"]], "by collective type"
