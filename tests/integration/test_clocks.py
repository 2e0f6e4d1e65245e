"""Clocks that are set back or forward, also in a recording: nothing is lost, negative or taken for abandoned.

The clock is that of the C library, which all of a process reads: a library of the test's stands before it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.environment import HANG_SECONDS
from tests.integration.programs import MAIN
from tests.tiers import thinned
from tests.traces import kernels_text
from tracekit.runs.store import Store
from tracekit.runs.verify import verify
from tracekit.schema import TABLES, C

if TYPE_CHECKING:
    from pathlib import Path

HOUR, DAY = 3_600, 86_400
VARIABLE = "TRACEKIT_TESTS_CLOCK"
LIBRARY = f"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long offset(void) {{
  char text[32] = {{0}};
  const char *path = getenv("{VARIABLE}");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return 0;
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  return length > 0 ? strtoll(text, 0, 10) : 0;
}}
int clock_gettime(clockid_t id, struct timespec *now) {{
  int result = syscall(SYS_clock_gettime, id, now);
  if (!result && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
  return result;
}}
int gettimeofday(struct timeval *now, void *zone) {{
  (void)zone;
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}}
time_t time(time_t *to) {{
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (to) *to = exact.tv_sec;
  return exact.tv_sec;
}}
"""
PROGRAM = """
import os, sys
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    if step == int(sys.argv[1]):
        with open(os.environ["TRACEKIT_TESTS_CLOCK"], "w") as clock:
            clock.write(sys.argv[2])
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
print("trained")
"""
HOLD = """
import sys
from pathlib import Path
from tracekit.runs.store import Store
with Store(Path(sys.argv[1])).draft() as draft:
    print(draft.path, flush=True)
    sys.stdin.read()
"""
COMMANDS = """
import json, sys
from tracekit.cli.main import run
for words in json.loads(sys.argv[1]):
    assert run(words) == 0, words
    print(end="\\0")
"""
READING = (
    *(("runs",), ("runs", "--since", "1h"), ("show", "latest"), ("findings", "latest"), ("noise",)),
    *(("analyze", "latest", "kernels"), ("diff", "latest~1", "latest"), ("verify",), ("gc",)),
    ("show", "latest", "--format", "json"),
)


@dataclass(frozen=True)
class Clock:
    """A clock that is set for processes with its variables."""

    library: Path
    file: Path

    def set(self, seconds: int) -> None:
        """Set it so far from the true time."""
        self.file.write_text(str(seconds))

    @property
    def variables(self) -> dict[str, str]:
        """Variables of processes that have this clock."""
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        return {**os.environ, **threads, "LD_PRELOAD": str(self.library), VARIABLE: str(self.file)}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("there is no C compiler for Linux")
    folder = tmp_path_factory.mktemp("clock")
    (folder / "clock.c").write_text(LIBRARY)
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(folder / "clock.so"), str(folder / "clock.c")]
    subprocess.run(command, check=True)
    return folder / "clock.so"


@pytest.fixture
def clock(library: Path, tmp_path: Path) -> Clock:
    made = Clock(library, tmp_path / "clock")
    made.set(0)
    return made


def tracekit(clock: Clock, folder: Path, *words: str, code: str = MAIN) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *words],
        cwd=folder,
        env={**clock.variables, "TRACEKIT_STORE": str(folder / "store")},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def created(run_id: str) -> float:
    """The time in the id of a run."""
    return datetime.strptime(run_id.partition("-")[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "offsets",
    [
        (0, -HOUR),
        *(pytest.param(some, marks=pytest.mark.slow) for some in ((0, 400 * DAY, 0), (-20_000 * DAY, 0))),
    ],
    ids=str,
)
def test_a_clock_set_between_two_recordings(clock: Clock, tmp_path: Path, offsets: tuple[int, ...]) -> None:
    (tmp_path / "trace.json").write_text(kernels_text(50))
    recorded: list[str] = []
    for offset in offsets:
        clock.set(offset)
        assert tracekit(clock, tmp_path, "import", "trace.json").returncode == 0
        recorded += [run.id for run in Store(tmp_path / "store").runs() if run.id not in recorded]
    runs = Store(tmp_path / "store").runs()
    assert {*recorded} == {run.id for run in runs}  # ids of one second are in no order
    for run_id, (before, after) in zip(recorded[1:], pairwise(offsets), strict=True):
        shift = created(run_id) - created(recorded[recorded.index(run_id) - 1])
        assert abs(shift - (after - before)) < HANG_SECONDS
    behind = {run.id for run in runs if "clock_behind" in {note.code for note in run.meta.diagnostics}}
    assert behind == {run_id for at, run_id in enumerate(recorded) if max(recorded[:at], default="") > run_id}
    assert [run for run in runs if verify(run).damage] == []
    done = tracekit(clock, tmp_path, json.dumps(READING), code=COMMANDS)
    assert done.returncode == 0, done.stderr
    *read, shown, _ = done.stdout.split("\0")
    assert len(read) == len(READING) - 1
    assert not any("-1 " in text for text in read)
    assert max(recorded) in shown
    assert len(Store(tmp_path / "store").runs()) == len(offsets)


@pytest.mark.parametrize("offset", thinned([-30 * DAY, 30 * DAY, 20_000 * DAY], default=[30 * DAY]))
def test_what_a_process_writes_is_not_taken_for_abandoned(clock: Clock, tmp_path: Path, offset: int) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "store")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin
        assert holder.stdout
        name = holder.stdout.readline().strip().rpartition("/")[2]
        clock.set(offset)
        for words in (["gc"], ["gc", "--older-than", "1d"]):
            assert tracekit(clock, tmp_path, *words).returncode == 0
            assert (tmp_path / "store" / name).is_dir()
        holder.kill()
    assert tracekit(clock, tmp_path, "gc").returncode == 0
    assert not (tmp_path / "store" / name).exists()


@pytest.mark.slow
@pytest.mark.parametrize("offset", [-HOUR, 7 * DAY])
@pytest.mark.parametrize("step", [1, 4, 5, 9], ids=["before", "begin", "inside", "after"])
def test_a_clock_set_in_a_recording(clock: Clock, tmp_path: Path, step: int, offset: int) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(PROGRAM)
    program = [sys.executable, "train.py", str(step), str(offset)]
    done = tracekit(clock, tmp_path, "collect", "--start-step", "4", "--steps", "3", "--", *program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("trained\n")
    (run,) = Store(tmp_path / "store").runs()
    assert verify(run).damage == ()
    is_noted = "clock_set" in {note.code for note in run.meta.diagnostics}
    assert is_noted or step in {1, 9}
    for name in filter(run.rows, TABLES):
        rows = run.arrow(name)
        if C.DUR_NS in rows.column_names:
            assert min(rows[C.DUR_NS].to_pylist()) >= 0
            assert is_noted or max(rows[C.DUR_NS].to_pylist()) < HANG_SECONDS * 10**9
    # Torch scales its times by the jump, and steps of days are set aside.
    assert run.rows("steps") == 3 or (is_noted and offset > HANG_SECONDS)
    assert run.meta.timings is not None
    assert max(run.meta.timings.step_ns) < HANG_SECONDS * 10**9
    found = json.loads(tracekit(clock, tmp_path, "findings", "latest", "--format", "json").stdout)
    assert not [one for one in found["findings"] if (one["share_of_step"] or 0) > 1]
