"""Rows of a table in memory: columns of numbers, and of texts as codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]
    Positions = npt.NDArray[np.integer[Any]]

NONE = -1
"""Stands where a number is missing, and is the code of a text that is."""


class Column(NamedTuple):
    """One column.

    Attributes:
        values: int64 or float64; integers that stand for texts are their codes.
        missing: Where a number is missing; None when none is. Codes tell it themselves.
    """

    values: npt.NDArray[Any]
    missing: Bools | None = None

    def take(self, chosen: Positions) -> Column:
        """The column at these positions, in that order."""
        missing = None if self.missing is None else self.missing.take(chosen)
        return Column(self.values.take(chosen), missing)


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Some rows of a table.

    Attributes:
        count: How many.
        columns: Those that have a value anywhere; others are null.
    """

    count: int
    columns: dict[str, Column]

    def integers(self, column: str) -> Ints:
        """A column of integers, or the codes of one of texts; -1 where it is null."""
        found = self.columns.get(column)
        return np.full(self.count, NONE, np.int64) if found is None else found.values

    def take(self, chosen: Positions) -> Rows:
        """Rows at these positions, in that order."""
        columns = {name: column.take(chosen) for name, column in self.columns.items()}
        return Rows(count=len(chosen), columns=columns)


class Batch(msgspec.Struct, frozen=True):
    """Rows of one table as they are decoded, with texts of their own.

    Attributes:
        rows: The rows, in any order.
        texts: For each text column the texts in UTF-8 that its codes stand for; some may be the same.
    """

    rows: Rows
    texts: dict[str, list[bytes]] = msgspec.field(default_factory=dict)


def joined(pieces: Sequence[Rows]) -> Rows:
    """Rows of several pieces whose codes mean the same, one behind the other; there must be a piece.

    Example:
        >>> one, other = (Rows(count=1, columns={"a": Column(np.array([n]))}) for n in (1, 2))
        >>> joined([one, other]).integers("a")
        array([1, 2])
    """
    if len(pieces) == 1:
        return pieces[0]
    names = dict.fromkeys(name for piece in pieces for name in piece.columns)
    return Rows(
        count=sum(piece.count for piece in pieces),
        columns={name: _joined([_whole(piece, name) for piece in pieces]) for name in names},
    )


def _whole(rows: Rows, name: str) -> Column:
    nothing = np.full(rows.count, NONE, np.int64)
    return rows.columns.get(name) or Column(nothing, np.ones(rows.count, np.bool_))


def _joined(columns: Sequence[Column]) -> Column:
    values = np.concatenate([column.values for column in columns])
    if all(column.missing is None for column in columns):
        return Column(values)
    return Column(values, np.concatenate([_flags(column) for column in columns]))


def _flags(column: Column) -> Bools:
    return np.zeros(len(column.values), np.bool_) if column.missing is None else column.missing


def concatenated(batches: Sequence[Batch]) -> Batch:
    """Batches of one table as one, each with its own texts behind those before it."""
    texts: dict[str, list[bytes]] = {}
    pieces = []
    for batch in batches:
        columns = dict(batch.rows.columns)
        for name, own in batch.texts.items():
            known = texts.setdefault(name, [])
            codes = columns[name].values
            columns[name] = Column(np.where(codes < 0, NONE, codes + len(known)))
            known.extend(own)
        pieces.append(Rows(count=batch.rows.count, columns=columns))
    return Batch(joined(pieces), texts)
