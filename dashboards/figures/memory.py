"""Memory over time, downsampled with exact extremes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.schema import C

from .lines import lines

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    Places = npt.NDArray[np.int64]

MOST = 4_000
"""Maximum points of a line."""


def extremes(*series: npt.NDArray[np.float64], most: int = MOST) -> Places:
    """Return indices of the first, last, minimum and maximum value of each series in equal chunks.

    Args:
        series: Values of equal length; NaN where missing.
        most: Maximum number of indices.

    Example:
        >>> extremes(np.array([0.0, 9, 1, 2, 3, 4, 5, 6, 7, 8]), most=8).tolist()
        [0, 1, 4, 5, 9]
    """
    count = len(series[0])
    if count <= most:
        return np.arange(count)
    parts = max(1, most // (2 + 2 * len(series)))
    edges = np.linspace(0, count, parts + 1).astype(np.int64)
    starts = edges[:-1]
    found = [starts, edges[1:] - 1]
    for values in series:
        found += [_place(values, edges, smallest=True), _place(values, edges, smallest=False)]
    return np.unique(np.concatenate(found))


def _place(values: npt.NDArray[np.float64], edges: Places, *, smallest: bool) -> Places:
    """Return the index of the first minimum or maximum in each chunk."""
    filled = np.where(np.isnan(values), np.inf if smallest else -np.inf, values)
    reduce = np.minimum if smallest else np.maximum
    best = np.repeat(reduce.reduceat(filled, edges[:-1]), np.diff(edges))
    hits = np.flatnonzero(filled == best)
    return hits[np.searchsorted(hits, edges[:-1])]


def over_time(timeline: pd.DataFrame, *, most: int = MOST) -> dict[str, Any]:
    """Draw allocated and reserved bytes of one device over time.

    Args:
        timeline: Rows of `memory`'s `timeline` of one rank and device.
        most: Maximum points of a line.
    """
    values_of = {
        name: timeline[name].to_numpy(dtype=np.float64, na_value=np.nan)
        for name in ("allocated", "reserved")
        if timeline[name].notna().any()
    }
    at = extremes(*values_of.values(), most=most)
    series = {name: [_known(value) for value in values[at].tolist()] for name, values in values_of.items()}
    moments = timeline[C.T_NS].to_numpy(np.int64)[at].tolist()
    return lines(moments, series, "bytes", title="memory in use", x_title="time", x_unit="ns", stepped=True)


def _known(value: float) -> int | None:
    return None if np.isnan(value) else int(value)
