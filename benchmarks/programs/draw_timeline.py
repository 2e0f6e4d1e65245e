"""Build the timeline index of a store's run, reopen it, and draw at several zooms.

draw_timeline.py STORE
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.timeline import LANES, ROUNDS, WIDTH, child
from tracekit.runs.store import Store


def main() -> None:
    """Draw and print."""
    options = argparse.Namespace(lanes=LANES, width=WIDTH, rounds=ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        store = shutil.copytree(sys.argv[1], Path(folder) / "store")  # the index is written to it
        found = child(Store(store), options)
    draws = found.pop("draws")
    figures = {name: found[name] for name in ("build_s", "build_cpu_s", "reopen_s", "peak_mb")}
    figures |= {f"draw_{draw['zoom']:g}_{name}": draw[name] for draw in draws for name in ("ms", "cpu_ms")}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
