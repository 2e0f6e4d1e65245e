"""What a process and its children use of the host, as the system counts it.

* `rss_bytes`: resident bytes, summed; pages that several of them share count for each.
* `cpu_percent`: CPU time over wall time since the reading before, in percent of one core.
* `threads`, `processes`: how many there are; the thread that samples does not count.

Children are looked for about once a second, as it means reading every process of the machine; the CPU time of
one that came and went in between is not seen.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

import psutil

from tracekit.ingest import Sample

if TYPE_CHECKING:
    from tracekit.meta import Diagnostic

SOURCE: Final = "process"
RSS, CPU, THREADS, PROCESSES = "rss_bytes", "cpu_percent", "threads", "processes"
_SEARCH_NS = 1_000_000_000
_TICKS_NS = 30_000_000
"""The system counts CPU time in ticks of 10 ms: over less than a few of them a share is noise."""


class ProcessSampler:
    """Samples one process and its children."""

    name = SOURCE

    def __init__(self, process: psutil.Process) -> None:
        self._root = process
        self._children: list[psutil.Process] = []
        self._searched_ns: int | None = None
        self._cpu_s: dict[int, float] | None = None
        self._read_ns = 0

    @classmethod
    def of(cls, pid: int) -> ProcessSampler | None:
        """The sampler of a process; None where there is no such process."""
        try:
            return cls(psutil.Process(pid))
        except psutil.Error:
            return None

    def read(self) -> list[Sample]:
        """Resident bytes, CPU share since the reading before (not at the first), threads and processes."""
        self._search()
        rss, threads, cpu_s = 0, 0, {}
        for process in (self._root, *self._children):
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    cpu_s[process.pid] = times.user + times.system
                    rss += process.memory_info().rss
                    threads += process.num_threads() - (process.pid == os.getpid())
            except psutil.Error:  # it ended
                continue
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
        """Nothing is held."""

    def diagnostics(self) -> list[Diagnostic]:
        """Nothing to say: every machine has this."""
        return []

    def _search(self) -> None:
        now = time.perf_counter_ns()
        if self._searched_ns is not None and now - self._searched_ns < _SEARCH_NS:
            return
        self._searched_ns = now
        try:
            self._children = self._root.children(recursive=True)
        except psutil.Error:
            self._children = []

    def _share(self, cpu_s: dict[int, float], now: int) -> float | None:
        """CPU time since the reading before; a child found since then began after it."""
        before, since = self._cpu_s, self._read_ns
        if before is not None and now - since < _TICKS_NS:
            return None
        self._cpu_s, self._read_ns = cpu_s, now
        if before is None:
            return None
        used = sum(seconds - before.get(pid, 0.0) for pid, seconds in cpu_s.items())
        return 100 * max(0.0, used) * 1e9 / (now - since)
