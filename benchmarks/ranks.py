"""Measure time and memory of every command on a job of many ranks.

    python -m benchmarks.ranks [--ranks 256] [--steps 10] [--layers 80] [--mb 2000] [--keep DIR] [NAME...]

A data-parallel job is simulated, one rank slower than the others; 256 ranks of the default size are 3.6
million events in 0.8 GB of traces. Each command runs as its own process tree; memory is the largest sum of
proportional set sizes. The dashboard is requested for all blocks of the overview and of the ranks page. The
memory of analyses that read all ranks at once grows with the ranks up to
`tracekit.analysis.by_rank.ROWS_AT_ONCE`; others need the memory of a few ranks in each process.

Single runs of 256 ranks on two shared cores (so prefer CPU seconds; peaks are of all processes together):

                              cpu s  peak MB
    import                     10.6      220
    runs                        0.3       76
    show                        0.4       81
    verify                      2.1      157
    query                       0.9      207
    analyze, all              113.3     1271    three processes
    findings                  111.3     1242    three processes
    report                    115.6     1149    one process
    dashboard                  50.0      996    one process; overview and page of the ranks
    analyze kernels             9.7      593    three processes
    analyze overlap            22.4      620    three processes

Analyses that read all ranks at once took 392 to 876 MB, `launch_latency` the most.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.runner import Cost, Limits, measure
from samples.simulator import write
from samples.simulator.large import Shape, one_rank
from tracekit.analysis import available
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.runner import Failure

LABEL = "job-of-many-ranks"
PAGES = ("overview", "ranks")
QUERY = (
    "select rank, count(*) as rows, sum(dur_ns) as busy_ns from device_intervals group by rank order by rank"
)
_TRACEKIT = "from tracekit.cli.main import main; main()"


def traces(folder: Path, shape: Shape) -> Path:
    """Write the traces of a job; existing ones are reused."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(shape.ranks):
        path = folder / f"rank{rank:04d}.json"
        if not path.exists():
            write(one_rank(rank, shape), path)
    return folder


def commands(traces_in: Path, store: Path, names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield name and arguments of each measured command; the first one imports the traces."""
    tracekit = [sys.executable, "-c", _TRACEKIT]
    in_store = ["--store", str(store)]
    yield "import", [*tracekit, "import", str(traces_in), "--label", LABEL, *in_store]
    run = Store(store).resolve(LABEL).id
    everything = {
        "runs": [*tracekit, "runs", *in_store],
        "show": [*tracekit, "show", LABEL, *in_store],
        "verify": [*tracekit, "verify", LABEL, *in_store],
        "query": [*tracekit, "query", QUERY, "--run", LABEL, *in_store],
        "analyze": [*tracekit, "analyze", LABEL, "--no-cache", *in_store],
        **{
            f"analyze {one.name}": [*tracekit, "analyze", LABEL, one.name, "--no-cache", *in_store]
            for one in available()
        },
        "findings": [*tracekit, "findings", LABEL, "--no-cache", *in_store],
        "report": [*tracekit, "report", LABEL, "--no-cache", "-o", str(store / "report.html"), *in_store],
        "dashboard": [sys.executable, "-m", "benchmarks.programs.ask_dashboard", str(store), run, *PAGES],
    }
    for name, command in everything.items():
        if not names or name in names or name.split()[-1] in names:
            yield name, command


def row(name: str, cost: Cost | Failure, limit_mb: float) -> str:
    """A line of the table."""
    if not isinstance(cost, Cost):
        return f"{name:28}{cost.reason}"
    over = "  over" if cost.peak_mb > limit_mb else ""
    return f"{name:28}{cost.wall_s:8.1f}{cost.cpu_s:8.1f}{cost.peak_mb:9.0f}{over}"


def main() -> None:
    """Measure and print; exit with 1 if a limit is exceeded or a command failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="commands or analyses; all by default")
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--mb", type=float, default=2_000)
    parser.add_argument("--keep", type=Path, help="folder of traces to reuse")
    options = parser.parse_args()
    shape = Shape(
        ranks=options.ranks, steps=options.steps, layers=options.layers, slow=min(17, options.ranks - 1)
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs = traces(options.keep or folder / "traces", shape)
        print(f"{'':28}{'wall s':>8}{'cpu s':>8}{'peak MB':>9}")
        exceeded = False
        for label, command in commands(inputs, folder / "store", options.names):
            cost = measure(command, limits=Limits(wall_s=1_800))
            exceeded |= not isinstance(cost, Cost) or cost.peak_mb > options.mb
            print(row(label, cost, options.mb), flush=True)
    sys.exit(int(exceeded))


if __name__ == "__main__":
    main()
