"""Watch the host while steps are profiled: pauses of Python's garbage collector, as ranges of the profile."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from typing import Any
from weakref import WeakSet

COLLECTION = "Garbage collection: generation {}"
"""Name of the range of a pause; `tracekit.schema` spells its begin again."""


class HostWatch:
    """What watches a process between `start` and `stop`; nothing of it is left after that.

    A process that is forked meanwhile is not watched.

    Args:
        torch: The program's torch.
    """

    def __init__(self, torch: Any) -> None:
        self._make_range = torch._C._profiler._RecordFunctionFast
        self._range: Any = None

    def start(self) -> None:
        """Begin to watch."""
        gc.callbacks.append(self._report_collection)
        _running.add(self)

    def stop(self) -> None:
        """End to watch."""
        _running.discard(self)
        with suppress(ValueError):  # not started
            gc.callbacks.remove(self._report_collection)

    def _report_collection(self, phase: str, details: dict[str, int]) -> None:
        """Record the collection that begins or ends, as a range that needs no dispatch of torch.

        A collection may begin while torch dispatches, traces or compiles.
        """
        if phase == "start":
            self._range = self._make_range(COLLECTION.format(details["generation"]))
            self._range.__enter__()
        elif self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None


_running: WeakSet[HostWatch] = WeakSet()


def _stop_all() -> None:
    for watch in list(_running):
        watch.stop()


os.register_at_fork(after_in_child=_stop_all)
