"""Run a command as its own process tree and account for all of it."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLE_SECONDS = 0.05


@dataclass(frozen=True)
class Cost:
    """What a finished command took.

    Attributes:
        wall_s: Seconds from start to end.
        cpu_s: CPU seconds of the process and of all that it started and waited for.
        peak_mb: Largest sum of the proportional memory of its processes, MB.
    """

    wall_s: float
    cpu_s: float
    peak_mb: float


def measure(command: Sequence[str]) -> Cost:
    """Run a command to its end.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0
    while _running(process.pid):
        peak = max(peak, _memory(process.pid))
        time.sleep(SAMPLE_SECONDS)
    wall = time.perf_counter() - start
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(wall, usage.ru_utime + usage.ru_stime, peak / 1e6)


def _running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _memory(pid: int) -> int:
    total = 0
    try:
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            total += process.memory_full_info().pss
    except psutil.Error:
        return total  # one of them has just ended
    return total


def median(costs: Sequence[Cost]) -> Cost:
    """The median of each figure."""
    return Cost(
        statistics.median(cost.wall_s for cost in costs),
        statistics.median(cost.cpu_s for cost in costs),
        max(cost.peak_mb for cost in costs),
    )
