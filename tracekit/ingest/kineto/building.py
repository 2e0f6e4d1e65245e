"""A table's rows while they are built of a chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.ingest.rows import NONE, Batch, Column, Rows

if TYPE_CHECKING:
    from tracekit.ingest.kineto.columns import Words


class Building:
    """A batch while it is built; a column without a value does not become one.

    Attributes:
        count: How many rows there are.

    Example:
        >>> built = Building(2)
        >>> built.numbers("a", Column(np.array([7, 8]), np.array([False, True])))
        >>> built.texts("b", (np.array([-1, -1]), []))
        >>> built.batch().rows.columns
        {'a': Column(values=array([ 7, -1]), missing=array([False,  True]))}
    """

    def __init__(self, count: int) -> None:
        """Begin with no column."""
        self.count = count
        self._columns: dict[str, Column] = {}
        self._texts: dict[str, list[bytes]] = {}

    def numbers(self, name: str, column: Column) -> None:
        """Add numbers; anything may stand where one is missing."""
        values, missing = column
        if missing is None or not missing.any():
            self._columns[name] = Column(values)
        elif not missing.all():
            self._columns[name] = Column(np.where(missing, values.dtype.type(NONE), values), missing)

    def texts(self, name: str, words: Words) -> None:
        """Add texts."""
        codes, encoded = words
        if len(encoded):
            self._columns[name] = Column(codes)
            self._texts[name] = list(encoded)

    def batch(self) -> Batch:
        """What was built."""
        return Batch(Rows(count=self.count, columns=self._columns), self._texts)
