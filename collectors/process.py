"""What a process and its children use of the host, as the system counts it.

* `rss_bytes`: resident bytes, summed; pages that several of them share count for each.
* `cpu_percent`: CPU time over wall time since the reading before, in percent of one core.
* `threads`, `processes`: how many there are; the thread that samples does not count.

Looking for children means reading every process of the machine: it is done more and more rarely, down to once
in 8 s, as long as they stay the same. A child counts from the reading that finds it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from tracekit.ingest.write import Sample

if TYPE_CHECKING:
    from tracekit.runs.meta import Diagnostic

SOURCE: Final = "process"
RSS, CPU, THREADS, PROCESSES = "rss_bytes", "cpu_percent", "threads", "processes"
_SEARCH_NS, _RARELY_NS = 500_000_000, 8_000_000_000
_TICK_S, _PAGE = 1 / os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_TICKS_NS = 30_000_000
"""The system counts CPU time in ticks of 10 ms: over less than a few of them a share is noise."""
_EXITING = 0x4
"""The kernel's flag of a process on its way out (PF_EXITING)."""


class ProcessSampler:
    """Samples one process and its children."""

    name = SOURCE

    def __init__(self, process: psutil.Process) -> None:
        self._root = process
        self._children: list[psutil.Process] = []
        self._search_at_ns, self._rest_ns = 0, _SEARCH_NS
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
        """Nothing is held."""

    def diagnostics(self) -> list[Diagnostic]:
        """Nothing to say: every machine has this."""
        return []

    def _search(self) -> None:
        now = time.perf_counter_ns()
        if now < self._search_at_ns:
            return
        try:
            found = self._root.children(recursive=True)
        except psutil.Error:
            found = []
        self._rest_ns = min(2 * self._rest_ns, _RARELY_NS) if found == self._children else _SEARCH_NS
        self._children, self._search_at_ns = found, now + self._rest_ns

    def _share(self, cpu_s: dict[int, float], now: int) -> float | None:
        """CPU time since the reading before, of those that were there."""
        before, since = self._cpu_s, self._read_ns
        if before is not None and now - since < _TICKS_NS:
            return None
        self._cpu_s, self._read_ns = cpu_s, now
        if before is None:
            return None
        used = sum(seconds - before[pid] for pid, seconds in cpu_s.items() if pid in before)
        return 100 * max(0.0, used) * 1e9 / (now - since)


def _usage(process: psutil.Process) -> tuple[float, int, int]:
    """CPU seconds, resident bytes and threads; by the one file of Linux that has all, else as psutil does."""
    try:
        text = Path(f"/proc/{process.pid}/stat").read_bytes()
    except OSError:
        with process.oneshot():
            times = process.cpu_times()
            return times.user + times.system, process.memory_info().rss, process.num_threads()
    fields = text[text.rindex(b")") + 2 :].split()  # what stands before is the name, which may hold anything
    if int(fields[6]) & _EXITING:  # its memory is gone, whether or not somebody has waited for it
        raise psutil.NoSuchProcess(process.pid)
    return (int(fields[11]) + int(fields[12])) * _TICK_S, int(fields[21]) * _PAGE, int(fields[17])
