"""Run a command as its own process tree, account for all of it, and end it where it passes a limit."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from benchmarks.runner import memory
from benchmarks.runner.cost import Cost, Failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SAMPLE_S = 0.02
LONGEST = 200
SHARE = 20
"""Looking at the memory takes at most one part in so many of the time: it halts what is looked at."""
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Where a command is ended.

    Attributes:
        wall_s: Seconds.
        memory_mb: MB of all its processes.
    """

    wall_s: float = 900
    memory_mb: float = float("inf")


def measure(
    command: Sequence[str], *, limits: Limits | None = None, environment: Mapping[str, str] | None = None
) -> Cost | Failure:
    """Run a command to its end, or to a limit.

    Args:
        command: Program and arguments. Numbers in a JSON object on its last line of output are kept.
        limits: Where it is ended.
        environment: Variables it gets besides those of this process.

    Example:
        >>> import sys
        >>> measure([sys.executable, "-c", "import json; print(json.dumps({'load_s': 2.5}))"]).told
        {'load_s': 2.5}
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as log:
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        passed, peak = _watched(process.pid, start, limits or Limits())
        wall = time.perf_counter() - start
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if passed or process.returncode:
            return Failure(why=passed or _last_words(log, process.returncode))
        told = _told(out)
    return Cost(wall_s=wall, cpu_s=usage.ru_utime + usage.ru_stime, peak_mb=peak / 1e6, told=told)


def _watched(pid: int, start: float, limits: Limits) -> tuple[str, int]:
    """Wait until a process has ended; the limit that it passed, and the most bytes it had."""
    peak, passed, handle = 0, "", os.pidfd_open(pid)
    try:
        while not passed:
            worked = time.thread_time()
            peak = max(peak, memory.tree(pid))
            passed = _passed(time.perf_counter() - start, peak, limits)
            pause = max(SAMPLE_S, SHARE * (time.thread_time() - worked))
            if select.select([handle], [], [], pause)[0]:
                return "", peak
        return passed, peak
    finally:
        os.close(handle)
        _end(pid)


def _end(pid: int) -> None:
    """End a process and what it started; what has ended is not waited for yet, so the number is still its."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _passed(wall_s: float, peak: int, limits: Limits) -> str:
    if wall_s > limits.wall_s:
        return f"over the time limit of {limits.wall_s:g} s"
    if peak > limits.memory_mb * 1e6:
        return f"over the memory limit of {limits.memory_mb / 1e3:.1f} GB after {wall_s:.0f} s"
    return ""


def _last_words(log: IO[bytes], code: int) -> str:
    """The last line that a failed command wrote, and how it ended."""
    log.seek(0)
    lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    ended = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{lines[-1][:LONGEST] if lines else 'said nothing'} ({ended})"


def _told(out: IO[bytes]) -> dict[str, float]:
    """The numbers of the JSON object on the last line; none where it is something else."""
    out.seek(0)
    lines = out.read().decode(errors="replace").strip().splitlines()
    try:
        last = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    told = last if isinstance(last, dict) else {}
    return {name: value for name, value in told.items() if type(value) in {int, float}}
