"""A killed import leaves neither a run nor processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.environment import HANG_SECONDS
from tests.tiers import thinned
from tests.traces import kernels_text
from tracekit.ingest.kineto.scan import native

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.store import Store

IMPORT = """
import sys
from contextlib import nullcontext
from tracekit.cli.main import main
from tracekit.ingest.importer import local
from tracekit.ingest.kineto import reader
from tracekit.ingest.kineto.scan.loader import Scanners
if __name__ == "__main__":
    local.POOL_BYTES = local.THREAD_BYTES = 1
    local.cores = lambda: 2
    if sys.argv.pop(1) == "reference":
        local.scanners = lambda size: nullcontext(Scanners())
    reader.read.__kwdefaults__["chunk_bytes"] = 200_000
    main(sys.argv[1:])
"""


CASES = [
    (decoder, processes, number)
    for decoder, processes in (("reference", 2), ("scanner", 0))
    for number in (signal.SIGKILL, signal.SIGINT)
]


@pytest.mark.parametrize(("decoder", "processes", "with_signal"), thinned(CASES, default=CASES[1:3]))
def test_a_killed_import_leaves_no_run_or_process(
    decoder: str, processes: int, with_signal: signal.Signals, store: Store, tmp_path: Path
) -> None:
    native.load()
    script = tmp_path / "script.py"
    script.write_text(IMPORT)
    importing = subprocess.Popen(
        [sys.executable, script, decoder, "import", "-", "--store", store.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert importing.stdin
    importing.stdin.write(kernels_text(30_000).encode()[:-1000])  # more than is read at once
    importing.stdin.flush()  # and never closed: the import waits for the rest
    workers = _once_decoding(store, importing.pid, processes)
    importing.send_signal(with_signal)
    out, err = importing.communicate(timeout=HANG_SECONDS)
    assert out == b""
    assert b"Traceback" not in err
    gone, alive = psutil.wait_procs(workers, timeout=HANG_SECONDS)
    assert not alive
    assert len(gone) >= processes
    assert store.runs() == []
    with store.draft():
        pass  # sweeps what a killed process left
    assert [path.name for path in store.path.iterdir()] == [".gitignore"]


def _once_decoding(store: Store, pid: int, processes: int) -> list[psutil.Process]:
    """The worker processes, once they are there and something is decoded."""
    parent, give_up = psutil.Process(pid), time.monotonic() + HANG_SECONDS
    while time.monotonic() < give_up:
        workers = parent.children(recursive=True)
        if len(workers) >= processes and any(store.path.rglob("*.rows")):
            return workers
        time.sleep(0.02)
    raise AssertionError("nothing was decoded")
