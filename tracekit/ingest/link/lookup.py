"""What was found under a key, for any number of keys: in memory while they are few, then in sorted files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from tracekit.ingest import spool
from tracekit.ingest.order import distinct
from tracekit.ingest.outline import outlined
from tracekit.ingest.rows import NONE, Batch, Column, Rows
from tracekit.ingest.windows import windows

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    Ints = npt.NDArray[np.integer[Any]]

HELD = 1 << 18
"""Rows that are held in memory before they are put aside."""
BLOCK = 1 << 13
"""Rows of a sorted file that are read together."""
_BLOCKS = 32
"""Blocks that are held while they are searched."""


class _Found(Protocol):
    def find(self, wanted: Ints) -> list[Ints]:
        """The values under each wanted key, a column at a time; -1 where there is no such key."""


class Lookup:
    """Values under keys; of equal keys the first one counts.

    Example:
        >>> found = Lookup(directory, "calls", columns=1)  # doctest: +SKIP
        >>> found.add(np.array([7, 5, 7]), np.array([1, 2, 3]))  # doctest: +SKIP
        >>> found.find(np.array([7, 8]))  # doctest: +SKIP
        [array([ 1, -1])]
    """

    def __init__(self, directory: Path, name: str, *, columns: int) -> None:
        """Begin without keys.

        Args:
            directory: Where rows are put aside.
            name: What no other table there is called.
            columns: Values that stand under a key.
        """
        self._directory, self._name = directory, name
        self._held: list[list[Ints]] = []
        self._none: list[Ints] = [np.empty(0, np.int64)] * (columns + 1)
        self._parts = 0
        self._index: _Found | None = None

    def add(self, keys: Ints, *values: Ints) -> None:
        """Add rows; none may be added once something was looked up."""
        self._held.append([keys, *values])
        if sum(len(held) for held, *_ in self._held) >= HELD:
            self._put_aside()

    def find(self, wanted: Ints) -> list[Ints]:
        """The values under each wanted key, a column at a time; -1 where there is no such key."""
        if self._index is None:
            self._index = self._sorted()
        return self._index.find(wanted)

    def _taken(self) -> list[Ints]:
        """What is held, sorted by key."""
        parts = self._held or [self._none]
        self._held = []
        return _firsts([np.concatenate(column) for column in zip(*parts, strict=True)])

    def _put_aside(self) -> None:
        taken = self._taken()
        if len(taken[0]):
            spool.park(self._directory, self._parts, {self._name: _batch(taken)})
            self._parts += 1

    def _sorted(self) -> _Found:
        if not self._parts:
            return _InMemory(self._taken())
        self._put_aside()
        return _merged(
            spool.Index(self._directory).table(self._name), self._directory / f"{self._name}.sorted"
        )


class _InMemory(msgspec.Struct, frozen=True):
    columns: list[Ints]

    def find(self, wanted: Ints) -> list[Ints]:
        keys, *values = self.columns
        if not len(keys):
            return [np.full(len(wanted), NONE, np.int64) for _ in values]
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        missing = keys[place] != wanted
        return [np.where(missing, NONE, column[place]) for column in values]


class _InFile(msgspec.Struct, frozen=True):
    """A file of rows of int64, by key; `first` is the first key of each block."""

    path: Path
    first: Ints
    columns: int

    def find(self, wanted: Ints) -> list[Ints]:
        found: list[Ints] = [np.full(len(wanted), NONE, np.int64) for _ in range(self.columns - 1)]
        block = np.searchsorted(self.first, wanted, side="right") - 1
        needed = distinct(block[block >= 0])
        for begin in range(0, len(needed), _BLOCKS):
            some = needed[begin : begin + _BLOCKS]
            asked = np.flatnonzero(np.isin(block, some))
            for column, values in zip(found, self._read(some).find(wanted[asked]), strict=True):
                column[asked] = values
        return found

    def _read(self, blocks: Ints) -> _InMemory:
        size = BLOCK * self.columns
        read = [np.fromfile(self.path, np.int64, size, offset=8 * size * block) for block in blocks.tolist()]
        return _InMemory(list(np.concatenate(read).reshape(-1, self.columns).T))


def _merged(parked: spool.Parked, path: Path) -> _InFile:
    """Put all rows into one file, by key."""
    first: list[Ints] = [np.empty(0, np.int64)]
    done = 0
    table = outlined(parked)
    with path.open("wb") as file:
        for window in windows([table]):
            rows = table.read(window.spans[0], parked.names)
            columns = _firsts([rows.integers(name) for name in parked.names])
            np.stack(columns, axis=1).tofile(file)
            first.append(columns[0][-done % BLOCK :: BLOCK])
            done += len(columns[0])
    return _InFile(path, np.concatenate(first), len(parked.names))


def _firsts(columns: list[Ints]) -> list[Ints]:
    """Rows by key, only the first of those with the same."""
    order = np.argsort(columns[0], kind="stable")
    keys = columns[0][order]
    order = order[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
    return [column[order] for column in columns]


def _batch(columns: list[Ints]) -> Batch:
    named = {f"c{place}": Column(column) for place, column in enumerate(columns)}
    return Batch(Rows(count=len(columns[0]), columns=named))
