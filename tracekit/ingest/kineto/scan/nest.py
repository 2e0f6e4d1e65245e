"""Nesting by machine code, for imports that have it loaded anyway; `ingest.nesting` says what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tracekit.ingest.kineto.scan import loader, native

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
        return loader.nest, ()

    def nested(
        self, thread: Ints, start: Ints, end: Ints, known: Ints, values: Sequence[Ints]
    ) -> tuple[Ints, Ints, list[Ints]]:
        """See `Nest.nested`."""
        count = len(thread)
        parent, depth = np.empty(count, np.int64), np.empty(count, np.int64)
        depth[: len(known)] = known
        latest = np.full(int(thread.max(initial=-1)) + 1, -1)
        given = [np.ascontiguousarray(column, np.int64) for column in (thread, start, end)]
        addresses = [column.ctypes.data for column in (*given, parent, depth, latest)]
        self._code.nest(count, len(known), *addresses)
        return parent, depth, [self._inherited(parent, column) for column in values]

    def _inherited(self, parent: Ints, column: Ints) -> Ints:
        found = np.ascontiguousarray(column, np.int64)
        self._code.inherit(len(found), parent.ctypes.data, found.ctypes.data)
        return found
