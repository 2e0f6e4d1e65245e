"""Results of analyses, kept while they are looked at, so that a page and its exports ask once."""

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

KEPT = 64
"""Results kept at most; the longest unused goes first."""


def _computed(run: Run, name: str) -> Result:
    return analysis.analyze(run, name)


@dataclass
class Results:
    """A cache of what is computed of runs; two who ask for the same at once wait for one computation.

    Runs never change once they are stored, so nothing here grows stale.

    Attributes:
        kept: Results kept at most.
        by: What gives the results of analyses.
    """

    kept: int = KEPT
    by: Analyze = _computed
    _done: OrderedDict[Hashable, Any] = field(default_factory=OrderedDict)
    _locks: dict[Hashable, threading.Lock] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def of(self, run: Run, name: str) -> Result:
        """The result of one analysis of a run.

        Raises:
            PluginError: The analysis is unknown or failed.
        """
        return self.get((run.path, name), lambda: self.by(run, name))

    def between(self, base: Run, head: Run, name: str) -> Result:
        """How a head differs from a base, by one analysis.

        Raises:
            PluginError: The analysis is unknown or failed.
        """
        return self.get((base.path, head.path, name), lambda: analysis.compare(base, head, name))

    def get(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """What was computed under a key, else computed now; an error is not kept."""
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
                while len(self._done) > self.kept:
                    self._done.popitem(last=False)
        return value
