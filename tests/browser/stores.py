"""Runs of the browser tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from samples.simulator import write
from samples.simulator.examples import training
from samples.simulator.planted import memory_ranks
from tests.browser import hostile
from tracekit.ingest.importer import import_traces
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from samples.simulator import Program

SAMPLES = Path(__file__).parents[2] / "samples"
RANKS = 2


def filled(directory: Path) -> tuple[Store, dict[str, str]]:
    """A store of five runs, and their ids by a short name: one GPU, two ranks, none, hostile, and its base.

    Args:
        directory: Where the store and the traces go.
    """
    store = Store(directory / "store")
    cpu = SAMPLES / "recorded" / "mnist_cnn-train-cpu" / "trace.json.gz"
    sources = {
        "cpu": (cpu, "mnist on CPU"),
        "base": (_written([training()], directory / "base"), "before"),
        "hostile": (_written([hostile.program()], directory / "hostile"), hostile.LABEL),
        "job": (_written(memory_ranks.job(ranks=RANKS, late=1), directory / "job"), "two ranks"),
        "gpu": (_written([training(rank=1)], directory / "gpu"), "after"),
    }
    runs = {}
    for name, (path, label) in sources.items():
        (run,) = import_traces(store, [path], label=label)
        runs[name] = run.path.name
    return store, runs


def _written(programs: list[Program], directory: Path) -> Path:
    directory.mkdir(parents=True)
    for number, program in enumerate(programs):
        write(program, directory / f"rank{number}.json")
    return directory
