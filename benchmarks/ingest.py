"""What importing a large trace costs, against bare JSON parsers on the same bytes in the same run.

    python -m benchmarks.ingest [--mb 1000] [--source TRACE] [--rounds 3]

The trace is amplified from a small one (by default from a simulated program) and kept in `.bench/`. The
contenders take turns, so that a machine whose speed drifts treats them alike.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from benchmarks.amplify import amplify
from benchmarks.measure import Cost, measure, median
from samples.simulator import Program, write

FOLDER = Path(".bench")
BASE = "json.load"


def contenders(trace: Path, store: Path) -> dict[str, list[str]]:
    """Commands by name; each reads the same file."""
    python = sys.executable
    source = repr(str(trace))
    return {
        BASE: [python, "-c", f"import json; json.load(open({source}))"],
        "orjson.loads": [python, "-c", f"import orjson; orjson.loads(open({source}, 'rb').read())"],
        "simdjson parse": [
            python,
            "-c",
            f"import simdjson; d = simdjson.Parser().parse(open({source}, 'rb').read())",
        ],
        "tracekit import": [
            python,
            "-c",
            "from tracekit.cli.main import main\nif __name__ == '__main__': main()",
            "import",
            str(trace),
            "--store",
            str(store),
        ],
    }


def simulated(path: Path) -> Path:
    """A trace of some training steps, as large as a small real one."""
    program = Program()
    for _ in range(4):
        with program.step():
            for layer in range(50):
                with program.op("aten::linear"), program.op("aten::addmm", shapes=[[64, 256], [256, 256]]):
                    program.allocate(64 * 256 * 4)
                    program.kernel(f"gemm_{layer % 5}", 9_000, grid=(8, 4, 1))
                with program.op("aten::relu", shapes=[[64, 256]]):
                    program.kernel("relu", 3_000, grid=(64, 1, 1))
            program.copy("H2D", 65_536)
    return write(program, path)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    source = options.source or simulated(FOLDER / "simulated.json")
    trace = FOLDER / "large.json"
    events = amplify(source, trace, options.mb * 1_000_000)
    print(f"{trace}: {trace.stat().st_size / 1e6:.0f} MB, {events:,} events, from {source.name}")
    report({name: median(costs) for name, costs in rounds(trace, options.rounds).items()})


def rounds(trace: Path, count: int) -> dict[str, list[Cost]]:
    """Costs of every contender, taken in turns."""
    store = FOLDER / "store"
    costs: dict[str, list[Cost]] = {}
    for _ in range(count):
        for name, command in contenders(trace, store).items():
            costs.setdefault(name, []).append(measure(command))
            shutil.rmtree(store, ignore_errors=True)
    return costs


def report(costs: dict[str, Cost]) -> None:
    """Print medians, and ratios to the base."""
    base = costs[BASE]
    print(f"{'':18}{'wall s':>8}{'cpu s':>8}{'peak MB':>9}{'wall ratio':>12}{'cpu ratio':>11}")
    for name, cost in costs.items():
        print(
            f"{name:18}{cost.wall_s:8.1f}{cost.cpu_s:8.1f}{cost.peak_mb:9.0f}"
            f"{cost.wall_s / base.wall_s:12.2f}{cost.cpu_s / base.cpu_s:11.2f}"
        )


if __name__ == "__main__":
    main()
