"""Import on a Dask cluster: the same run as locally, also if workers die."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from samples.simulator import kineto
from tests.cluster import cluster, complete_clusters
from tests.environment import HANG_SECONDS
from tests.traces import busy_program
from tests.unit.executors import deeds
from tracekit import storage
from tracekit.cli.main import run as tracekit
from tracekit.errors import TracekitError
from tracekit.executors import workers
from tracekit.ingest.importer import import_each, import_traces
from tracekit.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cluster import Cluster
    from tests.object_storage import Server
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory, _s3: Server) -> Iterator[Callable[[], Cluster]]:
    variables = _s3.variables()
    with complete_clusters(lambda: tmp_path_factory.mktemp("cluster"), 3, variables) as complete:
        yield complete


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The one cluster of the default tier, with one worker."""
    with cluster(tmp_path_factory.mktemp("cluster"), workers=1) as found:
        yield found


@pytest.fixture
def three(clusters: Callable[[], Cluster]) -> Cluster:
    return clusters()


def job(folder: Path, ranks: int) -> Path:
    """A folder with the traces of a job's ranks."""
    folder.mkdir()
    for rank in range(ranks):
        kineto.write(busy_program(rank=rank, world_size=ranks), folder / f"rank{rank}.json")
    return folder


def empty(trace: Path) -> None:
    """Leave a trace what stands around its events, so that nothing is seen before it is decoded."""
    content = json.loads(trace.read_text())
    trace.write_text(json.dumps({**content, "traceEvents": []}))


def same(one: Run, other: Run) -> bool:
    """Whether two runs hold the same rows, and the same is said of them."""
    for name in TABLES:
        assert one.arrow(name).to_pylist() == other.arrow(name).to_pylist(), name
        assert one.rows(name) == other.rows(name)
    assert one.meta.diagnostics == other.meta.diagnostics
    assert one.meta.collector == other.meta.collector
    assert one.meta.fingerprint == other.meta.fingerprint
    assert one.meta.t0_unix_ns == other.meta.t0_unix_ns
    return True


def scratch(found: Cluster) -> list[Path]:
    """What imports have spooled on the workers' machine."""
    return list(found.folder.glob("dask-scratch-space/tracekit-spool-*"))


def held(found: Cluster) -> list[str]:
    """The tasks that the scheduler knows."""
    from distributed import Client

    with Client(found.address, set_as_default=False) as client:
        return list(client.run_on_scheduler(_keys))


def _keys(dask_scheduler: object) -> list[str]:
    return [key for key in map(str, dask_scheduler.tasks) if key.startswith("tracekit")]  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [12, 64])
def test_no_row_is_lost_with_a_killed_worker(
    ranks: int, three: Cluster, tmp_path: Path, store: Store
) -> None:
    folder = job(tmp_path / "job", ranks)
    (here,) = import_traces(store, [folder])
    victims = three.workers()
    killed: list[str] = []

    def kill(title: str, done: int, total: int) -> None:
        what = title.split()[0]
        if done == total // 4 and what not in killed:
            killed.append(what)
            victims[len(killed)].kill()

    with workers(three.address) as executor:
        (there,) = import_each(store, [folder], progress=kill, workers=executor)
    assert killed == ["reading", "writing"]
    assert not isinstance(there, TracekitError)
    assert same(here, there)
    for name, table in there.meta.tables.items():
        assert len(table.parts) == ranks
        assert [file.name for file in there.files(name)] == [part.name for part in table.parts]
        assert sorted(path.name for path in there.path.joinpath(name).iterdir()) == [
            part.name for part in table.parts
        ]
    assert scratch(three) == []
    assert len(store.runs()) == 2


def test_a_task_that_its_machine_failed_runs_again(single: Cluster, tmp_path: Path) -> None:
    with workers(single.address) as executor:
        (outcome,) = executor.map(deeds.full_once, [(4, str(tmp_path))])
    assert outcome.get() == 8


def test_an_unusable_rank_is_reported(single: Cluster, tmp_path: Path, store: Store, capsys: Capture) -> None:
    folder = job(tmp_path / "job", 4)
    empty(folder / "rank2.json")
    there = ["--scheduler", single.address]
    said = []
    for options in ([], there):
        assert tracekit(["import", str(folder), "--store", str(store.path), *options]) == 2
        out, err = capsys.readouterr()
        said.append(err.replace(out.strip(), "RUN").splitlines())
    first, second = store.runs()
    assert same(first, second)
    assert said[0] == said[1]
    left_out, missing, error = said[0]
    assert left_out.startswith("tracekit: RUN: left out rank 2 (rank2.json): ")
    assert missing.endswith("3 of the job's 4 ranks are here; missing: 2")
    assert error == (
        "tracekit: 1 of job's 4 traces could not be imported; "
        "see `tracekit show RUN` for the reasons; the other traces are imported"
    )


@pytest.mark.slow
def test_a_job_without_usable_ranks_leaves_no_files(
    three: Cluster, tmp_path: Path, store: Store, capsys: Capture
) -> None:
    folder = job(tmp_path / "job", 2)
    for trace in folder.iterdir():
        empty(trace)
    command = ["import", str(folder), "--store", str(store.path), "--scheduler", three.address]
    assert tracekit(command) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert [path.name for path in store.path.iterdir()] == [".gitignore"]
    assert scratch(three) == []


def test_a_single_trace_is_one_task(single: Cluster, tmp_path: Path, store: Store) -> None:
    trace = kineto.write(busy_program(), tmp_path / "trace.json")
    (here,) = import_traces(store, [trace])
    with workers(single.address) as executor:
        (there,) = import_each(store, [trace], workers=executor)
    assert not isinstance(there, TracekitError)
    assert same(here, there)
    _once(lambda: held(single) == [])
    assert scratch(single) == []


@pytest.mark.slow
def test_a_rank_that_kills_its_workers_is_reported(tmp_path: Path, store: Store) -> None:
    folder = job(tmp_path / "job", 6)
    place = tmp_path / "cluster"
    place.mkdir()
    with cluster(place, fatal="job/rank3.json") as found, workers(found.address) as executor:
        run, error = import_each(store, [folder], workers=executor)
    assert not isinstance(run, TracekitError)
    assert str(error).startswith("1 of job's 6 traces could not be imported")
    (left_out, missing) = (note.message for note in run.meta.diagnostics if note.level != "info")
    assert left_out.startswith("left out rank 3 (rank3.json): each of the 4 workers that ran it ended")
    assert missing.endswith("missing: 3")
    (folder / "rank3.json").unlink()
    (here,) = import_traces(store, [folder])
    for name in TABLES:
        assert run.arrow(name).to_pylist() == here.arrow(name).to_pylist(), name


@pytest.mark.slow
def test_traces_missing_on_workers_are_reported(three: Cluster, tmp_path: Path, store: Store) -> None:
    folder = job(tmp_path / "job", 2)

    def take_away(_title: str, done: int, _total: int) -> None:
        if not done:
            for trace in folder.iterdir():
                trace.unlink()

    with workers(three.address) as executor:
        (error,) = import_each(store, [folder], progress=take_away, workers=executor)
    assert str(error).startswith(f"{folder}/rank0.json is missing on a worker (use traces that all workers")
    assert store.runs() == []


IMPORT = "from tracekit.cli.main import main; main()"


@pytest.mark.slow
@pytest.mark.parametrize("with_signal", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_driver_leaves_no_run(
    with_signal: signal.Signals, three: Cluster, tmp_path: Path, store: Store
) -> None:
    folder, before = job(tmp_path / "job", 200), set(scratch(three))
    with subprocess.Popen(
        [sys.executable, "-c", IMPORT, "import", folder, "--store", store.path, "--scheduler", three.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as importing:
        _once(lambda: bool(set(scratch(three)) - before))
        importing.send_signal(with_signal)
        out, err = importing.communicate(timeout=HANG_SECONDS)
    assert out == b""
    assert b"Traceback" not in err
    assert store.runs() == []
    _once(lambda: held(three) == [])
    _once(lambda: set(scratch(three)) <= before)
    if with_signal == signal.SIGINT:
        assert importing.returncode == 130
        assert store.leftovers() == []
    else:
        assert [leftover.alive for leftover in store.leftovers()] == [False]
    with store.draft():
        pass  # sweeps what a killed process left
    assert [path.name for path in store.path.iterdir()] == [".gitignore"]


def _once(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.mark.slow
def test_workers_write_to_object_storage(
    three: Cluster, s3: Server, remote: Store, store: Store, tmp_path: Path
) -> None:
    folder = job(tmp_path / "job", 6)
    (here,) = import_traces(store, [folder])
    for trace in sorted(folder.iterdir()):
        storage.parse(f"s3://bucket/traces/{trace.name}").write_bytes(trace.read_bytes())
    sent = len(s3.noting.asked)
    with workers(three.address) as executor:
        (there,) = import_each(remote, [storage.parse("s3://bucket/traces")], workers=executor)
    assert not isinstance(there, TracekitError)
    assert [run.id for run in remote.runs()] == [there.id]
    for name in TABLES:
        assert there.arrow(name).to_pylist() == here.arrow(name).to_pylist(), name
    puts = [one.path for one in s3.noting.asked[sent:] if one.method == "PUT" and ".parquet" in one.path]
    assert len(puts) == sum(len(table.parts) for table in there.meta.tables.values())
    assert [leftover.place for leftover in remote.leftovers()] == []
