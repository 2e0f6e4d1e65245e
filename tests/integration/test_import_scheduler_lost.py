"""Loss of the scheduler, client or worker in each phase of an import on a Dask cluster, in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.cluster import SeparateCluster
from tests.environment import HANG_SECONDS
from tests.integration.test_import_scheduler import IMPORT, _once, job, same
from tracekit import storage
from tracekit.executors.model import scratch_at
from tracekit.ingest.importer import cluster, import_traces, trace_writer
from tracekit.storage import locks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tracekit.runs.store import Store

LIMIT_S = 30
PHASES = {
    "read": cluster.decode.__name__,
    "link": trace_writer.write.__name__,
    "write": storage.move.__name__,
}
"""Names of functions that a worker runs in a phase only."""
SLOW = [pytest.param(phase, marks=pytest.mark.slow) for phase in PHASES]


@pytest.fixture
def stuck(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SeparateCluster]:
    """A cluster with a worker that waits in a phase."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    found = SeparateCluster(folder, stuck=PHASES[request.param])
    yield found
    found.close()


def spools(found: SeparateCluster) -> list[Path]:
    """Spools on the machine of the workers."""
    return list(found.folder.glob("dask-scratch-space/tracekit-spool-*"))


def is_abandoned(spool: Path) -> bool:
    """Whether its workers have ended without deleting it, as Dask kills one that does not end by itself."""
    return all(locks.is_abandoned(attempt, attempt.name) for attempt in spool.iterdir())


def importing(found: SeparateCluster, folder: Path, store: Store) -> subprocess.Popen[str]:
    """The command, once a worker waits."""
    process = command(folder, store, found.address)
    _once(found.stuck.exists)
    return process


def command(folder: Path, store: Store, scheduler: str) -> subprocess.Popen[str]:
    """The command, just started."""
    words = [sys.executable, "-c", IMPORT, "import", folder, "--store", store.path, "--scheduler", scheduler]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("stuck", SLOW, indirect=True)
def test_a_lost_scheduler_ends_the_import_and_leaves_nothing(
    stuck: SeparateCluster, tmp_path: Path, store: Store
) -> None:
    process = importing(stuck, job(tmp_path / "job", 3), store)
    begun, own = time.monotonic(), psutil.Process(process.pid).children(recursive=True)
    stuck.scheduler.kill()
    out, err = process.communicate(timeout=HANG_SECONDS)
    waited = time.monotonic() - begun
    assert (process.returncode, out) == (2, "")
    assert err.count("\n") == 1
    assert f"the scheduler {stuck.address} is no longer reachable" in err
    assert [path.name for path in store.path.iterdir()] == [".gitignore"]
    assert not any(child.is_running() for child in own)
    stuck.release()
    _once(lambda: all(map(is_abandoned, spools(stuck))))
    with scratch_at(stuck.folder / "dask-scratch-space"):
        cluster._delete_abandoned("of another import")
    assert spools(stuck) == []
    assert waited < LIMIT_S


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("stuck", SLOW[1:], indirect=True)
def test_a_lost_client_leaves_nothing_on_the_workers(
    number: signal.Signals, stuck: SeparateCluster, tmp_path: Path, store: Store
) -> None:
    process = importing(stuck, job(tmp_path / "job", 3), store)
    assert spools(stuck)
    process.send_signal(number)
    process.communicate(timeout=HANG_SECONDS)
    stuck.release()
    _once(lambda: not spools(stuck))
    with store.draft():
        pass  # deletes what a killed process left
    assert [path.name for path in store.path.iterdir()] == [".gitignore"]


@pytest.mark.slow
@pytest.mark.parametrize("stuck", PHASES, indirect=True)
def test_a_lost_worker_loses_no_rows(stuck: SeparateCluster, tmp_path: Path, store: Store) -> None:
    folder = job(tmp_path / "job", 3)
    (here,) = import_traces(store, [folder])
    process = importing(stuck, folder, store)
    _once(lambda: bool(stuck.stuck.read_text()))
    os.kill(int(stuck.stuck.read_text()), signal.SIGKILL)
    stuck.release()
    _, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0, err
    (there,) = (run for run in store.runs() if run.path != here.path)
    assert same(here, there)
    _once(lambda: all(map(is_abandoned, spools(stuck))))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:8786", "is not the address of a Dask scheduler"),
        ("tcp://127.0.0.1:1", "no response from a Dask scheduler at tcp://127.0.0.1:1 within 10 s"),
    ],
)
def test_a_wrong_address_ends_the_import_before_any_work(
    address: str, said: str, tmp_path: Path, store: Store
) -> None:
    pytest.importorskip("distributed")
    process = command(job(tmp_path / "job", 1), store, address)
    out, err = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, out) == (2, "")
    assert err.count("\n") == 1
    assert said in err
    assert not any(path.name != ".gitignore" for path in store.path.glob("*"))
