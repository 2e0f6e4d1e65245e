"""Profiled steps: found among the few rows that mark them, before any other row is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tracekit import step_names
from tracekit.ingest.link.lanes import Threads
from tracekit.ingest.order import host_order
from tracekit.ingest.rows import NONE, joined
from tracekit.ingest.texts import NO_STRINGS
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracekit.ingest.outline import Outline
    from tracekit.ingest.rows import Rows
    from tracekit.ingest.texts import Strings

    Ints = npt.NDArray[np.integer[Any]]
    Bools = npt.NDArray[np.bool_]

_WANTED = (C.START_NS, C.DUR_NS, C.KIND, C.NAME, C.PID, C.TID, C.EXTERNAL_ID, C.CORRELATION_ID)


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """Profiled steps of one process, by start: number, name and interval."""

    number: Ints
    name: list[str]
    start: Ints
    end: Ints

    def at(self, times: Ints) -> Ints:
        """Number of the step that covers each of some rising instants, -1 if none does."""
        if not len(self.start):
            return np.full(len(times), NONE, np.int64)
        begin = np.searchsorted(times, self.start)
        index = np.repeat(np.arange(-1, len(begin)), np.diff(begin, prepend=0, append=len(times)))
        inside = (index >= 0) & (times < self.end[index])
        return np.where(inside, self.number[index], NONE)


def find_steps(host: Outline) -> Steps:
    """Steps that the host marked; where several threads did, the one that marked most of them counts."""
    names = host.texts.get(C.NAME, NO_STRINGS)
    for marker in step_names.MARKERS:
        rows = _marked(host, names.matching(marker.match))
        if rows is not None:
            found = [marker.match(names.values[code]) for code in rows.integers(C.NAME)]
            return _steps(rows, np.array([int(each[1]) for each in found if each], np.int64), names)
    none = np.empty(0, np.int64)
    return Steps(number=none, name=[], start=none, end=none)


def _marked(host: Outline, matches: Bools) -> Rows | None:
    """Annotations with one of these names, in their final order; None without any."""
    kinds = host.texts.get(C.KIND, NO_STRINGS)
    annotation = kinds.among([HostKind.ANNOTATION])
    found = []
    for part in host.parked.parts:
        if matches[host.texts[C.NAME].recode[part]].any():
            rows = host.read([host.whole(part)], _WANTED)
            marked = matches[rows.integers(C.NAME)] & annotation[rows.integers(C.KIND)]
            found.append(rows.take(np.flatnonzero(marked)))
    marking = joined(found) if found else None
    return marking.take(host_order(marking, kinds)) if marking and marking.count else None


def _steps(rows: Rows, numbers: Ints, names: Strings) -> Steps:
    thread = Threads().of(rows.integers(C.PID), rows.integers(C.TID))
    _, lane, marked = np.unique(thread, return_inverse=True, return_counts=True)
    preferred = np.argsort(-marked[lane], kind="stable")
    _, found = np.unique(numbers[preferred], return_index=True)
    first = np.sort(preferred[found])
    start = rows.integers(C.START_NS)[first]
    return Steps(
        number=numbers[first],
        name=[names.values[code] for code in rows.integers(C.NAME)[first]],
        start=start,
        end=start + rows.integers(C.DUR_NS)[first],
    )
