"""LRU cache of analysis results, shared by pages and exports."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit import analysis

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from tracekit.analysis import Analyze, Result
    from tracekit.run import Run

CAPACITY = 64
"""Default number of cached results."""


def _computed(run: Run, name: str) -> Result:
    return analysis.analyze(run, name)


@dataclass
class Results:
    """LRU cache of values computed from runs; concurrent requests for one key share one computation.

    Stored runs never change, so entries never expire.

    Attributes:
        capacity: Maximum number of entries.
        analyze: Function that runs an analysis.
    """

    capacity: int = CAPACITY
    analyze: Analyze = _computed
    _done: OrderedDict[Hashable, Any] = field(default_factory=OrderedDict)
    _locks: dict[Hashable, threading.Lock] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def of(self, run: Run, name: str) -> Result:
        """Return the result of one analysis of a run.

        Raises:
            PluginError: The analysis is unknown or failed.
        """
        return self.get((run.path, name), lambda: self.analyze(run, name))

    def between(self, base: Run, head: Run, name: str) -> Result:
        """Return the comparison of two runs by one analysis.

        Raises:
            PluginError: The analysis is unknown or failed.
        """
        return self.get((base.path, head.path, name), lambda: analysis.compare(base, head, name))

    def get(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the cached value of a key, or compute it; errors are not cached."""
        with self._guard:
            if key in self._done:
                self._done.move_to_end(key)
                return self._done[key]
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            with self._guard:
                if key in self._done:
                    return self._done[key]
            value = compute()
            with self._guard:
                self._done[key] = value
                self._locks.pop(key, None)
                while len(self._done) > self.capacity:
                    self._done.popitem(last=False)
        return value
