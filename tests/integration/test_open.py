"""`tracekit open` serves traces from a store that is gone afterward."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

TRACE = Path(__file__).parents[2] / "samples/simulated/training.json.gz"
TRACEKIT = [sys.executable, "-c", "from tracekit.cli.main import main; main()"]


def test_a_trace_is_shown_at_its_verdict_and_nothing_is_kept(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [*TRACEKIT, "open", "--no-browser", str(TRACE)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("Bound by GPU kernels: kernels run for 55.7%")
        address = re.search(r"http://127\.0\.0\.1:\d+/overview\?run=[\w-]+", server.stdout.readline())
        assert address
        with urllib.request.urlopen(address[0]) as page:  # noqa: S310 (on loopback)
            assert page.status == 200
        assert list(tmp_path.glob("tracekit-open-*/*training*"))
        server.send_signal(signal.SIGINT)
        assert server.wait() == 130
    assert list(tmp_path.iterdir()) == []


STOPPED = """
import os
from tracekit.cli.progress import stop_on_interrupt
class Last:  # the interpreter deletes it when it already ends the daemon threads that ask for the GIL
    def __del__(self, write=os.write):
        write(2, b"the interpreter was finalized")
last = Last()
with stop_on_interrupt():
    raise {}
"""


@pytest.mark.parametrize(("cause", "code"), [("KeyboardInterrupt", 130), ("SystemExit(143)", 143)])
def test_a_server_does_not_finalize_the_interpreter_under_its_threads(cause: str, code: int) -> None:
    command = [sys.executable, "-c", STOPPED.format(cause)]
    stopped = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert (stopped.returncode, stopped.stderr) == (code, "")
