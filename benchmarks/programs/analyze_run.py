"""Open an imported run and compute one analysis, all (`*`, as `tracekit findings`) or none (`-`).

    analyze_run.py STORE RUN ANALYSIS|*|-

`analyze_s` is the analysis alone, with its modules loaded and the run open.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module

import tracekit
from tracekit import analysis
from tracekit.runs.run import Run


def loaded(run: Run, name: str) -> Callable[[], object] | None:
    """What is measured, with its modules loaded; None for nothing."""
    for library in ("numpy", "pandas", "pyarrow.dataset"):
        import_module(library)
    if name == "-":
        return None
    if name == "*":
        analysis.available()
        return partial(import_module("tracekit.analysis.findings").advise, run)
    analysis.get(name)
    return partial(analysis.analyze, run, name)


def main() -> None:
    """Analyze and print."""
    store, run, name = sys.argv[1:]
    work = loaded(tracekit.open(run, store=store), name)
    if work is None:
        return
    start, busy = time.perf_counter(), time.process_time()
    work()
    print(json.dumps({"analyze_s": time.perf_counter() - start, "analyze_cpu_s": time.process_time() - busy}))


if __name__ == "__main__":
    main()
