"""What each analysis takes on a run of millions of rows: wall and CPU seconds, and peak memory.

    python -m benchmarks.analyses [--mb 3300] [--source TRACE] [--run RUN --store DIR] [ANALYSIS...]

Each analysis runs in its own process, which opens a run that is already imported. Beside them stand a
process that only opens the run, so that what the interpreter and its libraries take is known, and one that
runs them all, as `tracekit findings` does. The run is imported from a trace amplified from a small one (by
default from a simulated program) unless one is named.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from benchmarks.amplify import amplify
from benchmarks.ingest import FOLDER, simulated
from benchmarks.measure import Cost, measure, median
from tracekit import registry
from tracekit.store import Store

LIMIT_S, LIMIT_ALL_S, LIMIT_MB = 15, 150, 2_000
"""What is asked on two cores with 10 million events."""
BASE, EVERY = "(open the run)", "(all of them)"
_OPEN = "import sys, tracekit, tracekit.analysis\nrun = tracekit.open(sys.argv[2], store=sys.argv[1])\n"
_PROGRAMS = {
    BASE: _OPEN + "import pandas, numpy, pyarrow.dataset",
    EVERY: _OPEN + "from tracekit.findings import advise; advise(run)",
}


def command(name: str, store: Path, run: str) -> list[str]:
    """The process that runs one analysis."""
    program = _PROGRAMS.get(name, _OPEN + f"tracekit.analyze(run, {name!r})")
    return [sys.executable, "-c", program, str(store), run]


def main() -> None:
    """Measure and print the table; exit with 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="ANALYSIS")
    parser.add_argument("--mb", type=int, default=3300)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--run", help="a run that exists, in --store")
    parser.add_argument("--store", type=Path, default=FOLDER / "analyses-store")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    run = options.run or imported(options.store, options.source, options.mb)
    describe(options.store, run)
    names = [BASE, *(options.names or [*registry.names(registry.ANALYSES), EVERY])]
    costs: dict[str, list[Cost]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            costs[name].append(measure(command(name, options.store, run)))
    sys.exit(report({name: median(each) for name, each in costs.items()}))


def imported(store: Path, source: Path | None, size_mb: int) -> str:
    """Amplify a trace and import it; returns the run's id."""
    from tracekit.ingest import import_traces

    FOLDER.mkdir(exist_ok=True)
    shutil.rmtree(store, ignore_errors=True)
    trace = FOLDER / "large.json"
    amplify(source or simulated(FOLDER / "simulated.json"), trace, size_mb * 1_000_000)
    (run,) = import_traces(Store(store), [trace])
    trace.unlink()
    return run.id


def describe(store: Path, run: str) -> None:
    """Print how large the run is."""
    meta = json.loads((Store(store).find(run).path / "run.json").read_text())
    sizes = ", ".join(f"{table['rows']:,} {name}" for name, table in meta["tables"].items())
    print(f"{meta['run_id']}: {sizes}")


def report(costs: dict[str, Cost]) -> int:
    """Print medians; returns 1 where a limit is passed."""
    passed = False
    print(f"{'':22}{'wall s':>8}{'cpu s':>8}{'peak MB':>9}")
    for name, cost in costs.items():
        limit = LIMIT_ALL_S if name == EVERY else LIMIT_S
        over = cost.wall_s > limit or cost.peak_mb > LIMIT_MB
        passed |= over
        print(f"{name:22}{cost.wall_s:8.1f}{cost.cpu_s:8.1f}{cost.peak_mb:9.0f}{'  over' if over else ''}")
    return int(passed)


if __name__ == "__main__":
    main()
