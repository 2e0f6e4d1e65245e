"""Open an imported run and do one analysis, all of them as advice does (`*`), or nothing (`-`).

    analyze_run.py STORE RUN ANALYSIS|*|-

`analyze_s` is the analysis alone, from an open run to its tables; the process also starts Python and loads
libraries.
"""

import json
import sys
import time
from importlib import import_module

import tracekit
import tracekit.analysis


def main() -> None:
    """Analyze and print."""
    store, name, analysis = sys.argv[1:]
    run = tracekit.open(name, store=store)
    for library in ("numpy", "pandas", "pyarrow.dataset"):
        import_module(library)

    start, busy = time.perf_counter(), time.process_time()
    if analysis == "*":
        from tracekit.findings import advise

        advise(run)
    elif analysis != "-":
        tracekit.analyze(run, analysis)
    took = {"analyze_s": time.perf_counter() - start, "analyze_cpu_s": time.process_time() - busy}
    print(json.dumps({} if analysis == "-" else took))


if __name__ == "__main__":
    main()
