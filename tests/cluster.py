"""A Dask cluster of several processes on this machine, for tests of what runs on one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.environment import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ROOT = Path(__file__).parents[1]

_SERVE = """
import sys
import dask
from distributed import LocalCluster

def main():
    dask.config.set({
        "distributed.admin.log-format": "%(message)s",
        "distributed.deploy.lost-worker-timeout": "1 h",  # after which the cluster stops a nanny for good
        "temporary-directory": sys.argv[2],
    })
    with LocalCluster(
        n_workers=int(sys.argv[1]), threads_per_worker=int(sys.argv[3]), processes=True, host="127.0.0.1",
        dashboard_address=None, silence_logs="CRITICAL",
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()

if __name__ == "__main__":
    main()
"""

_FATAL = """
import os, signal, sys

def hook(event, args):
    if event == "open" and str(args[0]).endswith({!r}):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
"""

_STUCK = """
import os, pathlib, sys, time

def within():
    frame = sys._getframe()
    while frame and (frame.f_code.co_name != {!r} or "tracekit" not in frame.f_code.co_filename):
        frame = frame.f_back
    return frame

stuck = pathlib.Path(__file__).with_name("stuck")

def hook(event, args):
    if event in ("open", "shutil.move") and args[0] != str(stuck) and within():
        if not stuck.with_name("free").exists():
            stuck.write_text(str(os.getpid()))
        while not stuck.with_name("free").exists():
            time.sleep(0.05)

sys.addaudithook(hook)
"""


_ADDRESS = re.compile(r"tcp://[\d.]+:\d+")


class Cluster:
    """A running cluster.

    Attributes:
        address: Its scheduler's.
        folder: Where its workers keep their files.
    """

    def __init__(self, process: subprocess.Popen[str], address: str, folder: Path) -> None:
        self.address, self.folder, self._process = address, folder, process

    @property
    def scheduler(self) -> subprocess.Popen[str]:
        """The process of the scheduler."""
        return self._process

    def workers(self) -> list[psutil.Process]:
        """Its worker processes; those that watch them are the process that tests started."""
        return [
            child
            for child in psutil.Process(self._process.pid).children(recursive=True)
            if "spawn_main" in " ".join(child.cmdline())
        ]

    def has_workers(self, count: int, *, timeout_s: float = HANG_SECONDS) -> bool:
        """Whether it has so many workers, also after a while in which nannies restart them."""
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            try:
                client.wait_for_workers(count, timeout=timeout_s)
            except TimeoutError:
                return False
        return True

    def kill(self) -> None:
        """End all of it at once, as a power cut would."""
        for process in [*self.workers(), psutil.Process(self._process.pid)]:
            process.kill()


@contextmanager
def cluster(
    folder: Path,
    *,
    workers: int = 2,
    threads: int = 1,
    fatal: str = "",
    variables: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """A cluster of so many worker processes, which keep their files in a folder.

    Args:
        folder: An empty folder.
        workers: How many.
        threads: Tasks that each runs at a time.
        fatal: End of the name of a file that no worker survives opening.
        variables: What its environment has besides this process's.
    """
    pytest.importorskip("distributed")
    script = folder / "serve.py"
    script.write_text(_SERVE)
    (folder / "sitecustomize.py").write_text(_FATAL.format(fatal) if fatal else "")
    with subprocess.Popen(
        [sys.executable, script, str(workers), folder / "scratch", str(threads)],
        env={**os.environ, **(variables or {}), "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout
        address = process.stdout.readline().strip()
        assert address
        try:
            yield Cluster(process, address, folder / "scratch")
        finally:
            process.communicate()


@contextmanager
def complete_clusters(
    make_folder: Callable[[], Path], workers: int, variables: Mapping[str, str] | None = None
) -> Iterator[Callable[[], Cluster]]:
    """A function that returns a cluster with all its workers: a new one if tests have killed some for good.

    Args:
        make_folder: Makes an empty folder.
        workers: How many.
        variables: What the environment of the cluster has besides this process's.
    """
    with ExitStack() as started:
        current: Cluster | None = None

        def complete() -> Cluster:
            nonlocal current
            if current is None or not current.has_workers(workers):
                started.close()
                new = cluster(make_folder(), workers=workers, variables=variables)
                current = started.enter_context(new)
            return current

        yield complete


class SeparateCluster:
    """A scheduler and two workers with a nanny each, started by the commands that people use.

    Attributes:
        folder: Where the workers keep their files.
        scheduler: The process of the scheduler.
        address: Its address.
        stuck: Exists once a worker waits, and names its process; see `release`.
    """

    def __init__(self, folder: Path, *, stuck: str) -> None:
        """Start it.

        Args:
            folder: An empty folder.
            stuck: Name of a function of tracekit in which workers wait before they open or move a file.
        """
        pytest.importorskip("distributed")
        self.folder, self.stuck = folder / "scratch", folder / "stuck"
        (folder / "sitecustomize.py").write_text(_STUCK.format(stuck))
        path = {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
        self.scheduler = self._started("scheduler", "--port", "0", "--host", "127.0.0.1", **path)
        found = _ADDRESS.search(line) if (line := self._line(self.scheduler)) else None
        assert found
        self.address = found[0]
        more = ("--nworkers", "2", "--nthreads", "1", "--local-directory", str(self.folder))
        self._nannies = self._started("worker", self.address, "--host", "127.0.0.1", *more, **path)

    def _started(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
        environment = {**os.environ, **variables}
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, cwd=ROOT)

    def _line(self, process: subprocess.Popen[str]) -> str:
        assert process.stderr
        return next((line for line in process.stderr if _ADDRESS.search(line)), "")

    def release(self) -> None:
        """Let the worker go on."""
        self.stuck.with_name("free").touch()

    def close(self) -> None:
        """End all processes."""
        self.release()
        for process in (self._nannies, self.scheduler):
            children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            for one in [*children, process]:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            process.communicate()
