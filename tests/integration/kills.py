"""Kill tracekit at some moment of what it does, and look at what is there afterwards.

    python -m tests.integration.kills 200

kills it so often at random moments of imports and collections, and prints where it was hit.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from unittest.mock import patch

import psutil

from samples.simulator import nsys
from samples.simulator.examples import training
from tests.environment import HANG_SECONDS
from tests.integration.killed_child import ROOM
from tests.traces import kernels_text
from tracekit.cli.leftovers import free, leftovers
from tracekit.recording import logs
from tracekit.runs import index
from tracekit.runs.store import Store
from tracekit.runs.verify import verify

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Process = subprocess.Popen[bytes] | "Forked"

ROOT = Path(__file__).parents[2]
CHILD = Path(__file__).with_name("killed_child.py")
MARK = "TRACEKIT_TESTS_KILLED"
PROGRAM = """
import torch
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    optimizer.zero_grad()
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
"""
SMALL = ("--device", "cpu", "--steps", "2", "--warmup", "1", "--batch-size", "4", "--threads", "1")
IMPORTS = ("kineto", "kineto in chunks", "nsys")
COLLECTIONS = ("workload", "program")


@dataclass(frozen=True, kw_only=True)
class After:
    """What was there after a kill.

    Attributes:
        operation: The last operation on files before it; empty where there was none.
        state: What the store held: nothing, a draft, or a run.
        ended: Whether the process had ended before it could be killed.
    """

    operation: str
    state: str
    ended: bool


class ForkServer:
    """A process that has imported tracekit and forks others, which need not import it again.

    One process is forked at a time.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._errors = folder / "errors"
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD), "serve"],
            env=environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.pid = self._process.pid

    def start(self, arguments: Sequence[str]) -> Forked:
        """Fork a process that runs `killed_child.py` with these arguments."""
        assert self._process.stdin
        self._errors.write_bytes(b"")
        self._process.stdin.write(json.dumps([str(self._errors), *arguments]).encode() + b"\n")
        pid = self.answer(HANG_SECONDS)
        assert pid is not None
        return Forked(self, pid, self._errors)

    def answer(self, seconds: float) -> int | None:
        """The next number that it says; None where it says nothing for so long."""
        assert self._process.stdout
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            return None
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=HANG_SECONDS)


class Forked:
    """A process of a `ForkServer`, with the methods of `subprocess.Popen` that are used here."""

    def __init__(self, server: ForkServer, pid: int, errors: Path) -> None:
        self.pid, self.returncode = pid, 0
        self._server, self._errors, self._ended = server, errors, False

    def poll(self) -> int | None:
        """Its exit code if it has ended."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, seconds: float) -> int:
        """Its exit code once it has ended."""
        if not self._ended:
            code = self._server.answer(seconds)
            if code is None:
                raise subprocess.TimeoutExpired(str(CHILD), seconds)
            self.returncode, self._ended = code, True
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def communicate(self, timeout: float) -> tuple[None, bytes]:
        """What it wrote to its standard error, once it has ended."""
        self.wait(timeout)
        return None, self._errors.read_bytes()


class Scene:
    """A folder in which one thing is done again and again: its store, cache and temporary files."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.store = folder, name, Store(folder / "store")
        self._server: ForkServer | None = None
        self._notes = folder / "notes"

    def prepare(self) -> None:
        """Make the inputs."""
        for name in ("temporary", "cache"):
            (self.folder / name).mkdir()
        if self.name == "nsys":
            nsys.write(training(), self.folder / "made.sqlite")
        (self.folder / "train.py").write_text(PROGRAM)
        if self.name.startswith("kineto"):
            (self.folder / "trace.json").write_text(kernels_text(40_000 if "chunks" in self.name else 500))

    def close(self) -> None:
        """End the process that forks others."""
        if self._server:
            self._server.close()

    def arguments(self, at: int) -> list[str]:
        """What is done, for `killed_child.py`; killed at an operation on files, 0 for never."""
        decoder = "pool" if "chunks" in self.name else "plain"
        what = {
            "nsys": ["import", str(self.folder / "made.sqlite")],
            "workload": ["collect", "--workload", "mnist_cnn", *SMALL],
            "program": ["collect", "--start-step", "2", "--steps", "2", "--keep-trace"],
        }.get(self.name, ["import", str(self.folder / "trace.json")])
        words = [*what, "--store", str(self.store.path)]
        if self.name == "program":
            words += ["--", sys.executable, str(self.folder / "train.py")]
        return [str(self._notes), str(at), decoder, *words]

    def _environment(self) -> dict[str, str]:
        """Variables by which its descendants are known."""
        places = {
            MARK: str(self.folder),
            "TMPDIR": str(self.folder / "temporary"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }
        fixed = {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        return {**os.environ, **fixed, **places}

    def start(self, at: int = 0) -> Forked:
        """Begin, in a process that need not import tracekit."""
        self._notes.write_bytes(bytes(ROOM))
        if self._server is None:
            self._server = ForkServer(self.folder, self._environment())
        return self._server.start(self.arguments(at))

    def start_fresh(self, at: int = 0) -> subprocess.Popen[bytes]:
        """Begin, in a process of its own from the first instruction on."""
        self._notes.write_bytes(bytes(ROOM))
        return subprocess.Popen(
            [sys.executable, str(CHILD), *self.arguments(at)],
            env=self._environment(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def kill_at(self, number: int, *, fresh: bool = False) -> After:
        """Kill it at an operation on files, and check what is left."""
        return self._after(self.start_fresh(number) if fresh else self.start(number))

    def kill_after(self, seconds: float) -> After:
        """Kill it so long after its first operation on files, and check what is left."""
        process = self.start()
        self._once_it_works(process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.send_signal(signal.SIGKILL)
        return self._after(process)

    def seconds(self) -> float:
        """How long it takes from its first operation on files on, when nothing kills it."""
        process = self.start()
        self._once_it_works(process)
        began = time.monotonic()
        process.wait(300)
        whole = time.monotonic() - began
        assert self._after(process).ended
        return whole

    def _once_it_works(self, process: Process) -> None:
        """Return after the first operation on files: before it there is nothing that could be left."""
        give_up = time.monotonic() + HANG_SECONDS
        while process.poll() is None and not self._notes.read_bytes()[0]:
            assert time.monotonic() < give_up
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.001)

    def _after(self, process: Process) -> After:
        _, err = process.communicate(timeout=300)
        assert process.returncode in {0, -signal.SIGKILL}, err.decode()
        assert b"Traceback" not in err, err.decode()
        self._wait_for_others()
        state = self._state()
        self._check()
        operation = self._notes.read_bytes().rstrip(b"\0").decode(errors="replace")
        return After(operation=operation, state=state, ended=process.returncode == 0)

    def full_at(self, number: int, *, fresh: bool = False) -> tuple[int, str]:
        """Let the disk be full from an operation on files on; its exit code and what it said at last."""
        process = self.start_fresh(-number) if fresh else self.start(-number)
        _, err = process.communicate(timeout=300)
        assert b"Traceback" not in err, err.decode()
        self._wait_for_others()
        assert process.returncode == 0 or self._state() in {"nothing", "an empty store"}
        self._check()
        lines = err.decode().splitlines()
        return process.returncode, lines[-1] if lines else ""

    @cached_property
    def operations(self) -> int:
        """How many operations on files it takes when nothing kills it, once caches are filled."""
        self.kill_at(0, fresh=True)
        after = self.kill_at(0)
        assert after.ended
        return int(after.operation.split()[0])

    def _wait_for_others(self) -> None:
        """Until no descendant is left; all of them end by themselves."""
        give_up = time.monotonic() + HANG_SECONDS
        server = self._server.pid if self._server else None
        while left := [one for one in _marked(self.folder) if one.pid != server]:
            psutil.wait_procs(left, timeout=0.2)
            assert time.monotonic() < give_up, [one.cmdline() for one in left]

    def _state(self) -> str:
        path = self.store.path
        if not path.is_dir():
            return "nothing"
        if self.store.runs():
            return "a run"
        return "a draft" if any(path.glob(".tmp-*")) else "an empty store"

    def _check(self) -> None:
        """Listed runs are whole, what is left is freed, and then everything is as it was before."""
        runs = self.store.runs()
        for run in runs:
            assert verify(run).damage == ()
        here = {"XDG_CACHE_HOME": str(self.folder / "cache"), "TMPDIR": str(self.folder / "temporary")}
        with patch.dict(os.environ, here), patch("tempfile.tempdir", None):
            for one in list(leftovers(self.store)):
                assert free(one).complete, one
        for run in runs:
            self.store.remove(run)
        names = [path.name for path in self.store.path.iterdir()] if self.store.path.is_dir() else []
        # The list of runs is indexed once their age shows that they are settled.
        assert set(names) <= {".gitignore", logs.FOLDER, index.FILE_NAME}, names
        left = {path.name.partition("_")[0] for path in (self.folder / "temporary").iterdir()}
        assert left <= {"torchinductor"}, left  # a folder of torch's own
        assert [one for one in (self.folder / "cache").rglob("*") if ".o." in one.name] == []


def _marked(folder: Path) -> list[psutil.Process]:
    """The processes that live with this folder in their environment."""
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if one.environ().get(MARK) == str(folder) and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


@contextmanager
def scene_in(folder: Path, name: str) -> Iterator[Scene]:
    """A scene with its inputs."""
    scene = Scene(folder, name)
    scene.prepare()
    try:
        yield scene
    finally:
        scene.close()


def at_random(scene: Scene, times: int, *, seed: int) -> list[After]:
    """Kill it so often, at moments of the time that it takes after its first operation on files."""
    assert scene.operations  # which fills caches
    whole = scene.seconds()
    chosen = random.Random(f"{scene.name} {seed}")
    return [scene.kill_after(chosen.uniform(0, whole)) for _ in range(times)]


def main(times: int, names: Sequence[str] = IMPORTS + COLLECTIONS) -> None:
    """Kill each of what there is equally often, and print where it was hit."""
    for name in names:
        with TemporaryDirectory() as folder, scene_in(Path(folder), name) as scene:
            found = at_random(scene, times // len(names), seed=20261122)
        hit = Counter(f"{one.state}, {_kind(one)}" for one in found)
        sys.stdout.write(f"{name}: {len(found)} kills\n")
        for what, count in sorted(hit.items(), key=lambda pair: -pair[1]):
            sys.stdout.write(f"{count:6}  {what}\n")
        sys.stdout.flush()


def _kind(one: After) -> str:
    """The last operation without what differs from time to time."""
    if one.ended:
        return "it had ended"
    _, _, what = one.operation.partition(" ")
    name, _, path = what.partition(" ")
    last = re.sub(r"\d+", "N", Path(path).name)
    return f"last {name} {last if not last.startswith('.tmp-') else 'of a draft'}" if name else "nothing yet"


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:] or IMPORTS + COLLECTIONS)
