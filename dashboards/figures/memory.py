"""Memory over time: every line as few points as suffice, with its exact extremes."""

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
"""Points of a line at most."""


def extremes(*series: npt.NDArray[np.float64], most: int = MOST) -> Places:
    """Places that keep the first, last, least and largest value of each series in equal parts of the rows.

    Args:
        series: Values of equal length; NaN where missing.
        most: Places at most.

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
    """Place of the least or largest value of each part: the first of equals."""
    filled = np.where(np.isnan(values), np.inf if smallest else -np.inf, values)
    reduce = np.minimum if smallest else np.maximum
    best = np.repeat(reduce.reduceat(filled, edges[:-1]), np.diff(edges))
    hits = np.flatnonzero(filled == best)
    return hits[np.searchsorted(hits, edges[:-1])]


def over_time(timeline: pd.DataFrame, *, most: int = MOST) -> dict[str, Any]:
    """Allocated and reserved bytes of one device over time.

    Args:
        timeline: Rows of `memory`'s `timeline` of one rank and device.
        most: Points of a line at most.
    """
    held = {
        name: timeline[name].to_numpy(dtype=np.float64, na_value=np.nan)
        for name in ("allocated", "reserved")
        if timeline[name].notna().any()
    }
    at = extremes(*held.values(), most=most)
    series = {name: [_known(value) for value in values[at].tolist()] for name, values in held.items()}
    moments = timeline[C.T_NS].to_numpy(np.int64)[at].tolist()
    return lines(moments, series, "bytes", title="bytes in use", x_title="time", x_unit="ns", stepped=True)


def _known(value: float) -> int | None:
    return None if np.isnan(value) else int(value)
