"""What launched the work of a device: joined by the ids that the profiler gave to both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tracekit.ingest.link.lookup import Lookup
from tracekit.ingest.rows import NONE
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from tracekit.ingest.link.host import HostWindow
    from tracekit.ingest.rows import Rows

    Ints = npt.NDArray[np.integer[Any]]


class Launches(msgspec.Struct, frozen=True, kw_only=True):
    """For each device row, the row ids of the launching call and of the op around it, -1 if unknown.

    Attributes:
        call: Launching call.
        op: Innermost op around that call.
        step: Step of the launching call, else the one that the row starts in.
    """

    call: Ints
    op: Ints
    step: Ints


class Launchers:
    """Calls and ops of a host that may have launched work of a device.

    Attributes:
        count: How many calls.
    """

    def __init__(self, directory: Path, processes: Ints | None) -> None:
        """Begin without any.

        Args:
            directory: Where rows are put aside when they are many.
            processes: Sorted ids of the host's processes, where they count their own correlation ids.
        """
        self.count = 0
        self._processes = processes
        self._calls = Lookup(directory, "calls", columns=3)
        self._ops = Lookup(directory, "ops", columns=1)

    def add(self, window: HostWindow) -> None:
        """Take note of a window's calls and ops; windows come in order of time."""
        rows, ids = window.rows, window.rows.integers(C.CORRELATION_ID)
        calls = np.flatnonzero(window.is_call & (ids > 0))
        self.count += len(calls)
        keys = self._keys(ids.take(calls), rows.integers(C.PID).take(calls))
        self._calls.add(keys, window.first + calls, window.op.take(calls), window.step.take(calls))
        external = rows.integers(C.EXTERNAL_ID)
        ops = np.flatnonzero(window.is_op & (external > 0))
        self._ops.add(external.take(ops), window.first + ops)

    def of(self, rows: Rows, own: Ints) -> Launches:
        """Join device rows to the host: one call may have launched many (graphs), or be missing.

        Args:
            rows: Rows of the device.
            own: The step that each of them starts in.
        """
        call, op, step = self._calls.find(self._keys(rows.integers(C.CORRELATION_ID), rows.integers(C.PID)))
        lost = np.flatnonzero(op == NONE)
        external = rows.integers(C.EXTERNAL_ID)[lost]
        lost, external = lost[external > 0], external[external > 0]
        if len(lost):
            op[lost] = self._ops.find(external)[0]
        return Launches(call=call, op=op, step=np.where(call == NONE, own, step))

    def _keys(self, ids: Ints, pids: Ints) -> Ints:
        """Ids that differ from those of other processes; -1 where there is none, or no such process."""
        if self._processes is None:
            return np.where(ids > 0, ids, NONE)
        if not len(self._processes):
            return np.full(len(ids), NONE, np.int64)
        number = np.minimum(np.searchsorted(self._processes, pids), len(self._processes) - 1)
        known = (ids > 0) & (self._processes[number] == pids)
        return np.where(known, ids * len(self._processes) + number, NONE)
