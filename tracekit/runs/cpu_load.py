"""Whether other programs, or limits, kept a program from the CPU around its timed steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tracekit.runs.meta import CpuLoad

MIN_WAIT = 0.05
"""Share of its ready time for which the thread of the steps waited, from which step times are unreliable."""
MIN_OTHERS = 0.05
"""Share of the cores that other programs took, from which a wait is due to them."""
MAX_BUSY = 0.95
"""Share of the cores that were busy, from which any other program slows down the workers of this one."""
UNRELIABLE = "step times are unreliable"


@dataclass(frozen=True)
class Contention:
    """What kept a program from the CPU.

    Attributes:
        share: Share of the CPU that others took, or of the time for which the program was held.
        message: What took it, and what follows.
        is_external: Whether it is due to anything but the program's own threads.
    """

    share: float
    message: str
    is_external: bool = True


def find_contention(loads: Iterable[CpuLoad]) -> Contention | None:
    """Return the largest contention of the ranks of a run, that of others first; None if there was none.

    Example:
        >>> load = CpuLoad(rank=0, cores=2, wall_ns=100, cpu_ns=60, step_thread_cpu_ns=60,
        ...                step_thread_wait_ns=40, program_ns=60, others_ns=130)
        >>> find_contention([load]).message
        'other programs took 65% of the CPU: step times are unreliable (the steps waited 40% of their time)'
    """
    found = [contention for load in loads for contention in _judge(load)]
    return max(found, key=lambda contention: (contention.is_external, contention.share), default=None)


def wait_share(load: CpuLoad) -> float | None:
    """Return how much of the time in which it could run the thread of the steps waited for a core."""
    waited, ran = load.step_thread_wait_ns, load.step_thread_cpu_ns
    return None if waited is None or ran is None else waited / max(waited + ran, 1)


def others_share(load: CpuLoad) -> float | None:
    """Return the share of the cores' time that other programs took; None if unknown."""
    return None if load.others_ns is None else min(load.others_ns / _capacity_ns(load), 1.0)


def _capacity_ns(load: CpuLoad) -> int:
    return max(load.wall_ns * load.cores, 1)


def _judge(load: CpuLoad) -> list[Contention]:
    wait, others = wait_share(load), others_share(load)
    stolen = (load.steal_ns or 0) / _capacity_ns(load)
    held = (load.throttled_ns or 0) / max(load.wall_ns, 1)
    waited = f" (the steps waited {wait:.0%} of their time)" if wait is not None and wait >= MIN_WAIT else ""
    found = []
    if stolen >= MIN_WAIT:
        message = f"the host of this virtual machine took {stolen:.0%} of the CPU: {UNRELIABLE}{waited}"
        found.append(Contention(stolen, message))
    if held >= MIN_WAIT:
        message = f"the limit of the control group held the program for {held:.0%} of the time: {UNRELIABLE}"
        found.append(Contention(held, message))
    busy = (others or 0) + (load.program_ns or 0) / _capacity_ns(load) + stolen
    if others is not None and others >= MIN_OTHERS and (waited or busy >= MAX_BUSY):
        message = f"other programs took {others:.0%} of the CPU: {UNRELIABLE}{waited}"
        found.append(Contention(others, message))
    elif wait is not None and waited and not found:
        cores = f"{load.cores} core{'s' * (load.cores != 1)}"
        message = (
            f"the steps waited {wait:.0%} of their time for a core: the program has more threads than {cores}"
        )
        found.append(Contention(wait, message, is_external=others is None))
    return found


def describe_load(loads: Iterable[CpuLoad]) -> str:
    """Return what is known of the use of the CPU where nothing kept the program from it."""
    known = list(loads)
    others = [share for load in known if (share := others_share(load)) is not None]
    waits = [share for load in known if (share := wait_share(load)) is not None]
    parts = []
    if others:
        parts.append(f"other programs took {max(others):.0%} of the CPU")
    if waits:
        parts.append(f"the steps waited {max(waits):.1%} of their time for a core")
    return ", ".join(parts) or "unknown: the system does not tell who used the CPU"
