"""Use of the CPU around timed steps: what the program waited for, and what other programs took.

Times come from the scheduler and the control groups of Linux; elsewhere all are unknown. Imports nothing of
tracekit, as the other modules of the agent.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
MIN_CORE_TIME_NS = 20 * _TICK_NS
"""Time from which those of the cores, which are counted in ticks, are exact to 5%."""
MAX_REST = 2.0
"""Time from the first step after the window to the end of the program, over that of its timed steps."""


def describe_cpus() -> dict[str, Any]:
    """Return the cores that the machine has and this process may use, and their governor, where known."""
    values: dict[str, Any] = {"cores": os.cpu_count()}
    with suppress(AttributeError, OSError):
        values["affinity"] = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):
        values["cgroup_limit"] = read_cgroup_limit()
    with suppress(OSError):
        values["governor"] = _GOVERNOR.read_text().strip()
    return {name: value for name, value in values.items() if value is not None}


def control_groups(
    root: Path = CGROUPS, process: Path = PROC / "self/cgroup", controller: str = "cpu"
) -> Iterator[Path]:
    """Return the folders of the control groups of this process that limit it, innermost first.

    Args:
        root: Where the control groups are mounted.
        process: Names the groups of the process, one a line: number, controllers of version 1, path.
        controller: What they limit: `cpu` or `memory`.
    """
    for line in process.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        # in a container the path may be that of the host, and the group itself is mounted as the root
        mount = root / controller if controllers else root
        group = mount / path.strip("/")
        for folder in [group, *group.parents]:
            yield folder
            if folder == mount:
                break


def read_cgroup_limit(root: Path = CGROUPS, process: Path = PROC / "self/cgroup") -> float | None:
    """Return the processors that this process may use at a time by its control groups; None if unlimited."""
    return min((limit for group in control_groups(root, process) for limit in _quota(group)), default=None)


def _quota(group: Path) -> list[float]:
    """Return the limit of a control group, by the files of version 2 or else 1; empty if it has none."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (group / "cpu.max").read_text().split()
        return [] if quota == "max" else [int(quota) / int(period)]
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return [int(quota) / int(period)] if int(quota) > 0 else []
    return []


def _throttled_ns() -> int | None:
    """Return for how long the control groups of this process have been throttled; None if unknown."""
    times = []
    with suppress(OSError, ValueError):
        for group in control_groups():
            with suppress(OSError):
                text = (group / "cpu.stat").read_text()
                values = dict(line.split() for line in text.splitlines())
                if "throttled_usec" in values:
                    times.append(1000 * int(values["throttled_usec"]))
                elif "throttled_time" in values:
                    times.append(int(values["throttled_time"]))
    return max(times, default=None)


@dataclass(frozen=True)
class _Reading:
    """Counters at one time, ns; None where they cannot be read.

    Attributes:
        threads: Time on a core and time of waiting for one, of each thread of the process.
        switches: Involuntary context switches of the thread of the steps.
        processes: CPU time of each other process of the program.
        ended: CPU time of the ended children of each process of the program, and of the children of these.
        busy_ns: Time in which the usable cores ran anything.
        steal_ns: Time that the host of a virtual machine took from them.
    """

    wall_ns: int
    cpu_ns: int
    threads: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    switches: int | None = None
    processes: Mapping[int, int] = field(default_factory=dict)
    ended: Mapping[int, int] = field(default_factory=dict)
    busy_ns: int | None = None
    steal_ns: int | None = None
    throttled_ns: int | None = None


def _read(tid: int, root: int) -> _Reading:
    busy_ns, steal_ns = read_cores()
    processes, ended = _read_processes({root, os.getpid()})
    return _Reading(
        wall_ns=time.perf_counter_ns(),
        cpu_ns=time.process_time_ns(),
        threads=_read_threads(),
        switches=_read_switches(tid),
        processes=processes,
        ended=ended,
        busy_ns=busy_ns,
        steal_ns=steal_ns,
        throttled_ns=_throttled_ns(),
    )


def _read_threads() -> dict[int, tuple[int, int]]:
    threads = {}
    for task in (PROC / "self/task").glob("*"):
        with suppress(OSError, ValueError):  # the thread has ended
            ran, waited, *_ = (task / "schedstat").read_text().split()
            threads[int(task.name)] = int(ran), int(waited)
    return threads


def _read_switches(tid: int) -> int | None:
    with suppress(OSError, ValueError, StopIteration):
        lines = (PROC / f"self/task/{tid}/status").read_text(errors="replace").splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("nonvoluntary_ctxt_switches:")))
    return None


def _read_processes(roots: set[int]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the CPU times of the processes below those in `roots` and of these, and of their ended children.

    The time of this process itself, which is known exactly, is left out.
    """
    parents, times, ended, names = {}, {}, {}, list[str]()
    with suppress(OSError):  # there is no /proc, or it is not permitted
        names = os.listdir(PROC)  # noqa: PTH208 (paths would take most of the time)
    for name in filter(str.isdigit, names):
        with suppress(OSError, ValueError, IndexError), open(f"{PROC}/{name}/stat", "rb") as stat:  # noqa: PTH123
            # the name in parentheses may contain anything
            fields = stat.read().rpartition(b")")[2].split(None, 16)
            pid, (own, of_children) = int(name), (fields[11:13], fields[13:15])
            ended[pid] = sum(map(int, of_children)) * _TICK_NS
            parents[pid], times[pid] = int(fields[1]), sum(map(int, own)) * _TICK_NS
    known = roots & parents.keys()
    while more := {pid for pid, parent in parents.items() if parent in known} - known:
        known |= more
    return {pid: times[pid] for pid in known - {os.getpid()}}, {pid: ended[pid] for pid in known}


def read_cores() -> tuple[int | None, int | None]:
    """Return for how long the usable cores were busy, and stolen by the host of a virtual machine."""
    try:
        names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = [line.split() for line in (PROC / "stat").read_text().splitlines() if line.startswith("cpu")]
        rows = [list(map(int, words[1:9])) for words in lines if words[0] in names]
    except (AttributeError, OSError, ValueError):
        return None, None
    # user, nice, system, idle, iowait, irq, softirq, steal
    busy = sum(sum(row[:3]) + sum(row[5:7]) for row in rows)
    return busy * _TICK_NS, sum(row[7] for row in rows) * _TICK_NS


class CpuLoad:
    """Sums the use of the CPU over the times between `begin` and `end`, both called around timed steps.

    Args:
        root: Process of which all processes of the program are descendants; by default this one.
    """

    def __init__(self, root: int | None = None) -> None:
        self._root = root or os.getpid()
        self._tid = 0
        self._before: _Reading | None = None
        self._last_step_ns = 0
        self._sums: dict[str, int | None] = {}

    def begin(self) -> None:
        """Read the counters before a step that is timed; the calling thread is that of the steps."""
        self._tid = threading.get_native_id()
        self._before = _read(self._tid, self._root)
        self._last_step_ns = self._before.wall_ns

    def step_ended(self) -> None:
        """Note the time of the end of a timed step."""
        self._last_step_ns = time.perf_counter_ns()

    def end(self) -> None:
        """Add what was used since `begin`, unless most of that time was after the last timed step."""
        before, self._before = self._before, None
        if before is None:
            return
        stepped_ns = self._last_step_ns - before.wall_ns
        after = _read(self._tid, self._root)
        if stepped_ns <= 0 or after.wall_ns - before.wall_ns > MAX_REST * stepped_ns:
            return
        for name, value in _difference(before, after, self._tid).items():
            former = self._sums.get(name, 0)
            self._sums[name] = None if value is None or former is None else former + value

    def facts(self) -> dict[str, int | None]:
        """Return the sums, ns, in the fields of `tracekit.runs.meta.CpuLoad`; empty if nothing was read."""
        if not self._sums:
            return {}
        sums = {**self._sums}
        if (sums["wall_ns"] or 0) < MIN_CORE_TIME_NS:
            sums |= {"others_ns": None, "steal_ns": None}
        with suppress(AttributeError, OSError):
            return {"cores": len(os.sched_getaffinity(0)), **sums}
        return {"cores": os.cpu_count() or 1, **sums}


def _difference(before: _Reading, after: _Reading, tid: int) -> dict[str, int | None]:
    zero = (0, 0)
    used = {
        thread: (ran - before.threads.get(thread, zero)[0], waited - before.threads.get(thread, zero)[1])
        for thread, (ran, waited) in after.threads.items()
    }
    cpu_ns = after.cpu_ns - before.cpu_ns
    others = sum(max(0, spent - before.processes.get(pid, 0)) for pid, spent in after.processes.items())
    # a process that ended since has its time, also from before, among that of its parent's ended children
    gone = before.processes.keys() - after.processes.keys()
    former_ns = sum(before.processes[pid] + before.ended[pid] for pid in gone)
    ended_ns = sum(spent - before.ended.get(pid, 0) for pid, spent in after.ended.items())
    others += max(0, ended_ns - former_ns)
    busy_ns = _minus(after.busy_ns, before.busy_ns)
    return {
        "wall_ns": after.wall_ns - before.wall_ns,
        "cpu_ns": cpu_ns,
        "step_thread_cpu_ns": used[tid][0] if tid in used else None,
        "step_thread_wait_ns": used[tid][1] if tid in used else None,
        "thread_wait_ns": sum(waited for _, waited in used.values()) if used else None,
        "switches": _minus(after.switches, before.switches),
        "program_ns": cpu_ns + others,
        "others_ns": None if busy_ns is None else max(0, busy_ns - cpu_ns - others),
        "steal_ns": _minus(after.steal_ns, before.steal_ns),
        "throttled_ns": _minus(after.throttled_ns, before.throttled_ns),
    }


def _minus(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before
