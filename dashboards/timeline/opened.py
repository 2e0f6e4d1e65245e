"""The indexes of runs that are looked at: loaded, or built and kept; the longest unused are closed."""

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
"""Indexes open at once; one of 5 million intervals that could not be kept on disk takes 140 MB."""


LARGE = 200_000
"""Intervals from which causes are worked out in a process of their own."""
WORKER = "causes of idle time"
"""Start of the name of the threads that work them out."""


@dataclass
class Opened:
    """The open indexes of a store.

    Attributes:
        store: Its runs.
        results: Results of analyses, shared with the pages.
    """

    store: Store
    results: Results
    _kept: Results = field(default_factory=lambda: Results(kept=KEPT))
    _levels: Results = field(default_factory=lambda: Results(kept=KEPT))

    def of(self, run: Run) -> Index:
        """The index of a run; two who ask at once wait for one build.

        Raises:
            UnusableInputError: A table cannot be read.
        """
        index: Index = self._kept.get(run.path, lambda: self._open(run))
        return index

    def levels(self, run: Run) -> tuple[Levels, ...]:
        """The memory lanes of a run, whose numbers follow those of its index.

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
        """Have the causes of idle time laid over an index: from disk now, else when they are worked out."""
        folder = disk.place(self.store, run.path.name)
        if not len(index.idle):
            index.causes.tell(None)
        elif (kept := disk.load_causes(folder)) is not None:
            index.causes.tell(causes.restored(index, kept))
        else:
            name = f"{WORKER} {run.path.name}"
            threading.Thread(target=self._work_out, args=(run, index), name=name, daemon=True).start()

    def _work_out(self, run: Run, index: Index) -> None:
        folder = disk.place(self.store, run.path.name)
        try:
            if len(index.start) > LARGE and folder.is_dir():
                index.causes.tell(self._apart(run, index))
                return
            found = causes.of_result(index, self.results.of(run, causes.ANALYSIS).tables)
        except Exception:
            _LOG.exception("the causes of the idle time of run %s are not known", run.path.name)
            index.causes.tell(None)
            return
        disk.save_causes(folder, found.arrays())
        index.causes.tell(found)

    def _apart(self, run: Run, index: Index) -> causes.Explained:
        """The causes of a large run: its analysis would slow down every drawing, and keep its memory."""
        command = [sys.executable, "-m", f"{__package__}.explain", str(self.store.path), run.path.name]
        subprocess.run(  # noqa: S603 (this program, with the id of a run that the store has)
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        kept = disk.load_causes(disk.place(self.store, run.path.name))
        if kept is None:
            raise UnusableInputError("the causes could not be kept", hint="make room in the store")
        return causes.restored(index, kept)
