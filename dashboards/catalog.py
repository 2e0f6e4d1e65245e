"""Listing of the store's runs, whose `run.json` is read again only when it changes, and their metrics."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import msgspec

from tracekit.errors import TracekitError
from tracekit.runs.metrics import STEP_TIME, peaks, step_time
from tracekit.runs.run import Run
from tracekit.runs.store import Store

Stamp: TypeAlias = tuple[str, int]


@dataclass(frozen=True)
class Unreadable:
    """A run that cannot be read: the name of its folder, what is wrong, and what to do."""

    name: str
    message: str
    hint: str


@dataclass(frozen=True)
class Listing:
    """Snapshot of the store, oldest run first."""

    runs: tuple[Run, ...] = ()  # the runs that can be read
    unreadable: tuple[Unreadable, ...] = ()  # those that cannot
    stamp: int = 0  # changes whenever a run is added, deleted or rewritten

    def find(self, name: str) -> Run | None:
        """Return the readable run with this folder name, or None."""
        return next((run for run in self.runs if run.path.name == name), None)


REUSED_S = 0.5
"""Seconds that a listing of a folder counts without a look at each run, unless runs come or go."""
REUSED_FACTOR = 20
"""As above, in times that it took: 5,000 runs are looked at every second."""
MAX_REUSE_S = 10.0
"""Longest reuse, in seconds."""


@dataclass
class Catalog:
    """Cached listing of a store; listing again costs one stat per run."""

    store: Store
    _made: tuple[float, int | None, Listing] | None = None  # until when, and of which folder time
    _known: dict[Stamp, Run | Unreadable] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def list_runs(self) -> Listing:
        """List the store."""
        with self._guard:
            changed = None  # when a run was last added to or removed from a local store
            with suppress(OSError):
                changed = self.store.path.stat().st_mtime_ns if isinstance(self.store.path, Path) else None
            cached, begun = self._made, time.monotonic()
            if cached and cached[1] == changed is not None and begun < cached[0]:
                return cached[2]
            listing = self._list_again()
            ended = time.monotonic()
            reused = min(max(REUSED_S, REUSED_FACTOR * (ended - begun)), MAX_REUSE_S)
            self._made = ended + reused, changed, listing
            return listing

    def _list_again(self) -> Listing:
        runs_by_stamp = {stamp: run for run in self.store.runs() if (stamp := _stamp(run))}
        self._known = {
            stamp: self._known.get(stamp) or _read_run(run) for stamp, run in runs_by_stamp.items()
        }
        listed = list(self._known.values())
        unreadable = tuple(row for row in listed if isinstance(row, Unreadable))
        runs = tuple(row for row in listed if not isinstance(row, Unreadable))
        return Listing(runs, unreadable, hash(tuple(runs_by_stamp)))


def _stamp(run: Run) -> Stamp | None:
    """Return name and modification time of a run; None if it has been deleted."""
    try:
        return run.path.name, run.written_ns
    except OSError:
        return None


def _read_run(run: Run) -> Run | Unreadable:
    try:
        run.header  # noqa: B018 (read once, cached by the run)
    except TracekitError as error:
        return Unreadable(run.path.name, error.message, error.hint)
    except (msgspec.MsgspecError, ValueError) as error:
        return Unreadable(run.path.name, f"run.json is damaged: {error}", "import or collect the run again")
    return run


def read_metric(run: Run, metric: str) -> float | None:
    """Return a metric of a run; None if it was not measured."""
    return step_time(run) if metric == STEP_TIME else _PEAKS(run).get(metric)


_PEAKS = lru_cache(maxsize=65_536)(peaks)  # runs never change
