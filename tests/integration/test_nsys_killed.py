"""A collection under nsys that is killed, at whatever moment, leaves neither processes nor files."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.environment import HANG_SECONDS
from tests.nsys import install, write_export
from tests.tiers import thinned
from tracekit.recording import logs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.runs.store import Store

PLAYED = Path(__file__).with_name("nsys_measured.py")
COLLECT = """
import sys
from tracekit.cli.main import main
from tracekit.collectors import workload_process
from tracekit.collectors.nsys import collector
collector._MEASURED = workload_process.COMMAND = (sys.executable, *sys.argv[1:3])
what = ["--", *sys.argv[4:]] if sys.argv[4:] else ["--workload", "mnist_cnn"]
main(["collect", "--collector", "nsys", "--store", sys.argv[3], *what])
"""
MOMENTS = 24
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def start(
    store: Store, folder: Path, *, outcome: str, program: str = "ends well", own: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """A collection in a process of its own, with a folder of its own for temporary files.

    Args:
        store: Where the run would go.
        folder: Where the stand-in and the temporary files go.
        outcome: What the stand-in plays.
        program: What the measured processes of a workload play.
        own: The user's own program in place of a workload.
    """
    export = folder / "made.sqlite"
    if not export.exists():
        write_export(export, rows={"NVTX_EVENTS": 1})
    nsys = install(folder / "bin", outcome=outcome, export=export)
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", COLLECT, str(PLAYED), program, str(store.path), *own],
        env={**os.environ, "PATH": f"{nsys.parent}:/usr/bin:/bin", "TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def nothing_is_left(store: Store, folder: Path) -> None:
    """No process that names the folder, no file in it, and a store that opens and holds no part of a run."""
    give_up = time.monotonic() + 30
    while (left := running(folder)) and time.monotonic() < give_up:
        psutil.wait_procs(left, timeout=0.1)
    assert left == []
    assert list((folder / "temporary").iterdir()) == []
    with store.draft():
        pass  # sweeps what a killed process left
    assert store.runs() == []
    assert {path.name for path in store.path.iterdir()} - {logs.FOLDER} == {".gitignore"}


def running(folder: Path) -> list[psutil.Process]:
    every = psutil.process_iter(["cmdline"])
    return [one for one in every if any(str(folder) in word for word in one.info["cmdline"] or ())]


def wait_for_nsys(collecting: subprocess.Popen[str], *, processes: int = 2) -> list[psutil.Process]:
    """The processes of a collection, once nsys is among them."""
    give_up = time.monotonic() + HANG_SECONDS
    while time.monotonic() < give_up:
        children = psutil.Process(collecting.pid).children(recursive=True)
        if len(children) >= processes:
            return children
        time.sleep(0.02)
    raise AssertionError("nsys was not started")


@pytest.mark.parametrize("with_signal", thinned([signal.SIGKILL, signal.SIGTERM], default=[signal.SIGKILL]))
def test_the_users_program(with_signal: signal.Signals, store: Store, tmp_path: Path) -> None:
    sleeping = [sys.executable, "-c", "import time; time.sleep(600)", str(tmp_path)]
    collecting = start(store, tmp_path, outcome="daemon", own=sleeping)
    wait_for_nsys(collecting, processes=4)  # with the guard, the program, and the daemon of nsys
    collecting.send_signal(with_signal)
    collecting.communicate(timeout=HANG_SECONDS)
    nothing_is_left(store, tmp_path)


@pytest.mark.slow
def test_at_any_moment(store: Store, tmp_path: Path) -> None:
    began = time.monotonic()
    start(store, tmp_path, outcome="daemon").communicate(timeout=HANG_SECONDS)
    whole = time.monotonic() - began
    chosen = random.Random(20261121)
    for number in range(MOMENTS):
        collecting = start(store, tmp_path, outcome="daemon")
        time.sleep(chosen.uniform(0, whole))  # any moment is as good as another
        collecting.send_signal(SIGNALS[number % len(SIGNALS)])
        collecting.communicate(timeout=HANG_SECONDS)
        for run in store.runs():
            store.remove(run)  # it had ended before it was killed
        nothing_is_left(store, tmp_path)


@pytest.mark.parametrize("with_signal", thinned(SIGNALS, default=[signal.SIGINT]))
@pytest.mark.parametrize(
    ("part", "outcome", "program"),
    [("export", "export_hangs", "ends well"), ("profile", "daemon", "runs on")],
)
def test_in_the_middle_of(
    part: str, outcome: str, program: str, with_signal: signal.Signals, store: Store, tmp_path: Path
) -> None:
    collecting = start(store, tmp_path, outcome=outcome, program=program)
    assert collecting.stderr
    while not (line := collecting.stderr.readline()).startswith(part):
        assert line, "it ended before it came to that"
    children = wait_for_nsys(collecting)
    collecting.send_signal(with_signal)
    out, err = collecting.communicate(timeout=HANG_SECONDS)
    assert out == ""
    assert "Traceback" not in err
    codes = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
    assert collecting.returncode == codes[with_signal]
    assert psutil.wait_procs(children, timeout=HANG_SECONDS)[1] == []
    nothing_is_left(store, tmp_path)
