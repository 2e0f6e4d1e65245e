"""Analyses by the workers of a real Dask cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from samples.simulator.large import Shape
from tests.cluster import cluster
from tests.jobs import imported
from tracekit.analysis import analyze
from tracekit.cli.main import run as tracekit
from tracekit.executors import Workers, workers
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.cluster import Cluster
    from tracekit.executors import Outcome
    from tracekit.runs.run import Run


class Killing(Workers):
    """Workers, one of which is killed as soon as the first task has ended."""

    def __init__(self, executor: Workers, found: Cluster) -> None:
        self._executor, self._cluster = executor, found
        self.killed = 0

    @property
    def count(self) -> int:
        return self._executor.count

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], *, near: Sequence[str] = ()
    ) -> Iterator[Outcome[Any]]:
        for outcome in self._executor.map(function, items, near=near):
            if not self.killed:
                worker = self._cluster.workers()[0]
                worker.kill()
                self.killed = worker.pid
            yield outcome

    def everywhere(self, function: Callable[..., object], *args: Any) -> None:
        self._executor.everywhere(function, *args)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("job")
    shape = Shape(ranks=12, steps=2, layers=8, slow=5)
    return imported(Store(folder / "store"), folder / "traces", shape, bare=frozenset({7}))


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_no_number(two: Cluster, job: Run) -> None:
    with workers(two.address) as executor:
        killing = Killing(executor, two)
        found = analyze(job, "ranks", workers=killing)
    assert killing.killed
    expected = analyze(job, "ranks")
    assert (found.findings, found.notes, found.incomplete) == (expected.findings, expected.notes, False)
    for name, table in expected.tables.items():
        pd.testing.assert_frame_equal(found.tables[name], table, check_categorical=False)


@pytest.mark.slow
def test_the_command_gives_what_it_gives_without_a_cluster(
    two: Cluster, job: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    def reported(*more: str) -> Any:
        names = ["gpu_breakdown", "kernels", "overlap"]
        assert tracekit(["analyze", str(job.path), *names, "--format", "json", *more]) == 0
        return json.loads(capsys.readouterr().out)

    assert reported("--scheduler", two.address) == reported()
