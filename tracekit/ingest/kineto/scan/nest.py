"""Nesting by machine code, for imports that have it loaded anyway; `ingest.nesting` says what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tracekit.ingest.kineto.scan import native, ready

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.ingest.nesting import Nest

Ints: TypeAlias = npt.NDArray[np.integer[Any]]


class CompiledNest:
    """`nesting.Nest` row by row, several times faster than by pointer jumping."""

    def __init__(self) -> None:
        self._code = native.load()

    def __reduce__(self) -> tuple[Callable[[], Nest], tuple[()]]:
        """Another process has code of its own, or none."""
        return ready.nest, ()

    def parents_and_depths(self, thread: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Position of the innermost enclosing row, -1 at the top, and number of enclosing rows."""
        count = len(thread)
        parent, depth = np.empty(count, np.int64), np.empty(count, np.int64)
        given = [np.ascontiguousarray(column, np.int64) for column in (thread, start, end)]
        self._code.nest(count, *(column.ctypes.data for column in (*given, parent, depth)))
        return parent, depth

    def inherited(self, parent: Ints, _depth: Ints, values: Sequence[Ints]) -> list[Ints]:
        """Each of some values from a row itself, else from the innermost enclosing row that has it."""
        above = np.ascontiguousarray(parent, np.int64)
        return [self._filled(above, column) for column in values]

    def _filled(self, parent: Ints, column: Ints) -> Ints:
        found = column.astype(np.int64)
        self._code.inherit(len(found), parent.ctypes.data, found.ctypes.data)
        return found.astype(column.dtype, copy=False)
