"""Which host row encloses which, one window behind the other.

Rows of a window lie in lanes, one per thread. In front of each lane stand the rows that are still open where
the window begins. They carry what they have inherited, so nothing before the window is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tracekit.ingest import nesting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.ingest.nesting import Nest

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

    @classmethod
    def of(cls, columns: Sequence[Ints]) -> Inherited:
        """From its columns, in order."""
        return cls(**{each.name: column for each, column in zip(fields(cls), columns, strict=True)})

    @property
    def columns(self) -> list[Ints]:
        """Its columns, in order."""
        return [getattr(self, each.name) for each in fields(self)]

    def at(self, places: Ints) -> Inherited:
        """The same of rows at these places."""
        return self.of([column[places] for column in self.columns])


@dataclass(frozen=True, kw_only=True)
class Open:
    """Rows that are open at a border and may enclose later ones, by thread and start.

    Attributes:
        thread: Number of the thread.
        start: Start, ns.
        end: End, ns.
        row: Row id.
        depth: Number of enclosing rows.
        inherited: What they hand on.
    """

    thread: Ints
    start: Ints
    end: Ints
    row: Ints
    depth: Ints
    inherited: Inherited


NOTHING_OPEN = Open(
    thread=np.empty(0, np.int16),
    start=_none(),
    end=_none(),
    row=_none(),
    depth=_none(),
    inherited=Inherited(op=_none(), phase=_none(), forward=_none(), module=_none()),
)


class Threads:
    """Numbers the threads of a process tree from 0, as they come."""

    def __init__(self) -> None:
        self._known = _none()  # sorted
        self._numbers = np.empty(0, np.int16)

    def of(self, pid: Ints, tid: Ints) -> Ints:
        """The thread of each row; as int16 while there are few, since these sort fastest."""
        threads = (pid << 32) ^ tid
        new = ~self._are_known(threads)
        if new.any():
            self._add(np.unique(threads[new]))
        numbers: Ints = self._numbers[np.searchsorted(self._known, threads)]
        return numbers

    def _are_known(self, threads: Ints) -> Bools:
        if not len(self._known):
            return np.zeros(len(threads), np.bool_)
        place = np.searchsorted(self._known, threads)
        known: Bools = self._known[np.minimum(place, len(self._known) - 1)] == threads
        return known

    def _add(self, threads: Ints) -> None:
        count = len(self._known) + len(threads)
        kind = np.int16 if count <= np.iinfo(np.int16).max else np.int32
        known = np.append(self._known, threads)
        order = np.argsort(known)
        numbers = np.append(self._numbers, np.arange(len(self._known), count))
        self._known, self._numbers = known[order], numbers[order].astype(kind)


class Lanes:
    """The rows of a window and what was open before it, thread by thread, each lane by start.

    Results are in this order; `places` picks those of the window's own rows.

    Attributes:
        places: Where each row of the window stands.
        row: Row ids.
        parent: Place of the innermost enclosing row, -1 at the top.
        depth: Number of enclosing rows.
        inherited: What rows have from themselves or from those that enclose them.
    """

    def __init__(
        self,
        carried: Open,
        own: Inherited,
        *,
        thread: Ints,
        start: Ints,
        end: Ints,
        first: int,
        nest: Nest,
    ) -> None:
        """Lay out a window.

        Args:
            carried: What is open where it begins.
            own: What the window's rows say themselves; they are in their final order.
            thread: Thread of each row.
            start: Their starts.
            end: Their ends.
            first: Row id of the first of them.
            nest: How nesting is found.
        """
        rows = np.arange(first, first + len(start))
        threads = np.concatenate((carried.thread, thread))
        self._order = np.argsort(threads, kind="stable")
        self._thread = threads[self._order]
        self._start, self._end = self._laid(carried.start, start), self._laid(carried.end, end)
        self.row = self._laid(carried.row, rows)
        self._ghosts, self.places = np.split(_inverse(self._order), [len(carried.row)])
        self._nest = nest
        self.parent, local = nest.parents_and_depths(self._thread, self._start, self._end)
        values = [self._laid(*pair) for pair in zip(carried.inherited.columns, own.columns, strict=True)]
        self.inherited = Inherited.of(nest.inherited(self.parent, local, values))
        self.depth = local + self._left_out(carried, local)

    def _laid(self, carried: Ints, own: Ints) -> Ints:
        laid: Ints = np.concatenate((carried.astype(own.dtype), own))[self._order]
        return laid

    def _left_out(self, carried: Open, local: Ints) -> Ints:
        """How many of the rows around each row were not carried."""
        missing = carried.depth - local[self._ghosts]
        if not missing.any():
            return np.zeros_like(local)
        known = self._laid(missing, np.full(len(self.places), NONE))
        (found,) = self._nest.inherited(self.parent, local, [known])
        return np.maximum(found, 0).astype(local.dtype)

    def parent_rows(self) -> Ints:
        """Row id of the parent of each row of the window, -1 at the top."""
        parent: Ints = np.append(self.row, NONE)[self.parent[self.places]]
        return parent

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

    def open_at(self, until: int) -> Open:
        """What is open at an instant behind all rows, and ends after all that is open inside of it."""
        late = np.flatnonzero(self._end > until)[::-1]
        # ends as ranks, those of each further thread above all of the last one: a running maximum serves all
        _, rank = np.unique(self._end[late], return_inverse=True)
        thread = np.cumsum(np.append(True, self._thread[late[1:]] != self._thread[late[:-1]])[: len(late)])
        reach = rank + thread * (len(late) + 1)
        outlasts = np.append(True, reach[1:] > np.maximum.accumulate(reach)[:-1])[: len(late)]
        kept = late[outlasts][::-1]
        return Open(
            thread=self._thread[kept],
            start=self._start[kept],
            end=self._end[kept],
            row=self.row[kept],
            depth=self.depth[kept],
            inherited=self.inherited.at(kept),
        )


def _inverse(order: Ints) -> Ints:
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return back
