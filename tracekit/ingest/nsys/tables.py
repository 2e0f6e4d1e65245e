"""The tables of an export, read by column name in bounded chunks, whatever holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

NULL: Final = int(np.iinfo(np.int64).min)
"""Stands for null in a column of integers; no time, id or size has this value."""
CHUNK_ROWS: Final = 1 << 17
FEW_ROWS: Final = 4096
"""Rows at most of a table that describes the capture."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Columns to read of a table; one that the table lacks is null in every row.

    Attributes:
        integers: Whole numbers: times in ns, ids, sizes in bytes.
        reals: Numbers that may have a fraction.
        texts: Text.
    """

    integers: Sequence[str] = ()
    reals: Sequence[str] = ()
    texts: Sequence[str] = ()


class Chunk(msgspec.Struct, frozen=True):
    """Some rows of a table, by column: integers with `NULL` for null, reals with NaN, texts with nulls."""

    rows: int
    _integers: dict[str, Ints] = msgspec.field(default_factory=dict)
    _reals: dict[str, Floats] = msgspec.field(default_factory=dict)
    _texts: dict[str, pa.Array] = msgspec.field(default_factory=dict)

    def integers(self, name: str) -> Ints:
        """A column of whole numbers; all `NULL` where the table lacks it."""
        found = self._integers.get(name)
        return np.full(self.rows, NULL, np.int64) if found is None else found

    def replaced(self, name: str, values: Ints) -> Chunk:
        """The same rows with other whole numbers in one column."""
        return Chunk(self.rows, {**self._integers, name: values}, self._reals, self._texts)

    def where(self, kept: npt.NDArray[np.bool_]) -> Chunk:
        """Only the rows that are kept."""
        chosen = pa.array(kept)
        return Chunk(
            int(kept.sum()),
            {name: values[kept] for name, values in self._integers.items()},
            {name: values[kept] for name, values in self._reals.items()},
            {name: values.filter(chosen) for name, values in self._texts.items()},
        )

    def reals(self, name: str) -> Floats:
        """A column of numbers; all NaN where the table lacks it."""
        found = self._reals.get(name)
        return np.full(self.rows, np.nan) if found is None else found

    def texts(self, name: str) -> pa.Array:
        """A column of text; all null where the table lacks it."""
        found = self._texts.get(name)
        return pa.nulls(self.rows, pa.string()) if found is None else found


def whole(value: Any) -> int | None:
    """A value of a small table as a whole number of 64 bits; None where it is none.

    Example:
        >>> [whole(value) for value in (7, 7.0, "7", None, b"x", 1 << 64)]
        [7, 7, None, None, None, None]
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and abs(value) <= np.iinfo(np.int64).max else None


def words(value: Any) -> str:
    """A value of a small table as text; empty where it is none."""
    return value if isinstance(value, str) else ""


class Tables(Protocol):
    """An export: tables by the vendor's names, any of which may be absent."""

    @property
    def path(self) -> Path:
        """What is read."""

    def names(self) -> frozenset[str]:
        """The tables that are there."""

    def columns(self, table: str) -> frozenset[str]:
        """Columns of a table; none when it is absent."""

    def chunks(self, table: str, wanted: Wanted) -> Iterator[Chunk]:
        """A table's rows, in the order in which they are stored; none when it is absent.

        Raises:
            UnusableInputError: It is damaged.
        """

    def records(self, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """The rows of a small table, only these columns; absent ones are None.

        Raises:
            UnusableInputError: It is damaged.
        """
