"""LRU cache of open indexes, loaded from disk or built."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.errors import UnusableInputError

from ..results import Results
from . import causes, disk, memory
from .build import assemble, build, seal

if TYPE_CHECKING:
    from tracekit.run import Run
    from tracekit.store import Store

    from .index import Index
    from .memory import Levels

_LOG = logging.getLogger(__name__)
KEPT = 6
"""Maximum open indexes; one of 5 million intervals takes 140 MB if it could not be saved to disk."""


LARGE = 200_000
"""Runs with more intervals compute causes in a subprocess."""
WORKER = "causes of idle time"
"""Prefix of the names of the threads that compute them."""


@dataclass
class Opened:
    """Open indexes of a store.

    Attributes:
        store: The store.
        results: Cache of analysis results, shared with the pages.
    """

    store: Store
    results: Results
    _indexes: Results = field(default_factory=lambda: Results(capacity=KEPT))
    _levels: Results = field(default_factory=lambda: Results(capacity=KEPT))

    def of(self, run: Run) -> Index:
        """Return the index of a run; concurrent requests share one build.

        Raises:
            UnusableInputError: A table cannot be read.
        """
        index: Index = self._indexes.get(run.path, lambda: self._open(run))
        return index

    def levels(self, run: Run) -> tuple[Levels, ...]:
        """Return the memory lanes of a run, numbered after those of its index.

        Raises:
            UnusableInputError: The table cannot be read.
        """
        found: tuple[Levels, ...] = self._levels.get(run.path, lambda: memory.levels(run))
        return found

    def _open(self, run: Run) -> Index:
        folder = disk.place(self.store, run.path.name)
        found = disk.load(folder, seal(run))
        if found is None:
            found = build(run)
            if disk.save(self.store, run.path.name, *found):
                found = disk.load(folder, seal(run)) or found
        index = assemble(*found)
        self._explain(run, index)
        return index

    def _explain(self, run: Run, index: Index) -> None:
        """Load the causes of idle time from disk, or start a thread that computes them."""
        folder = disk.place(self.store, run.path.name)
        if not len(index.idle):
            index.causes.set_final(None)
        elif (saved := disk.load_causes(folder)) is not None:
            index.causes.set_final(causes.restored(index, saved))
        else:
            name = f"{WORKER} {run.path.name}"
            threading.Thread(target=self._compute_causes, args=(run, index), name=name, daemon=True).start()

    def _compute_causes(self, run: Run, index: Index) -> None:
        folder = disk.place(self.store, run.path.name)
        try:
            if len(index.start) > LARGE and folder.is_dir():
                index.causes.set_final(self._in_subprocess(run, index))
                return
            found = causes.of_result(index, self.results.of(run, causes.ANALYSIS).tables)
        except Exception:
            _LOG.exception("computing the causes of idle time of run %s failed", run.path.name)
            index.causes.set_final(None)
            return
        disk.save_causes(folder, found.arrays())
        index.causes.set_final(found)

    def _in_subprocess(self, run: Run, index: Index) -> causes.Explained:
        """Compute the causes of a large run in a subprocess, to keep this process responsive and small."""
        command = [sys.executable, "-m", f"{__package__}.explain", str(self.store.path), run.path.name]
        subprocess.run(  # noqa: S603 (own module, with the id of a stored run)
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        saved = disk.load_causes(disk.place(self.store, run.path.name))
        if saved is None:
            raise UnusableInputError("the causes could not be saved", hint="free disk space in the store")
        return causes.restored(index, saved)
