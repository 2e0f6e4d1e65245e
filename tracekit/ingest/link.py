"""Join what a profiler recorded apart: enclosing intervals, calls and what they launched, steps, phases.

Works on one process's parked tables; everything it returns is in the order the rows are written in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit import step_names
from tracekit.ingest import nesting
from tracekit.ingest.order import sorted_positions
from tracekit.schema import C, HostKind, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy.typing as npt

    from tracekit.ingest.spool import Parked, Strings

    Ints = npt.NDArray[np.integer[Any]]
    Bools = npt.NDArray[np.bool_]

MODULE_MARKER = "nn.Module: "
NONE = -1

_OUTER_FIRST = (
    HostKind.PYTHON,
    HostKind.ANNOTATION,
    HostKind.OP,
    HostKind.RUNTIME,
    HostKind.SYNC,
    HostKind.OVERHEAD,
)
_PHASE_MARKERS: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    (Phase.ZERO_GRAD, re.compile(r".*zero_grad")),
    (Phase.OPTIMIZER, re.compile(r"Optimizer\.step#")),
    (Phase.DATALOAD, re.compile(r"enumerate\(DataLoader\)")),
    (Phase.BACKWARD, re.compile(r"autograd::engine::evaluate_function|\w+Backward\d*$")),
)
PHASES = tuple(Phase)


class Host:
    """Host rows of one process in their final order, with what encloses them.

    Positions count rows in that order; -1 stands for none.
    """

    def __init__(self, parked: Parked) -> None:
        self.names = parked.strings(C.NAME)
        self.kinds = parked.strings(C.KIND)
        self.order = order = _order(parked, self.names, self.kinds)
        self.start = parked.integers(C.START_NS)[order]
        self.end = self.start + parked.integers(C.DUR_NS)[order]
        self.thread = _shrunk(_threads(parked))[order]
        self._grouped = np.argsort(self.thread, kind="stable").astype(np.int32)
        self.parent = self._parents()
        self.kind = parked.codes(C.KIND, self.kinds).astype(np.int8)[order]
        self.name = parked.codes(C.NAME, self.names)[order]
        self.external = _shrunk(parked.integers(C.EXTERNAL_ID))[order]
        self.correlation = _shrunk(parked.integers(C.CORRELATION_ID))[order]
        self._parked = parked

    def _parents(self) -> Ints:
        grouped = self._grouped
        local = nesting.parents(self.thread[grouped], self.start[grouped], self.end[grouped])
        parent = np.full(len(grouped), NONE, np.int32)
        parent[grouped] = np.where(local >= 0, grouped[local], NONE)
        return parent

    def of_kind(self, *kinds: HostKind) -> Bools:
        """Which rows are of these kinds."""
        codes = [number for number, value in enumerate(self.kinds.values) if value in kinds]
        return np.isin(self.kind, codes)

    def named(self, matches: Callable[[str], object]) -> Bools:
        """Which rows have a name that matches; each distinct name is asked about once."""
        chosen = np.array([bool(matches(value)) for value in self.names.values], np.bool_)
        return chosen[self.name] if len(chosen) else np.zeros(0, np.bool_)

    @property
    def pid(self) -> Ints:
        """Process of each row."""
        return self._parked.integers(C.PID)[self.order]

    @cached_property
    def op(self) -> Ints:
        """Innermost op at each row: itself if it is one."""
        return nesting.nearest(self.parent, self.of_kind(HostKind.OP))

    def innermost(self, thread: Ints, times: Ints) -> Ints:
        """The innermost row that covers each instant on its thread."""
        found = np.full(len(times), NONE, np.int64)
        local = np.empty(len(self.thread), np.int32)
        for lane in np.unique(thread):
            rows = self._grouped[self.thread[self._grouped] == lane]
            if not len(rows):
                continue
            local[rows] = np.arange(len(rows))
            parent = np.where(self.parent[rows] >= 0, local[self.parent[rows]], NONE)
            asked = thread == lane
            inner = nesting.innermost(self.start[rows], self.end[rows], parent, times[asked])
            found[asked] = np.where(inner >= 0, rows[inner], NONE)
        return found


def depths(host: Host) -> Ints:
    """Number of rows that enclose each row on its thread."""
    return nesting.depths(host.parent)


def is_call(host: Host) -> Bools:
    """Which rows are calls of the device's runtime or driver."""
    return host.of_kind(HostKind.RUNTIME, HostKind.SYNC)


def _order(parked: Parked, names: Strings, kinds: Strings) -> Ints:
    """By start, the outer row first."""
    outer = np.array([_OUTER_FIRST.index(HostKind(value)) for value in kinds.values], np.int8)
    return sorted_positions(
        parked.integers(C.START_NS),
        lambda: -parked.integers(C.DUR_NS),
        lambda: outer[parked.codes(C.KIND, kinds)],
        lambda: parked.integers(C.EXTERNAL_ID),
        lambda: parked.codes(C.NAME, names),
        lambda: parked.integers(C.CORRELATION_ID),
    )


def _shrunk(values: Ints) -> Ints:
    """The same numbers in half the memory, where they fit."""
    small = np.iinfo(np.int32)
    fits = not len(values) or (small.min <= values.min() and values.max() <= small.max)
    return values.astype(np.int32) if fits else values


def _threads(parked: Parked) -> Ints:
    """One number per thread, which sorts by process and thread."""
    return thread_numbers(parked.integers(C.PID), parked.integers(C.TID))


def thread_numbers(pid: Ints, tid: Ints) -> Ints:
    """A number that tells (process, thread) pairs apart."""
    return (pid << 32) ^ tid


@dataclass(frozen=True)
class Steps:
    """Profiled steps of one process, by start: number, name and interval."""

    number: Ints
    name: list[str]
    start: Ints
    end: Ints

    def at(self, times: Ints) -> Ints:
        """Number of the step that covers each instant, -1 if none does."""
        if not len(self.start):
            return np.full(len(times), NONE, np.int64)
        index = np.searchsorted(self.start, times, side="right") - 1
        inside = (index >= 0) & (times < self.end[index])
        return np.where(inside, self.number[index], NONE)


def find_steps(host: Host) -> Steps:
    """Steps that the host marked; where several threads did, the one that marked most of them counts."""
    annotation = host.of_kind(HostKind.ANNOTATION)
    marked_by = [np.flatnonzero(host.named(marker.match) & annotation) for marker in step_names.MARKERS]
    rows, marker = next(
        (found for found in zip(marked_by, step_names.MARKERS, strict=True) if len(found[0])),
        (marked_by[0], step_names.MARKERS[0]),
    )
    names = [host.names.values[code] for code in host.name[rows]]
    numbers = np.array([int(match[1]) for match in map(marker.match, names) if match], np.int64)
    _, lane, marked = np.unique(host.thread[rows], return_inverse=True, return_counts=True)
    preferred = np.argsort(-marked[lane], kind="stable")
    _, found = np.unique(numbers[preferred], return_index=True)
    first = np.sort(preferred[found])
    return Steps(numbers[first], [names[i] for i in first], host.start[rows[first]], host.end[rows[first]])


def phases(host: Host, parked: Parked) -> Ints:
    """Index into `PHASES` of each row, -1 where the trace does not say.

    The innermost marker decides; forward is what carries or lies under an autograd sequence number of the
    forward pass, or under a module's call, outside of the other phases.
    """
    marker = np.full(len(host.start), NONE, np.int8)
    for phase, pattern in _PHASE_MARKERS:
        marker[host.named(pattern.match)] = PHASES.index(phase)
    found = _inherited(host, marker)
    forward = host.named(lambda name: name.startswith(MODULE_MARKER))
    forward |= ((parked.integers(C.SEQUENCE) >= 0) & (parked.integers(C.FWD_TID) <= 0))[host.order]
    below = nesting.nearest(host.parent, forward) >= 0
    return np.where((found == NONE) & below, PHASES.index(Phase.FORWARD), found)


def _inherited(host: Host, marker: Ints) -> Ints:
    at = nesting.nearest(host.parent, marker != NONE)
    return np.where(at >= 0, marker[at], NONE)


def modules(host: Host) -> Ints:
    """Code of the name of the innermost module call around each row, -1 if none is."""
    calls = host.named(lambda name: name.startswith(MODULE_MARKER))
    if not calls.any():
        return np.full(len(host.start), NONE, np.int8)
    at = nesting.nearest(host.parent, calls)
    return np.where(at >= 0, host.name[at], NONE)


@dataclass(frozen=True)
class Launches:
    """For each device row, the host rows of the launching call and of the op around it, -1 if unknown.

    Attributes:
        call: Launching call.
        op: Innermost op around that call.
        step: Step of the launching call, else the one that the row starts in.
    """

    call: Ints
    op: Ints
    step: Ints


class Launchers:
    """What may have launched work of a device: a few columns of calls and ops, kept without the host."""

    def __init__(self, host: Host, steps: Steps, step: Ints, *, scoped: bool) -> None:
        """Take from the host what is asked for.

        Args:
            host: The host's rows.
            steps: The profiled steps.
            step: Step of each host row, -1 if none.
            scoped: Processes of the trace count their own correlation ids.
        """
        calls = np.flatnonzero(is_call(host) & (host.correlation > 0))
        pids = host.pid[calls] if scoped else np.zeros(len(calls), np.int64)
        self.count = len(calls)
        self._processes = np.unique(pids)
        self._call_key = self._key(host.correlation[calls], pids)
        self._call, self._call_op, self._call_step = calls.astype(np.int32), host.op[calls], step[calls]
        ops = np.flatnonzero(host.of_kind(HostKind.OP) & (host.external > 0))
        self._op, self._op_key = ops.astype(np.int32), host.external[ops]
        self._steps, self._scoped = steps, scoped

    def of(self, parked: Parked, order: Ints) -> Launches:
        """Join device rows to the host: one call may have launched many (graphs), or be missing.

        Args:
            parked: The table of the device.
            order: Position of each row in it.
        """
        correlation = parked.integers(C.CORRELATION_ID)[order]
        pids = parked.integers(C.PID)[order] if self._scoped else np.zeros(len(order), np.int64)
        at = _find(self._call_key, self._key(correlation, pids))
        del correlation, pids
        op = _at(self._call_op, at)
        lost = np.flatnonzero(op == NONE)
        op[lost] = _at(self._op, _find(self._op_key, parked.integers(C.EXTERNAL_ID)[order[lost]]))
        own = self._steps.at(parked.integers(C.START_NS)[order])
        step = np.where(at >= 0, _at(self._call_step, at), own).astype(np.int32)
        return Launches(_at(self._call, at), op, step)

    def _key(self, ids: Ints, pids: Ints) -> Ints:
        """Ids that differ from those of other processes; -1 where there is none, or no such process."""
        if not len(self._processes):
            return np.full(len(ids), NONE, np.int64)
        number = np.minimum(np.searchsorted(self._processes, pids), len(self._processes) - 1)
        known = (ids > 0) & (self._processes[number] == pids)
        return np.where(known, ids.astype(np.int64) * len(self._processes) + number, NONE)


def _find(ids: Ints, wanted: Ints) -> Ints:
    """Place of the first id that is the wanted one, for each of these; -1 where there is none."""
    if not len(ids):
        return np.full(len(wanted), NONE, np.int32)
    known, first = np.unique(ids, return_index=True)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[place] == wanted, first[place], NONE).astype(np.int32)


def _at(values: Ints, places: Ints) -> Ints:
    """Values at places, -1 where the place is."""
    return np.append(values, values.dtype.type(NONE))[places]


def flagged(strings: Strings, values: Iterable[str]) -> list[int]:
    """Codes of some values of a text column."""
    wanted = set(values)
    return [number for number, value in enumerate(strings.values) if value in wanted]
