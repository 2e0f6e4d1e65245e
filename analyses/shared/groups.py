"""Rows of a table by device, and numbers of their groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tracekit.runs.intervals import Ints
from tracekit.schema import C


def rows_by_device(frame: pd.DataFrame) -> dict[tuple[int, int], Ints]:
    """Positions of the rows of each rank and device, sorted by both; rows of a device keep their order.

    Example:
        >>> rows_by_device(pd.DataFrame({C.RANK: [0, 1, 0], C.DEVICE: [2, 2, 2]}))
        {(0, 2): array([0, 2]), (1, 2): array([1])}
    """
    rank, device = (frame[name].to_numpy(np.int64) for name in (C.RANK, C.DEVICE))
    order = np.lexsort((device, rank))
    changes = (np.diff(rank[order]) != 0) | (np.diff(device[order]) != 0)
    parts = np.split(order, np.flatnonzero(changes) + 1) if len(order) else []
    return {(int(rank[rows[0]]), int(device[rows[0]])): rows for rows in parts}


def number_by(frame: pd.DataFrame, keys: Sequence[str]) -> tuple[Ints, Ints]:
    """Number the distinct combinations of keys in their order, with nulls last.

    Returns:
        The number of each row, and the position of the first row of each number.

    Example:
        >>> number_by(pd.DataFrame({"op": ["b", "a", "b"], "n": [1, 1, 1]}), ["op", "n"])
        (array([1, 0, 1]), array([1, 0]))
    """
    numbers = np.zeros(len(frame), np.int64)
    for key in keys:
        codes, distinct = pd.factorize(frame[key], sort=True)
        codes = np.where(codes < 0, len(distinct), codes)
        numbers = np.unique(numbers * (len(distinct) + 1) + codes, return_inverse=True)[1]
    return numbers, np.unique(numbers, return_index=True)[1]
