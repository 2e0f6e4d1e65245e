"""The order of rows: by start, equal ones by content, so that a file's own order never matters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable

Ints: TypeAlias = npt.NDArray[np.integer[Any]]


def sorted_positions(start: Ints, *ties: Callable[[], Ints]) -> Ints:
    """Positions that sort by `start`, equal ones by the further keys in turn, each of them loaded by itself.

    Example:
        >>> sorted_positions(np.array([5, 1, 5]), lambda: np.array([2, 0, 1]))
        array([1, 2, 0], dtype=int32)
    """
    order = np.argsort(start, kind="stable").astype(np.int32)
    equal = np.diff(start[order]) == 0
    tied = np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False)) if len(order) else order
    rows = order[tied]
    keys = [start[rows], *(key()[rows] for key in ties)]
    order[tied] = rows[np.lexsort(keys[::-1])]
    return order
