"""Check time and peak memory of every analysis on a run of millions of rows.

    python -m benchmarks.analyses [--mb 3300] [--source TRACE] [--run RUN --store DIR] [ANALYSIS...]

Unless `--run` is given, the run is imported from a trace amplified from a small one (by default a simulated
one). `python -m benchmarks analyses` measures how the cost of each analysis grows with size.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contenders import EVERY, run_analyses
from benchmarks.inputs import Base, ImportedRun, amplified_trace, imported_run, simulated_trace
from benchmarks.runner import interleaved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.runner import Row

FOLDER = Path(".bench").absolute()
LIMIT_S, LIMIT_ALL_S, LIMIT_MB = 15, 150, 2_000
"""Limits on two cores with 10 million events."""


def main() -> None:
    """Measure and print the table; exit with 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="ANALYSIS")
    parser.add_argument("--mb", type=float, default=3300)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--run", help="an existing run in --store")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    run = (
        ImportedRun(store=options.store.absolute(), run=options.run, size=0, events=0)
        if options.run and options.store
        else import_amplified(options.source, options.mb)
    )
    contenders = run_analyses(run, options.names)
    sys.exit(report(interleaved(contenders, rounds=options.rounds, scratch=FOLDER / "scratch")))


def import_amplified(source: Path | None, megabytes: float) -> ImportedRun:
    """Amplify a trace and import it."""
    folder = FOLDER / "inputs"
    folder.mkdir(parents=True, exist_ok=True)
    if source:
        base = Base(name=source.name.partition(".")[0], path=source)
    else:
        base = Base(name="simulated", path=simulated_trace(folder))
    return imported_run(amplified_trace(folder, base, megabytes))


def report(rows: Sequence[Row]) -> int:
    """Print the slowest round of each; returns 1 if a limit is exceeded or an analysis failed."""
    exceeded = False
    print(f"{'':22}{'wall s':>8}{'cpu s':>8}{'peak MB':>9}")
    for row in rows:
        name = row.contender.name
        if row.failed:
            print(f"{name:22}failed: {row.failed}")
            exceeded = True
            continue
        cost = max(row.costs, key=lambda cost: cost.wall_s)
        over = cost.wall_s > (LIMIT_ALL_S if name == EVERY else LIMIT_S) or cost.peak_mb > LIMIT_MB
        exceeded |= over
        print(f"{name:22}{cost.wall_s:8.1f}{cost.cpu_s:8.1f}{cost.peak_mb:9.0f}{'  over' if over else ''}")
    return int(exceeded)


if __name__ == "__main__":
    main()
