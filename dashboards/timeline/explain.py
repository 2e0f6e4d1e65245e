"""Works out why the devices of a large run were idle, in a process of its own that others go before.

    python -m tracekit.dashboards.timeline.explain STORE RUN

The index must be on disk; the causes are kept beside it, and the analysis's result where other pages find it.
Whoever works out the same already is waited for.
"""

from __future__ import annotations

import os
import sys

from tracekit import places
from tracekit.keeping import Shelf
from tracekit.run import Run
from tracekit.store import Store

from . import causes, disk
from .build import assemble, seal

NICE = 10


def main(store_path: str, run_id: str) -> int:
    """Work out and keep the causes; 1 where there is no index to keep them with."""
    store = Store(places.parse(store_path))
    run = Run(store.path / run_id)
    folder = disk.place(store, run_id)
    kept = disk.load(folder, seal(run))
    if kept is None:
        return 1
    found = causes.of_result(assemble(*kept), Shelf(store).analyze(run, causes.ANALYSIS).tables)
    disk.save_causes(folder, found.arrays())
    return 0


if __name__ == "__main__":
    os.nice(NICE)
    sys.exit(main(*sys.argv[1:]))
