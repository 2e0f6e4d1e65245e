"""Run commands as process trees, interleaved, and measure wall time, CPU time and peak memory."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Costs of a command that succeeded.

    Attributes:
        wall_s: Seconds from start to end.
        cpu_s: CPU seconds of the process and of all that it started and waited for.
        peak_mb: Peak memory, MB: the kernel's high-water mark of a single process, otherwise the largest
            sampled sum of the proportional set sizes of all processes.
        reported: Numbers the command printed, by name; the name ends in the unit.
    """

    wall_s: float
    cpu_s: float
    peak_mb: float
    reported: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A command that failed.

    Attributes:
        reason: One line: its last message, or the limit it exceeded.
    """

    reason: str


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A command that is measured.

    Attributes:
        name: Name in tables.
        does: What a run of it does.
        command: Returns program and arguments for an empty scratch folder.
        against: Name of the contender it is compared with; empty for none.
        environment: Environment variables in addition to this process's.
        prepare: Called with the scratch folder before the clock starts.
        missing: Why it cannot run here; empty if it can.
    """

    name: str
    does: str
    command: Callable[[Path], Sequence[str]]
    against: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[Path], object] = lambda _: None
    missing: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Costs of a contender.

    Attributes:
        contender: The contender.
        costs: One for each successful round.
        failed: Why there are no further ones; empty if every round succeeded.
    """

    contender: Contender
    costs: tuple[Cost, ...] = ()
    failed: str = ""


def interleaved(
    contenders: Sequence[Contender],
    *,
    rounds: int,
    scratch: Path,
    limits: Limits | None = None,
    log: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Measure the contenders in turns, so that drift of the machine affects all alike.

    A contender that fails is not run again.

    Args:
        contenders: Contenders.
        rounds: Number of runs of each.
        scratch: Folder that is emptied before each run and removed at the end.
        limits: Limits of one run.
        log: Called with a line for each run.
    """
    costs: dict[str, list[Cost]] = {one.name: [] for one in contenders}
    failed = {one.name: one.missing for one in contenders}
    for number in range(rounds):
        for one in contenders:
            if failed[one.name]:
                continue
            done = _once(one, scratch, limits)
            if isinstance(done, Failure):
                failed[one.name] = done.reason
                log(f"round {number + 1}: {one.name}: failed: {done.reason}")
            else:
                costs[one.name].append(done)
                log(f"round {number + 1}: {one.name}: {done.wall_s:.2f} s, CPU {done.cpu_s:.2f} s")
    return [Row(contender=one, costs=tuple(costs[one.name]), failed=failed[one.name]) for one in contenders]


def _once(contender: Contender, scratch: Path, limits: Limits | None) -> Cost | Failure:
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        contender.prepare(scratch)
        os.sync()  # so that a run does not wait for the writes of an earlier one
        return measure(contender.command(scratch), limits=limits, environment=contender.environment)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


SAMPLE_S = 0.02
MAX_MESSAGE = 200
SAMPLING_PART = 20
"""Reading the memory takes at most 1/20 of the time, since it stops the processes."""
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits at which a command is killed.

    Attributes:
        wall_s: Wall time, s.
        memory_mb: Memory of all its processes, MB.
    """

    wall_s: float = 900
    memory_mb: float = float("inf")


def measure(
    command: Sequence[str], *, limits: Limits | None = None, environment: Mapping[str, str] | None = None
) -> Cost | Failure:
    """Run a command until it exits or exceeds a limit.

    Args:
        command: Program and arguments. If its last line of output is a JSON object, its numbers are reported.
        limits: Limits at which it is killed.
        environment: Environment variables in addition to this process's.

    Example:
        >>> import sys
        >>> measure([sys.executable, "-c", "import json; print(json.dumps({'load_s': 2.5}))"]).reported
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
        exceeded, peak = _watch(process.pid, start, limits or Limits())
        wall = time.perf_counter() - start
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if exceeded or process.returncode:
            return Failure(reason=exceeded or _last_message(log, process.returncode))
        reported = _reported(out)
    return Cost(wall_s=wall, cpu_s=usage.ru_utime + usage.ru_stime, peak_mb=peak / 1e6, reported=reported)


def _watch(pid: int, start: float, limits: Limits) -> tuple[str, int]:
    """Wait for a process; the limit it exceeded, and its peak memory in bytes."""
    peak, exceeded, handle = 0, "", os.pidfd_open(pid)
    try:
        while not exceeded:
            worked = time.thread_time()
            peak = max(peak, tree_memory(pid))
            exceeded = _exceeded(time.perf_counter() - start, peak, limits)
            pause = max(SAMPLE_S, SAMPLING_PART * (time.thread_time() - worked))
            if select.select([handle], [], [], pause)[0]:
                return "", peak
        return exceeded, peak
    finally:
        os.close(handle)
        with suppress(ProcessLookupError):  # not reaped yet, so the id is still its own
            os.killpg(pid, signal.SIGKILL)


def _exceeded(wall_s: float, peak: int, limits: Limits) -> str:
    if wall_s > limits.wall_s:
        return f"over the time limit of {limits.wall_s:g} s"
    if peak > limits.memory_mb * 1e6:
        return f"over the memory limit of {limits.memory_mb / 1e3:.1f} GB after {wall_s:.0f} s"
    return ""


def _last_message(log: IO[bytes], code: int) -> str:
    """Last line of a failed command's stderr, and its exit status."""
    log.seek(0)
    lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    ended = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{lines[-1][:MAX_MESSAGE] if lines else 'no output'} ({ended})"


def _reported(out: IO[bytes]) -> dict[str, float]:
    """Numbers of the JSON object on the last line; empty if there is none."""
    out.seek(0)
    lines = out.read().decode(errors="replace").strip().splitlines()
    try:
        last = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    found = last if isinstance(last, dict) else {}
    return {name: value for name, value in found.items() if type(value) in {int, float}}


def tree_memory(pid: int) -> int:
    """Memory of a process tree, in bytes.

    For a single process, the kernel's high-water mark: cheap to read and exact. For several, the sum of
    proportional set sizes, which counts shared pages once but walks the page tables.
    """
    try:
        processes = descendants(pid)
        return peak_memory(pid) if len(processes) == 1 else sum(map(proportional_memory, processes))
    except OSError:
        return 0  # one of them has just exited


def descendants(pid: int) -> list[int]:
    """A process and its descendants."""
    children = [
        int(child)
        for listed in Path(f"/proc/{pid}/task").glob("*/children")
        for child in listed.read_text().split()
    ]
    return [pid, *(one for child in children for one in descendants(child))]


def proportional_memory(pid: int) -> int:
    """Proportional set size of a process, in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def peak_memory(pid: int) -> int:
    """Peak resident memory of a process, in bytes; 0 if it has exited.

    Example:
        >>> import os
        >>> peak_memory(os.getpid()) > 1_000_000
        True
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)
