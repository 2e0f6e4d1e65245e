"""Index cache on disk: one folder per run in the store's `.timeline`, written atomically.

    python -m tracekit.dashboards.timeline.disk STORE RUN

computes the causes of idle time of a large run in a process of low priority. The index must be on disk; the
causes are saved next to it, and the result of the analysis in the result cache.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tracekit import storage
from tracekit.analysis.cache import ResultCache
from tracekit.errors import UnusableInputError
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.storage import locks
from tracekit.storage.atomic import TEMPORARY, temporary_path, write_atomically

from ..site import Results
from .build import VERSION, Arrays, IndexHeader, assemble, build, seal
from .index import ANALYSIS, TABLE, IdleCauses, Index, restore_causes
from .levels import Levels, read_counters, read_memory

FOLDER = ".timeline"
_OUTLINE, _CAUSES = "outline.json", "causes.npz"
_ARRAYS = ("start", "total", "row", "label", "masks", "places", "lengths")
_TEMPORARY = re.compile(rf"\.tmp-({locks.MARK_PATTERN})(?:\.npz)?")


def index_folder(store: Store, run_id: str) -> Path:
    """Return the folder of a run's index."""
    return store.local_folder / FOLDER / run_id / f"v{VERSION}"


def load(folder: Path, seal: dict[str, str]) -> tuple[IndexHeader, Arrays] | None:
    """Load an index with memory-mapped arrays; None if it is missing, damaged or of other tables."""
    try:
        outline = msgspec.json.decode((folder / _OUTLINE).read_bytes(), type=IndexHeader)
        if outline.seal != seal:
            return None
        arrays = {}
        for name in _ARRAYS:
            array = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            arrays[name] = array if array.size else np.array(array)  # empty ones cannot be mapped
        return outline, arrays
    except (OSError, ValueError, msgspec.MsgspecError):
        return None


def save(store: Store, run_id: str, outline: IndexHeader, arrays: Arrays) -> bool:
    """Save an index; concurrent writers are safe.

    Args:
        store: The store of the run.
        run_id: Id of the run.
        outline: Header of the index.
        arrays: Its arrays by name.

    Returns:
        Whether it was saved; False if the store is not writable.
    """
    target = index_folder(store, run_id)
    if target.parent.is_symlink():  # nothing is written where a link leads
        return False
    try:
        folder = store.folder(FOLDER)
        with write_atomically(target, temporary=temporary_path(folder)) as temporary:
            temporary.mkdir()
            for name in _ARRAYS:
                np.save(temporary / f"{name}.npy", arrays[name], allow_pickle=False)
            (temporary / _OUTLINE).write_bytes(msgspec.json.encode(outline))
            target.parent.mkdir(exist_ok=True)
            if target.exists() and load(target, outline.seal) is None:
                stale = temporary_path(folder)
                with contextlib.suppress(OSError):  # rename first: causes may still be written into it
                    target.rename(stale)
                shutil.rmtree(stale, ignore_errors=True)
    except UnusableInputError:
        return False
    except OSError:  # another writer may have been first
        return load(target, outline.seal) is not None
    return True


def save_causes(folder: Path, arrays: dict[str, Any]) -> None:
    """Save the causes next to their index; errors are ignored, since causes can be recomputed."""
    temporary = folder / f"{TEMPORARY}{locks.new_mark()}.npz"  # numpy would append a missing suffix
    with contextlib.suppress(OSError), write_atomically(folder / _CAUSES, temporary=temporary):
        np.savez(temporary, **arrays)


def load_causes(folder: Path) -> dict[str, Any] | None:
    """Load the saved causes; None if there are none."""
    try:
        with np.load(folder / _CAUSES, allow_pickle=False) as saved:
            return {name: saved[name] for name in saved.files}
    except (OSError, ValueError, zipfile.BadZipFile):
        return None


def sweep(store: Store) -> None:
    """Delete indexes of deleted runs and older versions, and leftovers of killed processes."""
    folder = store.local_folder / FOLDER
    if not folder.is_dir() or folder.is_symlink():  # what is there may be others'
        return
    entries = list(folder.iterdir())  # list before the runs, so that the index of a new run is not deleted
    runs = {run.path.name for run in store.runs()}
    for entry in entries:
        if _is_leftover(entry) or (entry.name not in runs and not _TEMPORARY.fullmatch(entry.name)):
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name in runs and not entry.is_symlink():
            for version in entry.iterdir():
                if version.name != f"v{VERSION}":
                    shutil.rmtree(version, ignore_errors=True)
            for file in filter(_is_leftover, entry.glob(f"v{VERSION}/*")):
                file.unlink(missing_ok=True)


def _is_leftover(path: Path) -> bool:
    """Return whether it is a temporary file of a process that no longer runs."""
    temporary = _TEMPORARY.fullmatch(path.name)
    return temporary is not None and locks.is_dead(temporary[1])


_LOG = logging.getLogger(__name__)
MAX_OPEN = 6
"""Maximum open indexes; one of 5 million intervals takes 140 MB if it could not be saved to disk."""


MIN_LARGE = 200_000
"""Runs with more intervals compute causes in a subprocess."""
WORKER = "causes of idle time"
"""Prefix of the names of the threads that compute them."""


@dataclass
class OpenIndexes:
    """Open indexes of a store; the results of analyses are shared with the pages."""

    store: Store
    results: Results
    _indexes: Results = field(default_factory=lambda: Results(capacity=MAX_OPEN))
    _levels: Results = field(default_factory=lambda: Results(capacity=MAX_OPEN))

    def of(self, run: Run) -> Index:
        """Return the index of a run; concurrent requests share one build.

        Raises:
            UnusableInputError: A table cannot be read.
        """
        return self._indexes.get(run.path, lambda: self._open(run))

    def levels(self, run: Run) -> tuple[Levels, ...]:
        """Return the lanes of memory and counters of a run, numbered after those of its index.

        Raises:
            UnusableInputError: A table cannot be read.
        """
        span = self.of(run).span
        return self._levels.get(run.path, lambda: (*read_memory(run), *read_counters(run, span)))

    def _open(self, run: Run) -> Index:
        folder = index_folder(self.store, run.path.name)
        loaded = load(folder, seal(run))
        if loaded is None:
            loaded = build(run)
            if save(self.store, run.path.name, *loaded):
                loaded = load(folder, seal(run)) or loaded
        index = assemble(*loaded)
        # The causes of idle time are on disk, or a thread computes them.
        if not len(index.idle):
            index.causes.set_final(None)
        elif (saved := load_causes(folder)) is not None:
            index.causes.set_final(restore_causes(index.idle.start, saved))
        else:
            name = f"{WORKER} {run.path.name}"
            threading.Thread(target=self._compute_causes, args=(run, index), name=name, daemon=True).start()
        return index

    def _compute_causes(self, run: Run, index: Index) -> None:
        folder = index_folder(self.store, run.path.name)
        try:
            if len(index.start) > MIN_LARGE and folder.is_dir():
                index.causes.set_final(self._in_subprocess(run, index))
                return
            idle_causes = index.causes_of(self.results.of(run, ANALYSIS).tables.get(TABLE))
        except Exception:
            _LOG.exception("computing the causes of idle time of run %s failed", run.path.name)
            index.causes.set_final(None)
            return
        save_causes(folder, idle_causes.arrays())
        index.causes.set_final(idle_causes)

    def _in_subprocess(self, run: Run, index: Index) -> IdleCauses:
        """Compute the causes of a large run in a subprocess, to keep this process responsive and small."""
        command = [sys.executable, "-m", __name__, str(self.store.path), run.path.name]
        subprocess.run(  # noqa: S603 (own module, with the id of a stored run)
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        saved = load_causes(index_folder(self.store, run.path.name))
        if saved is None:
            raise UnusableInputError("the causes could not be saved", hint="free disk space in the store")
        return restore_causes(index.idle.start, saved)


def main(store_path: str, run_id: str) -> int:
    """Compute and save the causes; return 1 if there is no index on disk."""
    store = Store(storage.parse(store_path))
    run = Run(store.path / run_id)
    folder = index_folder(store, run_id)
    loaded = load(folder, seal(run))
    if loaded is None:
        return 1
    idle_causes = assemble(*loaded).causes_of(ResultCache(store).analyze(run, ANALYSIS).tables.get(TABLE))
    save_causes(folder, idle_causes.arrays())
    return 0


if __name__ == "__main__":
    os.nice(10)
    sys.exit(main(*sys.argv[1:]))
