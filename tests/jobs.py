"""Simulated jobs of several ranks as runs in a store, for tests of what reads them rank by rank."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from samples.simulator import write
from samples.simulator.large import Shape, one_rank
from tracekit.ingest.importer import import_traces

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store


def imported(
    store: Store, folder: Path, shape: Shape, *, steps: Mapping[int, int] | None = None, bare: frozenset[int]
) -> Run:
    """A job as a run.

    Args:
        store: Where it goes.
        folder: Takes the traces.
        shape: The job; its steps are those of the ranks that `steps` does not name.
        steps: Profiled steps by rank; a rank with fewer than none is missing.
        bare: Ranks of which nothing was recorded on a device.
    """
    folder.mkdir(parents=True)
    for rank in range(shape.ranks):
        own = (steps or {}).get(rank, shape.steps)
        if own >= 0:
            program = one_rank(rank, replace(shape, steps=own))
            with program.op("aten::mm"):  # outside of steps: a rank without one has rows too
                program.kernel("gemm", 5_000)
            write(program, folder / f"rank{rank:03d}.json", with_device=rank not in bare)
    (run,) = import_traces(store, [folder])
    return run
