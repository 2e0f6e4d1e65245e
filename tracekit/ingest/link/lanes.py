"""Which host row encloses which, one window behind the other.

Rows of a window lie in lanes, one per thread. In front of each lane stand the rows that are still open where
the window begins: the innermost of them and all that enclose it. They carry what they have inherited, so
nothing before the window is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracekit.ingest import nesting

Ints: TypeAlias = npt.NDArray[np.integer[Any]]
Bools: TypeAlias = npt.NDArray[np.bool_]

NONE = -1


def _none() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class Inherited:
    """What rows have from themselves or from those that enclose them, -1 for none.

    Attributes:
        op: Row id of the innermost op.
        phase: Phase by the innermost marker, as an index.
        forward: 0 under a mark of the forward pass.
        module: Code of the name of the innermost module call.
    """

    op: Ints
    phase: Ints
    forward: Ints
    module: Ints

    def at(self, places: Ints) -> Inherited:
        """The same of rows at these places."""
        return Inherited(**{field.name: getattr(self, field.name)[places] for field in fields(self)})


@dataclass(frozen=True, kw_only=True)
class Open:
    """Rows that are open at a border: for each thread the innermost one and all that enclose it.

    Attributes:
        thread: Number of the thread.
        start: Start, ns.
        end: End, ns.
        row: Row id.
        inherited: What they hand on.
    """

    thread: Ints
    start: Ints
    end: Ints
    row: Ints
    inherited: Inherited


NOTHING_OPEN = Open(
    thread=np.empty(0, np.int16),
    start=_none(),
    end=_none(),
    row=_none(),
    inherited=Inherited(op=_none(), phase=_none(), forward=_none(), module=_none()),
)


class Threads:
    """Numbers the threads of a process tree from 0, as they come."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def of(self, pid: Ints, tid: Ints) -> Ints:
        """The thread of each row; as int16 while there are few, since these sort fastest."""
        encoded = pa.array((pid << 32) ^ tid).dictionary_encode()
        found = [self._known.setdefault(each, len(self._known)) for each in encoded.dictionary.to_pylist()]
        kind = np.int16 if len(self._known) <= np.iinfo(np.int16).max else np.int32
        numbers: Ints = np.array(found, kind)
        thread: Ints = numbers[encoded.indices.to_numpy()]
        return thread


class Lanes:
    """The rows of a window and what was open before it, thread by thread, each lane by start.

    Results are in this order; `places` picks those of the window's own rows.

    Attributes:
        places: Where each row of the window stands.
        row: Row ids.
        parent: Place of the innermost enclosing row, -1 at the top.
    """

    def __init__(self, carried: Open, *, thread: Ints, start: Ints, end: Ints, first: int) -> None:
        """Lay out a window.

        Args:
            carried: What is open where it begins.
            thread: Thread of each row; rows are in their final order.
            start: Their starts.
            end: Their ends.
            first: Row id of the first of them.
        """
        before = len(carried.row)
        threads = np.concatenate((carried.thread, thread))
        self._order = order = np.argsort(threads, kind="stable").astype(np.int32)
        self._carried, self._ghost = carried, order < before
        self._thread = threads[order]
        self._start = np.concatenate((carried.start, start))[order]
        self._end = np.concatenate((carried.end, end))[order]
        self.row = np.concatenate((carried.row, np.arange(first, first + len(start))))[order]
        self.places = _inverse(order)[before:]
        self.parent = nesting.parents(self._thread, self._start, self._end)

    def parent_rows(self) -> Ints:
        """Row id of the parent of each row of the window, -1 at the top."""
        parent: Ints = np.append(self.row, NONE)[self.parent[self.places]]
        return parent

    def depths(self) -> Ints:
        """Number of enclosing rows: all that enclose the innermost open row were carried with it."""
        return nesting.depths(self.parent)

    def inherit(self, own: Inherited) -> Inherited:
        """What each row has from itself or from the innermost enclosing row that has it.

        Args:
            own: What the window's rows say themselves.
        """
        return Inherited(
            **{
                each.name: self._inherit(getattr(self._carried.inherited, each.name), getattr(own, each.name))
                for each in fields(Inherited)
            }
        )

    def _inherit(self, carried: Ints, own: Ints) -> Ints:
        value: Ints = np.concatenate((carried.astype(own.dtype), own))[self._order]
        has = value != NONE
        if not has.any():
            return value
        return np.append(value, value.dtype.type(NONE))[nesting.nearest(self.parent, has | self._ghost)]

    def innermost(self, thread: Ints, times: Ints) -> Ints:
        """Place of the innermost row that covers each instant on its thread, -1 if none does."""
        found = np.full(len(times), NONE, np.int64)
        for lane in np.unique(thread):
            first, stop = np.searchsorted(self._thread, [lane, lane + 1])
            own, asked = slice(first, stop), thread == lane
            parent = np.where(self.parent[own] >= 0, self.parent[own] - first, NONE)
            inner = nesting.innermost(self._start[own], self._end[own], parent, times[asked])
            found[asked] = np.where(inner >= 0, first + inner, NONE)
        return found

    def open_at(self, until: int, inherited: Inherited) -> Open:
        """What is open at an instant behind all rows: the last one of each thread that is, and its parents.

        Rows that enclose nothing later any more are left out: the last open one outlasts them.
        """
        late = np.flatnonzero(self._end > until)
        last = late[np.append(self._thread[late[1:]] != self._thread[late[:-1]], True)[: len(late)]]
        chain = [last]
        while len(chain[-1]):
            above = self.parent[chain[-1]]
            chain.append(above[above >= 0])
        kept = np.sort(np.concatenate(chain))
        return Open(
            thread=self._thread[kept],
            start=self._start[kept],
            end=self._end[kept],
            row=self.row[kept],
            inherited=inherited.at(kept),
        )


def _inverse(order: Ints) -> Ints:
    back = np.empty(len(order), np.int32)
    back[order] = np.arange(len(order), dtype=np.int32)
    return back
