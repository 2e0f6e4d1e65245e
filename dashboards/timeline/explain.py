"""Compute the causes of idle time of a large run in a low-priority process.

    python -m tracekit.dashboards.timeline.explain STORE RUN

The index must be on disk; the causes are saved next to it, and the analysis result in the result cache.
"""

from __future__ import annotations

import os
import sys

from tracekit import storage
from tracekit.analysis.cache import ResultCache
from tracekit.runs.run import Run
from tracekit.runs.store import Store

from . import disk
from .build import assemble, seal
from .causes import ANALYSIS, TABLE

NICE = 10


def main(store_path: str, run_id: str) -> int:
    """Compute and save the causes; return 1 if there is no index on disk."""
    store = Store(storage.parse(store_path))
    run = Run(store.path / run_id)
    folder = disk.index_folder(store, run_id)
    loaded = disk.load(folder, seal(run))
    if loaded is None:
        return 1
    idle_causes = assemble(*loaded).causes_of(ResultCache(store).analyze(run, ANALYSIS).tables.get(TABLE))
    disk.save_causes(folder, idle_causes.arrays())
    return 0


if __name__ == "__main__":
    os.nice(NICE)
    sys.exit(main(*sys.argv[1:]))
