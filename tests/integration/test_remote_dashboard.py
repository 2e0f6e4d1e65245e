"""The dashboard's own processes with a store on object storage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from samples.simulator import kineto
from tests.traces import busy_program
from tracekit.ingest.importer import import_traces

pytest.importorskip("dash")

from tracekit.dashboards.catalog import Catalog
from tracekit.dashboards.imports import worker
from tracekit.dashboards.timeline import disk
from tracekit.dashboards.timeline.build import build, seal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.object_storage import Server
    from tracekit.runs.store import Store


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return kineto.write(busy_program(), tmp_path / "trace.json")


def test_a_trace_that_is_dropped_is_imported(remote: Store, trace: Path) -> None:
    process = worker.start_worker(remote.path, [trace])
    with process:
        assert process.stdout
        reported = [json.loads(line) for line in process.stdout]
        process.communicate()
    assert [one["run"] for one in reported if "run" in one] == [run.id for run in remote.runs()]
    assert len(remote.runs()) == 1


def test_listing_again_asks_little(remote: Store, trace: Path, s3: Server) -> None:
    runs = [import_traces(remote, [trace], label=str(n))[0] for n in range(3)]
    catalogue = Catalog(remote)
    first = catalogue.list_runs()
    assert [run.id for run in first.runs] == [run.id for run in runs]
    with s3.counting() as asked:
        assert catalogue.list_runs() == first
    assert len(asked) == 2
    remote.remove(runs[0])
    assert [run.id for run in catalogue.list_runs().runs] == [run.id for run in runs[1:]]


@pytest.mark.slow
def test_the_index_of_a_timeline_is_kept_here(remote: Store, trace: Path) -> None:
    (run,) = import_traces(remote, [trace])
    assert disk.save(remote, run.id, *build(run))
    assert disk.load(disk.index_folder(remote, run.id), seal(run))
    assert disk.index_folder(remote, run.id).is_relative_to(remote.local_folder)
    assert disk.main(str(remote.path), run.id) == 0
    disk.sweep(remote)
    assert disk.index_folder(remote, run.id).is_dir()
