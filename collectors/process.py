"""Sample memory, CPU time and threads of a process and its children.

* `rss_bytes`: sum of resident bytes; shared pages count once per process.
* `cpu_percent`: CPU time over wall time since the last reading, in percent of one core.
* `threads`, `processes`: counts without the sampling thread.

Finding children reads every process of the machine, so its interval doubles up to 8 s while they do not
change. A child counts from the reading that finds it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import psutil

from tracekit.ingest.write import Sample
from tracekit.runs.meta import Diagnostic

SOURCE: Final = "process"
RSS, CPU, THREADS, PROCESSES = "rss_bytes", "cpu_percent", "threads", "processes"
_MIN_SEARCH_NS, _MAX_SEARCH_NS = 500_000_000, 8_000_000_000
_TICK_S, _PAGE = 1 / os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_MIN_SHARE_NS = 30_000_000
"""Shortest interval for a CPU share: the kernel counts CPU time in ticks of 10 ms."""
_EXITING = 0x4
"""The kernel's PF_EXITING flag."""


class ProcessSampler:
    """Samples one process and its children."""

    name = SOURCE

    def __init__(self, process: psutil.Process) -> None:
        self._root = process
        self._children: list[psutil.Process] = []
        self._search_at_ns, self._interval_ns = 0, _MIN_SEARCH_NS
        self._cpu_s: dict[int, float] | None = None
        self._read_ns = 0

    @classmethod
    def of(cls, pid: int) -> ProcessSampler | None:
        """Return the sampler of a process; None if there is no such process."""
        try:
            return cls(psutil.Process(pid))
        except psutil.Error:
            return None

    def read(self) -> list[Sample]:
        """Return resident bytes, CPU share since the last reading if there is one, threads and processes."""
        self._search()
        rss, threads, cpu_s = 0, 0, {}
        for process in (self._root, *self._children):
            try:
                cpu_s[process.pid], own_rss, own_threads = _usage(process)
            except psutil.Error:  # it ended
                continue
            rss += own_rss
            threads += own_threads - (process.pid == os.getpid())
        now, ticks = time.time_ns(), time.perf_counter_ns()
        if not cpu_s:
            return []
        values = [
            (RSS, "bytes", float(rss)),
            (THREADS, "count", float(threads)),
            (PROCESSES, "count", float(len(cpu_s))),
        ]
        share = self._share(cpu_s, ticks)
        if share is not None:
            values.append((CPU, "%", share))
        return [Sample(now, SOURCE, None, metric, unit, value) for metric, unit, value in values]

    def close(self) -> None:
        """Do nothing: there are no resources."""

    def diagnostics(self) -> list[Diagnostic]:
        """Return nothing: all machines have these values."""
        return []

    def _search(self) -> None:
        now = time.perf_counter_ns()
        if now < self._search_at_ns:
            return
        try:
            found = self._root.children(recursive=True)
        except psutil.Error:
            found = []
        self._interval_ns = (
            min(2 * self._interval_ns, _MAX_SEARCH_NS) if found == self._children else _MIN_SEARCH_NS
        )
        self._children, self._search_at_ns = found, now + self._interval_ns

    def _share(self, cpu_s: dict[int, float], now: int) -> float | None:
        """Return the CPU share since the last reading, of processes that were in it."""
        last, since = self._cpu_s, self._read_ns
        if last is not None and now - since < _MIN_SHARE_NS:
            return None
        self._cpu_s, self._read_ns = cpu_s, now
        if last is None:
            return None
        used = sum(seconds - last[pid] for pid, seconds in cpu_s.items() if pid in last)
        return 100 * max(0.0, used) * 1e9 / (now - since)


def _usage(process: psutil.Process) -> tuple[float, int, int]:
    """Return CPU seconds, resident bytes and threads, from one file on Linux, else with psutil."""
    try:
        text = Path(f"/proc/{process.pid}/stat").read_bytes()
    except OSError:
        with process.oneshot():
            times = process.cpu_times()
            return times.user + times.system, process.memory_info().rss, process.num_threads()
    fields = text[text.rindex(b")") + 2 :].split()  # after the name, which may have any character
    if int(fields[6]) & _EXITING:  # its memory is freed, even if it is not reaped yet
        raise psutil.NoSuchProcess(process.pid)
    return (int(fields[11]) + int(fields[12])) * _TICK_S, int(fields[21]) * _PAGE, int(fields[17])
