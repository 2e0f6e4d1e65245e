"""Whether every analysis keeps its limits on a run of millions of rows: seconds, and peak memory.

    python -m benchmarks.analyses [--mb 3300] [--source TRACE] [--run RUN --store DIR] [ANALYSIS...]

The run is imported from a trace amplified from a small one (by default from a simulated program) unless one
is named. What each analysis costs with growing size is measured by `python -m benchmarks analyses`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contenders.runs import EVERY, contenders
from benchmarks.inputs import bases, runs, traces
from benchmarks.inputs.bases import Base
from benchmarks.inputs.runs import Imported
from benchmarks.runner import interleaved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.runner import Row

FOLDER = Path(".bench").absolute()
LIMIT_S, LIMIT_ALL_S, LIMIT_MB = 15, 150, 2_000
"""What is asked on two cores with 10 million events."""


def main() -> None:
    """Measure and print the table; exit with 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="ANALYSIS")
    parser.add_argument("--mb", type=float, default=3300)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--run", help="a run that exists, in --store")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    run = (
        Imported(store=options.store.absolute(), run=options.run, size=0, events=0)
        if options.run and options.store
        else imported(options.source, options.mb)
    )
    who = contenders(run, options.names)
    sys.exit(report(interleaved(who, rounds=options.rounds, scratch=FOLDER / "scratch")))


def imported(source: Path | None, megabytes: float) -> Imported:
    """Amplify a trace and import it."""
    folder = FOLDER / "inputs"
    folder.mkdir(parents=True, exist_ok=True)
    base = Base(name=source.name.partition(".")[0], path=source) if source else None
    found = base or Base(name="simulated", path=bases.trace(folder))
    return runs.imported(traces.plain(folder, found, megabytes))


def report(rows: Sequence[Row]) -> int:
    """Print the slowest of the rounds; returns 1 where a limit is passed or an analysis failed."""
    passed = False
    print(f"{'':22}{'wall s':>8}{'cpu s':>8}{'peak MB':>9}")
    for row in rows:
        name = row.contender.name
        if row.failed:
            print(f"{name:22}failed: {row.failed}")
            passed = True
            continue
        cost = max(row.costs, key=lambda cost: cost.wall_s)
        over = cost.wall_s > (LIMIT_ALL_S if name == EVERY else LIMIT_S) or cost.peak_mb > LIMIT_MB
        passed |= over
        print(f"{name:22}{cost.wall_s:8.1f}{cost.cpu_s:8.1f}{cost.peak_mb:9.0f}{'  over' if over else ''}")
    return int(passed)


if __name__ == "__main__":
    main()
