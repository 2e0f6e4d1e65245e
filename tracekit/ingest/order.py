"""The order of rows: by start, equal ones by content, so that a file's own order never matters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.ingest.rows import Rows
    from tracekit.ingest.texts import Strings

Ints: TypeAlias = npt.NDArray[np.integer[Any]]

_OUTER_FIRST = (
    HostKind.PYTHON,
    HostKind.ANNOTATION,
    HostKind.OP,
    HostKind.RUNTIME,
    HostKind.SYNC,
    HostKind.OVERHEAD,
)


def sorted_positions(start: Ints, *ties: Callable[[], Ints]) -> Ints:
    """Positions that sort by `start`, equal ones by the further keys in turn, made only when they are needed.

    Example:
        >>> sorted_positions(np.array([5, 1, 5]), lambda: np.array([2, 0, 1]))
        array([1, 2, 0])
    """
    order = np.argsort(start, kind="stable")
    equal = np.diff(start.take(order)) == 0
    if not equal.any():
        return order
    tied = np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False))
    rows = order[tied]
    keys = [start[rows], *(key()[rows] for key in ties)]
    order[tied] = rows[np.lexsort(keys[::-1])]
    return order


def host_order(rows: Rows, kinds: Strings) -> Ints:
    """Of host rows: by start, the outer row first."""
    outer = np.array([_OUTER_FIRST.index(HostKind(value)) for value in kinds.values], np.int8)
    return sorted_positions(
        rows.integers(C.START_NS),
        lambda: -rows.integers(C.DUR_NS),
        lambda: outer[rows.integers(C.KIND)],
        lambda: rows.integers(C.EXTERNAL_ID),
        lambda: rows.integers(C.NAME),
        lambda: rows.integers(C.CORRELATION_ID),
    )


def device_order(rows: Rows) -> Ints:
    """Of device rows."""
    return sorted_positions(
        rows.integers(C.START_NS),
        lambda: rows.integers(C.DUR_NS),
        lambda: rows.integers(C.DEVICE),
        lambda: rows.integers(C.STREAM),
        lambda: rows.integers(C.CORRELATION_ID),
        lambda: rows.integers(C.NAME),
        lambda: rows.integers(C.BYTES),
    )


def allocation_order(rows: Rows) -> Ints:
    """Of allocator events."""
    return sorted_positions(
        rows.integers(C.T_NS),
        lambda: rows.integers(C.TOTAL_ALLOCATED),
        lambda: rows.integers(C.ADDRESS),
        lambda: rows.integers(C.BYTES),
    )


def counter_order(rows: Rows) -> Ints:
    """Of samples, which keep the order of the file within an instant."""
    return sorted_positions(rows.integers(C.T_NS))


def distinct(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Sorted distinct integers; `np.unique` would load NumPy's masked arrays.

    Example:
        >>> distinct(np.array([7, 5, 7]))
        array([5, 7])
    """
    ordered: npt.NDArray[np.int64] = np.sort(values)
    return ordered.compress(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
