"""Conditions of measured runs: clocks, temperature and other processes by NVML, and contention for the CPU.

Samples are rows of `counters` with source `nvml`. Those inside of the steps count where there are such, else
all; of several devices, those that worked. What was not sampled is unknown and nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.runs.meta import CpuLoad
from tracekit.runs.nvml import SOURCE, M
from tracekit.runs.run import Run
from tracekit.schema import C

SCHEDULER: Final = "scheduler"
"""Source of the counters with the times of the thread that runs the steps, as the scheduler counts them."""
STEP_THREAD_RAN: Final = "step_thread_ran_ns"
STEP_THREAD_WAITED: Final = "step_thread_waited_ns"

_MIN_DIFFERENCE_C = 10.0  # smallest difference of temperatures that is reported
REASONS = {
    0x04: "its power limit",
    0x08: "the hardware",
    0x10: "synchronization with other devices",
    0x20: "its temperature (software)",
    0x40: "its temperature (hardware)",
    0x80: "the power supply",
}
"""Bits of NVML's throttle reasons, without those of an idle device."""


@dataclass(frozen=True)
class Conditions:
    """Conditions of a run."""

    clock_mhz: float | None = None  # mean SM clock; None if not sampled
    hottest_c: float | None = None  # highest temperature; None if not sampled
    throttled: tuple[str, ...] = ()  # reasons for throttling in any sample
    # maximum number of other processes on the device in any sample; None if not sampled
    others: int | None = None
    # what kept the timed steps from the CPU; None if nothing did, or unknown
    contention: Contention | None = None


def of_run(run: Run) -> Conditions:
    """Return the conditions of a run that were sampled."""
    where = (pc.field(C.SOURCE) == SOURCE) & pc.field(C.METRIC).isin(
        [M.SM_CLOCK, M.TEMPERATURE, M.THROTTLE, M.OTHERS]
    )
    rows = run.arrow("counters", columns=[C.T_NS, C.DEVICE, C.METRIC, C.VALUE], where=where)
    contention = find_contention(run.meta.cpu_loads)
    if not len(rows):
        return Conditions(contention=contention)
    samples = _of_working_devices(run, rows.filter(pc.field(C.VALUE) >= 0))
    window = _steps(run)
    clocks, heat, bits, others = (
        _values(samples, metric, window) for metric in (M.SM_CLOCK, M.TEMPERATURE, M.THROTTLE, M.OTHERS)
    )
    clocks = clocks[clocks > 0]
    held = {int(value) for value in bits}
    return Conditions(
        float(clocks.mean()) if len(clocks) else None,
        float(heat.max()) if len(heat) else None,
        tuple(words for bit, words in REASONS.items() if any(value & bit for value in held)),
        int(others.max()) if len(others) else None,
        contention,
    )


def mean_clock(runs: Sequence[Conditions]) -> float | None:
    """Return the mean SM clock over the runs of a side; None if unknown."""
    clocks = [run.clock_mhz for run in runs if run.clock_mhz is not None]
    return sum(clocks) / len(clocks) if clocks else None


def warnings(base: Sequence[Conditions], head: Sequence[Conditions]) -> tuple[str, ...]:
    """Return warnings about conditions that may cause or hide a difference of two sides."""
    return (*_compare(base, head), *_check_side("base", base), *_check_side("head", head))


def _compare(base: Sequence[Conditions], head: Sequence[Conditions]) -> Iterator[str]:
    from tracekit.stats.samples import TOLERANCE, clocks_differ

    a, b = mean_clock(base), mean_clock(head)
    if a and b and clocks_differ(a, b):
        yield (
            f"the mean SM clock was {a:.0f} MHz in the base and {b:.0f} MHz in the head, more than "
            f"{100 * TOLERANCE:g}% apart; lock it with `nvidia-smi --lock-gpu-clocks`"
        )
    hot_a, hot_b = (
        max((run.hottest_c for run in side if run.hottest_c is not None), default=None)
        for side in (base, head)
    )
    if hot_a is not None and hot_b is not None and abs(hot_a - hot_b) >= _MIN_DIFFERENCE_C:
        yield f"the device reached {hot_a:.0f} °C in the base and {hot_b:.0f} °C in the head"


def _check_side(name: str, runs: Sequence[Conditions]) -> Iterator[str]:
    throttled = [run for run in runs if run.throttled]
    if throttled:
        by = ", ".join(dict.fromkeys(reason for run in throttled for reason in run.throttled))
        yield f"the clock was throttled by {by} in {len(throttled)} of {len(runs)} runs of the {name}"
    shared = sum(bool(run.others) for run in runs)
    if shared:
        yield f"other processes used the device in {shared} of {len(runs)} runs of the {name}"
    yield from contention_warnings(name, [run.contention for run in runs])


def contention_warnings(name: str, runs: Sequence[Contention | None]) -> Iterator[str]:
    """Return a warning about runs of a side that were kept from the CPU."""
    contended = [run for run in runs if run and run.is_external]
    if contended:
        worst = max(contended, key=lambda run: run.share)
        yield f"{worst.message}, in {len(contended)} of {len(runs)} runs of the {name}"


def _of_working_devices(run: Run, samples: pa.Table) -> pa.Table:
    if len(pc.unique(samples[C.DEVICE].drop_null())) < 2:
        return samples
    worked = pc.unique(run.arrow("device_intervals", columns=[C.DEVICE])[C.DEVICE])
    working = samples.filter(pc.field(C.DEVICE).isin(worked) | pc.field(C.DEVICE).is_null())
    return working if len(working) else samples


def _steps(run: Run) -> tuple[int, int] | None:
    """Return the time from the start of the first step to the end of the last."""
    steps = run.arrow("steps", columns=[C.START_NS, C.DUR_NS])
    if not len(steps):
        return None
    ends = pc.add(steps[C.START_NS], steps[C.DUR_NS])
    return pc.min(steps[C.START_NS]).as_py(), pc.max(ends).as_py()


def _values(samples: pa.Table, metric: str, window: tuple[int, int] | None) -> npt.NDArray[np.float64]:
    """Return the values of a metric during the steps, or all if there are none."""
    of_metric = samples.filter(pc.field(C.METRIC) == metric)
    times, values = of_metric[C.T_NS].to_numpy(), of_metric[C.VALUE].to_numpy()
    inside = (times >= window[0]) & (times <= window[1]) if window else times < times
    return np.asarray(values[inside] if inside.any() else values, float)


MIN_WAIT = 0.05
"""Share of its ready time for which the thread of the steps waited, from which step times are unreliable."""
MIN_OTHERS = 0.05
"""Share of the cores that other programs took, from which a wait is due to them."""
MAX_BUSY = 0.95
"""Share of the cores that were busy, from which any other program slows down the workers of this one."""
UNRELIABLE = "step times are unreliable"


@dataclass(frozen=True)
class Contention:
    """What kept a program from the CPU."""

    share: float  # share of the CPU that others took, or of the time for which the program was held
    message: str  # what took it, and what follows
    is_external: bool = True  # whether it is due to anything but the program's own threads


def find_contention(loads: Iterable[CpuLoad]) -> Contention | None:
    """Return the largest contention of the ranks of a run, that of others first; None if there was none.

    Example:
        >>> load = CpuLoad(rank=0, cores=2, wall_ns=100, cpu_ns=60, step_thread_cpu_ns=60,
        ...                step_thread_wait_ns=40, program_ns=60, others_ns=130)
        >>> find_contention([load]).message
        'other programs took 65% of the CPU: step times are unreliable (the steps waited 40% of their time)'
    """
    contentions = [contention for load in loads for contention in _judge(load)]
    return max(contentions, key=lambda contention: (contention.is_external, contention.share), default=None)


def is_disturbed(loads: Iterable[CpuLoad]) -> bool:
    """Tell whether anything but the program's own threads kept it from the CPU."""
    contention = find_contention(loads)
    return contention is not None and contention.is_external


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
    contentions = []
    if stolen >= MIN_WAIT:
        message = f"the host of this virtual machine took {stolen:.0%} of the CPU: {UNRELIABLE}{waited}"
        contentions.append(Contention(stolen, message))
    if held >= MIN_WAIT:
        message = f"the limit of the control group held the program for {held:.0%} of the time: {UNRELIABLE}"
        contentions.append(Contention(held, message))
    busy = (others or 0) + (load.program_ns or 0) / _capacity_ns(load) + stolen
    if others is not None and others >= MIN_OTHERS and (waited or busy >= MAX_BUSY):
        message = f"other programs took {others:.0%} of the CPU: {UNRELIABLE}{waited}"
        contentions.append(Contention(others, message))
    elif wait is not None and waited and not contentions:
        cores = f"{load.cores} core{'s' * (load.cores != 1)}"
        cause = UNRELIABLE if others is None else f"the program has more threads than {cores}"
        message = f"the steps waited {wait:.0%} of their time for a core: {cause}"
        contentions.append(Contention(wait, message, is_external=others is None))
    return contentions


def find_free_share(loads: Iterable[CpuLoad]) -> float:
    """Return the largest share of its time that a program could save by more work on its cores at a time.

    Its CPU time stays, and no core is free while the thread of the steps waits for one that another program
    has. Of several ranks the least share counts; it is 1 where it is unknown.

    Example:
        >>> load = CpuLoad(rank=0, cores=2, wall_ns=100, cpu_ns=150, program_ns=150)
        >>> find_free_share([load]), find_free_share([])
        (0.25, 1.0)
    """
    shares = [
        1 - load.program_ns / _capacity_ns(load) - _waited_for_others(load)
        for load in loads
        if load.program_ns is not None
    ]
    return max(0.0, min(shares, default=1.0))


def _waited_for_others(load: CpuLoad) -> float:
    waited = (load.step_thread_wait_ns or 0) / max(load.wall_ns, 1)
    others = others_share(load)
    return waited if others is None else min(waited, others)


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
