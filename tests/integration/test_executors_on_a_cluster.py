"""Tasks on a real Dask cluster: workers die, the scheduler is not there, versions differ.

In the default tier `test_import_scheduler.py` uses one, with a single worker.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster import cluster, complete_clusters
from tests.environment import HANG_SECONDS
from tests.unit.executors import deeds
from tracekit.errors import TracekitError, UnusableInputError
from tracekit.executors import dask as connection
from tracekit.executors import workers
from tracekit.executors.dask import DaskWorkers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster import Cluster


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Cluster]]:
    with complete_clusters(lambda: tmp_path_factory.mktemp("cluster"), workers=4) as complete:
        yield complete


@pytest.fixture
def four(clusters: Callable[[], Cluster]) -> Cluster:
    return clusters()


@pytest.mark.slow
def test_each_item_has_one_outcome(four: Cluster) -> None:
    with workers(four.address) as executor:
        assert executor.count == 4
        outcomes = list(executor.map(deeds.doubled_but_three, range(50)))
    assert len({outcome.index for outcome in outcomes}) == len(outcomes) == 50
    failed = [outcome for outcome in outcomes if outcome.error]
    assert [(outcome.index, str(outcome.error)) for outcome in failed] == [
        (3, "3 is not to be doubled (take another one)")
    ]
    assert {o.index: o.value for o in outcomes if not o.error} == {n: 2 * n for n in range(50) if n != 3}
    assert {outcome.host for outcome in outcomes} == {"127.0.0.1"}


@pytest.mark.slow
def test_a_task_whose_worker_is_lost_runs_again(four: Cluster, tmp_path: Path) -> None:
    with workers(four.address) as executor:
        (outcome,) = executor.map(deeds.fatal_once, [(4, str(tmp_path))])
    assert outcome.get() == 8


@pytest.mark.slow
def test_a_task_that_always_ends_its_worker_fails_alone(four: Cluster) -> None:
    with workers(four.address) as executor:
        outcomes = sorted(executor.map(deeds.fatal_three, range(12)), key=lambda outcome: outcome.index)
    assert [outcome.value for outcome in outcomes] == [None if n == 3 else 2 * n for n in range(12)]
    assert "each of the 4 workers that ran it ended" in str(outcomes[3].error)


@pytest.mark.slow
def test_one_outcome_that_cannot_be_fetched_does_not_keep_the_others(four: Cluster) -> None:
    """So it is with one whose worker has ended before it reported."""
    with workers(four.address) as executor:
        outcomes = executor.map(deeds.stuck_three, range(12))
        values = [next(outcomes).value for _ in range(11)]
        deeds.RELEASED.set()
        assert sorted(values) == [0, 1, 2, *range(4, 12)]
        assert [outcome.value for outcome in outcomes] == [3]


@pytest.mark.slow
def test_tasks_beside_one_that_ends_its_worker_are_done(tmp_path: Path) -> None:
    """All share one worker, so that all are there whenever it ends."""
    with cluster(tmp_path, workers=1, threads=4) as one, workers(one.address) as executor:
        outcomes = sorted(executor.map(deeds.fatal_three, range(5)), key=lambda outcome: outcome.index)
    assert [outcome.index for outcome in outcomes if outcome.error] == [3], outcomes
    assert [outcome.value for outcome in outcomes] == [0, 2, 4, None, 8]


@pytest.mark.slow
def test_files_that_a_task_leaves_are_found_by_the_next_on_its_host(four: Cluster) -> None:
    with workers(four.address) as executor:
        (left,) = executor.map(deeds.leave, ["left"])
        with open(left.get()) as stream:  # noqa: PTH123 (this host is theirs, too)
            assert stream.read() == "here"
        assert [outcome.get() for outcome in executor.map(deeds.double, [1, 2], near=[left.host, left.host])]
        executor.everywhere(deeds.clear, "left")
        assert not os.path.exists(left.get())  # noqa: PTH110
        executor.everywhere(deeds.clear, "left")  # who cannot is passed over


@pytest.mark.slow
def test_folders_of_results_are_deleted_with_the_connection(four: Cluster) -> None:
    with workers(four.address) as executor:
        made = [Path(outcome.get()) for outcome in executor.map(deeds.kept, ["one", "two"])]
        assert len(list(executor.map(deeds.double, range(20)))) == 20
        assert all(folder.is_dir() for folder in made)
    limit = time.monotonic() + HANG_SECONDS
    while any(folder.parent.exists() for folder in made):
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.mark.slow
def test_who_wants_no_more_outcomes_leaves_nothing_to_do(four: Cluster) -> None:
    from distributed import Client

    with workers(four.address) as executor:
        outcomes = executor.map(deeds.double, range(1000))
        assert next(outcomes).get() in range(2000)
        outcomes.close()  # type: ignore[attr-defined]  # a generator
        assert len(list(executor.map(deeds.double, range(3)))) == 3
    with Client(four.address, set_as_default=False) as client:
        assert client.run_on_scheduler(_tasks) == 0


def _tasks(dask_scheduler: object) -> int:
    return len([key for key in dask_scheduler.tasks if str(key).startswith("tracekit")])  # type: ignore[attr-defined]


def test_a_scheduler_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(connection, "CONNECT_S", 2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with (
            pytest.raises(
                UnusableInputError, match=f"no response from a Dask scheduler at {address} within 2 s"
            ),
            workers(address),
        ):
            pass


@pytest.mark.parametrize(
    "address",
    ["nonsense", "host:8786", "tcp://", "tcp://host", "xyz://a:1", "", "tcp://host:port", "tcp://h:99999"],
)
def test_an_address_that_is_none_is_one_line(address: str) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(UnusableInputError, match="is not the address of a Dask scheduler"), workers(address):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["distributed", "tracekit-torch"])
def test_workers_of_another_version_are_refused(
    changed: str, four: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = importlib.metadata.version
    monkeypatch.setattr(connection, "_own_version", lambda name: "9.9" if name == changed else there(name))
    dask, tracekit = there("distributed"), there("tracekit-torch")
    message = (
        rf"has Python 3\.\d+, Dask {dask}, tracekit {tracekit}, but this process has Python 3\.\d+, "
        + (r"Dask 9\.9, " if changed == "distributed" else rf"Dask {dask}, tracekit 9\.9")
    )
    with pytest.raises(UnusableInputError, match=message), workers(four.address):
        pass


@pytest.mark.slow
def test_a_cluster_that_ends_fails_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with cluster(tmp_path) as found, connection.connect(found.address) as executor:
        patient = DaskWorkers(executor._client, found.address, timeout_s=3)
        outcomes = patient.map(deeds.wait_for, [str(tmp_path / "other"), str(pipe)])
        assert next(outcomes).index == 0
        found.kill()
        (lost,) = outcomes
    assert lost.index == 1
    assert lost.error is not None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
@pytest.mark.slow
def test_a_scheduler_that_is_lost_ends_all(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the usual patience, which is 5 minutes for workers."""
    monkeypatch.setattr(connection, "SILENT_S", 15.0)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with cluster(tmp_path) as found, connection.connect(found.address) as executor:
        outcomes = executor.map(deeds.wait_for, [str(tmp_path / "other"), str(pipe)])
        assert next(outcomes).index == 0
        found.scheduler.send_signal(number)
        begun = time.monotonic()
        with pytest.raises(TracekitError, match="is no longer reachable"):
            next(outcomes)
        waited = time.monotonic() - begun
        found.kill()
    assert waited < 60  # half of it on a machine that is not busy


@pytest.mark.slow
def test_a_scheduler_that_is_busy_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads_of, silent_polls = DaskWorkers._threads, list[None]()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with cluster(tmp_path) as found, connection.connect(found.address) as executor:

        def resumed_in_time(self: DaskWorkers) -> dict[str, int] | None:
            threads = threads_of(self)
            silent_polls.extend([] if threads else [None])
            if threads is None and len(silent_polls) == 4:  # after twice the time without a connection
                found.scheduler.send_signal(signal.SIGCONT)
                assert pipe.read_text()
            return threads

        monkeypatch.setattr(connection, "UNREACHABLE_S", 1.0)
        monkeypatch.setattr(connection, "ANSWER_S", 0.5)
        monkeypatch.setattr(DaskWorkers, "_threads", resumed_in_time)
        outcomes = executor.map(deeds.wait_for, [str(tmp_path / "other"), str(pipe)])
        assert next(outcomes).index == 0
        found.scheduler.send_signal(signal.SIGSTOP)
        (last,) = outcomes
    assert last.error is None
    assert len(silent_polls) >= 4


@pytest.mark.slow
def test_a_cluster_without_workers_fails_what_it_is_given(tmp_path: Path) -> None:
    with cluster(tmp_path, workers=0) as found, connection.connect(found.address) as executor:
        assert executor.count == 0
        patient = DaskWorkers(executor._client, found.address, timeout_s=1)
        outcomes = list(patient.map(deeds.double, [1, 2]))
    assert [outcome.index for outcome in outcomes] == [0, 1]
    assert all("has no worker" in str(outcome.error) for outcome in outcomes)


WITHOUT = "import sys; sys.modules['distributed'] = None; from tracekit.cli.main import main; main()"


def test_who_has_no_dask_is_told_how_to_get_it(tmp_path: Path) -> None:
    command = ["import", tmp_path, "--store", tmp_path / "store", "--scheduler", "tcp://127.0.0.1:8786"]
    done = subprocess.run([sys.executable, "-c", WITHOUT, *command], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "tracekit: --scheduler needs Dask, which is not installed; "
        "pip install 'tracekit-torch[scale]', also on every worker\n"
    )
