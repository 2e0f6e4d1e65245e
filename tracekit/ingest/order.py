"""The order of rows: by start, equal ones by content, so that a file's own order never matters."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]


def sorted_positions(start: Ints, *ties: npt.NDArray[np.integer[Any]]) -> Ints:
    """Positions that sort by `start`, equal ones by the further keys in turn.

    Example:
        >>> sorted_positions(np.array([5, 1, 5]), np.array([2, 0, 1]))
        array([1, 2, 0])
    """
    order = np.argsort(start, kind="stable")
    equal = np.diff(start[order]) == 0
    tied = np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False)) if len(order) else order
    rows = order[tied]
    keys = [key[rows] for key in (start, *ties)]
    order[tied] = rows[np.lexsort(keys[::-1])]
    return order
