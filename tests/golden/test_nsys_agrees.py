"""One simulated program as both tools would record it: the same questions have the same answers.

What cannot agree, and why: `memory` and the allocated bytes of `ops` come from torch's allocator, which
Nsight Systems does not see; occupancy is an estimate of torch.profiler's own; the types of an op's inputs, by
which `roofline` chooses a peak and the copy analyses name a conversion, are not in NVTX ranges, so programs
that name types are not compared here. `integrity` names the file, and `capture` advises on options of each
tool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from samples.simulator import examples, kineto, nsys
from samples.simulator.planted import critical_path, idle, launches
from tests import tiers
from tracekit import registry
from tracekit.analysis import analyze
from tracekit.ingest.importer import import_traces

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd

    from samples.simulator import Program
    from tracekit.analysis import Result
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

PROGRAMS: dict[str, Callable[[], Program]] = {
    "training": examples.training,
    "read back": idle.read_back,
    "profiled": idle.profiled,
    "launch bound": launches.launch_bound,
    "backward thread": critical_path.backward_thread,
    "communicating": critical_path.communicating,
}
REPRESENTATIVE = ("training",)
"""It has most kinds of events."""
ALLOCATOR = ("allocated_bytes", "freed_bytes", "host_allocated_bytes")
CANNOT: dict[str, dict[str, tuple[str, ...]]] = {
    "ops": {"ops": ALLOCATOR, "shapes": ALLOCATOR},
    "launch_config": {"configs": ("occupancy",)},
    "integrity": {"checks": ("detail",)},
}
"""Columns that differ, by analysis and table."""
WITH_NOTES_OF_THEIR_OWN = ("ops",)
ANALYSES = [
    name for name in registry.names(registry.ANALYSES) if name not in ("lifetimes", "memory", "capture")
]


@pytest.fixture(scope="module", params=tiers.thinned(PROGRAMS, default=REPRESENTATIVE))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    from tracekit.runs.store import Store

    program, folder = PROGRAMS[request.param](), tmp_path_factory.mktemp("both")
    return _imported(Store(folder / "store"), kineto.write(program, folder / "trace.json")), _imported(
        Store(folder / "store"), nsys.write(program, folder / "trace.sqlite")
    )


def _imported(store: Store, path: Path) -> Run:
    (run,) = import_traces(store, [path])
    return run


def test_both_runs_begin_at_one_instant_and_say_that_they_are_simulated(pair: tuple[Run, Run]) -> None:
    one, other = (run.meta for run in pair)
    assert one.t0_unix_ns == other.t0_unix_ns
    assert "simulated" in {found.code for found in one.diagnostics}
    assert "simulated" in {found.code for found in other.diagnostics}
    assert one.environment["gpus"] == other.environment["gpus"]


@pytest.mark.slow_except(
    "training-compile",
    "training-critical_path",
    "training-gpu_breakdown",
    "training-h2d_copies",
    "training-idle_gaps",
    "training-integrity",
    "training-kernels",
    "training-ops",
    "training-overlap",
    "training-steps",
    "training-sync_points",
)
@pytest.mark.parametrize("name", ANALYSES)
def test_answers_agree(name: str, pair: tuple[Run, Run]) -> None:
    one, other = (analyze(run, name) for run in pair)
    assert _plain(name, one) == _plain(name, other)
    assert [found.title for found in one.findings] == [found.title for found in other.findings]
    if name not in WITH_NOTES_OF_THEIR_OWN:
        assert list(map(_without_advice, one.notes)) == list(map(_without_advice, other.notes))


def _without_advice(note: str) -> str:
    """What is missing; how to record it differs."""
    return note.partition(": record")[0]


def _plain(name: str, result: Result) -> dict[str, dict[str, list[Any]]]:
    left_out = CANNOT.get(name, {})
    return {
        table: {
            str(column): _values(frame[column])
            for column in frame.columns
            if column not in left_out.get(table, ())
        }
        for table, frame in result.tables.items()
    }


def _values(column: pd.Series) -> list[Any]:
    """Values that compare, whatever type a column of nulls has."""
    return [value if known else None for value, known in zip(column, column.notna(), strict=True)]
