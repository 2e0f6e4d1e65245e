"""Measure the overhead of sampling on the sampled program.

    python -m benchmarks.sampling [--workload mnist_cnn] [--device cpu] [--blocks 10] [--block-s 4]
    python -m benchmarks.sampling --agent profiled --step-ms 5 [--blocks 20] [--block-s 1]

Blocks of steps run with and without sampling, in pairs of random order, in one process. Printed are the CPU
time of the samples, also as a share of the process's, and the median over pairs of the ratio of mean step
times, by wall clock and by CPU time, with 95% intervals (order statistics of the pairs). The ratios include
every effect of sampling, but also disturbances by other programs; the share is more stable. Exits with 1 if
the share, or the lower bound of an interval, is above 2%.

With `--agent`, what the agent of `tracekit collect` adds in a program is measured instead, on steps of
`--step-ms`, half of them in ops and half in Python: `sampled` are steps that are not profiled, `profiled`
ones under the profiler on both sides, and `unsampled` the latter with `--no-host-samples`.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from tracekit.collectors.sampling import INTERVAL_S, SAMPLERS, sample_counters

from tracekit import registry
from tracekit.recording.agent.host_watch import HostWatch
from tracekit.recording.collect import decide
from tracekit.recording.collector import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT = 1.02


class Timed:
    """A sampler whose readings are timed, on the CPU."""

    taken_s: ClassVar[list[float]] = []

    def __init__(self, sampler: Any) -> None:
        self._sampler, self.name = sampler, sampler.name
        self.close, self.diagnostics = sampler.close, sampler.diagnostics

    @classmethod
    def making(cls, make: Callable[[int], Any]) -> Callable[[int], Timed | None]:
        """What makes such a sampler of what `make` makes."""

        def made(pid: int) -> Timed | None:
            sampler = make(pid)
            return cls(sampler) if sampler else None

        return made

    def read(self) -> Any:
        """Read, and keep how long it took."""
        start = time.thread_time()
        samples = self._sampler.read()
        self.taken_s.append(time.thread_time() - start)
        return samples


def main() -> int:
    """Run the benchmark; returns the exit code."""
    options = _options()
    if options.agent:
        return _measure_agent(options)
    step = _step(options.workload, options.device)
    cpu = time.process_time()
    pairs = np.array([_pair(step, options) for _ in range(options.blocks)])
    share = 2 * sum(Timed.taken_s) / (time.process_time() - cpu)  # one block of two is sampled
    print(
        f"sampling every {options.interval_s * 1e3:g} ms: {1e6 * np.mean(Timed.taken_s):.0f} µs of CPU a "
        f"reading of a sampler, {100 * share:.2f}% of the process; step time over that without, "
        f"{len(pairs)} pairs:"
    )
    lows = [
        _print_ratio(clock, np.sort(ratios)) for clock, ratios in zip(("wall", "CPU"), pairs.T, strict=True)
    ]
    return int(max(*lows, 1 + share) > LIMIT)


def _print_ratio(clock: str, ratios: Any) -> float:
    low, high = _interval(len(ratios))
    print(f"  by the {clock} clock {np.median(ratios):.4f} ({ratios[low]:.4f} to {ratios[high]:.4f})")
    return float(ratios[low])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workload", default="mnist_cnn")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--block-s", type=float, default=4)
    parser.add_argument("--interval-s", type=float, default=INTERVAL_S)
    parser.add_argument("--agent", choices=["sampled", "profiled", "unsampled"])
    parser.add_argument("--step-ms", type=float, default=5)
    return parser.parse_args()


def _step(name: str, device: str) -> Callable[[], None]:
    import torch

    torch.set_num_threads(1)
    workload: Any = registry.load(registry.WORKLOADS, name)
    program = workload.build(decide(Request(workload=name, device=device)).options(device=device))

    def step() -> None:
        program.step()
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(5):
        step()
    return step


def _measure_agent(options: argparse.Namespace) -> int:
    """Measure what the agent adds to blocks of steps; returns the exit code."""
    step = _half_python(options.step_ms / 1e3)
    pairs = []
    for _ in range(options.blocks):
        order = [True, False]
        random.shuffle(order)
        taken = {}
        for is_watched in order:
            with _watched(options.agent, is_watched=is_watched) as begin:
                taken[is_watched] = _mean_s(partial(_begin_and_run, begin, step), options.block_s)
        pairs.append([one / other for one, other in zip(taken[True], taken[False], strict=True)])
    steps = f"steps of {1e3 * taken[False][0]:.1f} ms"
    print(f"{options.agent} {steps} with the agent over those without, {len(pairs)} pairs:")
    columns = zip(("wall", "CPU"), np.array(pairs).T, strict=True)
    lows = [_print_ratio(clock, np.sort(ratios)) for clock, ratios in columns]
    threads = [thread.name for thread in threading.enumerate()]
    print(f"afterwards: threads {threads}, {len(gc.callbacks)} callbacks of the collector")
    return int(max(lows) > LIMIT)


def _begin_and_run(begin: Callable[[], object], step: Callable[[], None]) -> None:
    begin()
    step()


@contextmanager
def _watched(how: str, *, is_watched: bool) -> Iterator[Callable[[], object]]:
    """Watch a block of steps as the agent does; yields what to call at the begin of each step."""
    import torch

    watch = HostWatch(torch, samples=how != "unsampled")
    profiler = torch.profiler.profile(record_shapes=True, profile_memory=True) if how != "sampled" else None
    if profiler:
        profiler.start()
    if is_watched:
        watch.start(profiled=how != "sampled")
    try:
        yield watch.read_thread_times if is_watched and profiler else lambda: None
    finally:
        watch.stop()
        if profiler:
            profiler.stop()


def _half_python(seconds: float) -> Callable[[], None]:
    """Return a step that is half in ops and half in Python, of about so many seconds."""
    import torch

    torch.set_num_threads(1)
    values, output = torch.randn(128, 128), torch.empty(128, 128)
    counts = {"op": 16, "number": 10_000}
    parts: dict[str, Callable[[], object]] = {
        "op": lambda: [torch.mm(values, values, out=output) for _ in range(counts["op"])],
        "number": lambda: sum(number * number for number in range(counts["number"])),
    }
    for name, run in parts.items():
        run()
        counts[name] = max(1, int(counts[name] * seconds / 2 / min(_seconds(run) for _ in range(20))))

    def step() -> None:
        for run in parts.values():
            run()

    return step


def _seconds(run: Callable[[], object]) -> float:
    start = time.thread_time()  # on a busy machine the thread waits for a core
    run()
    return time.thread_time() - start


def _pair(step: Callable[[], None], options: argparse.Namespace) -> list[float]:
    order = [True, False]
    random.shuffle(order)
    taken = {sampled: _block(step, options, sampled=sampled) for sampled in order}
    return [one / other for one, other in zip(taken[True], taken[False], strict=True)]


def _block(step: Callable[[], None], options: argparse.Namespace, *, sampled: bool) -> tuple[float, float]:
    if not sampled:
        return _mean_s(step, options.block_s)
    with sample_counters(interval_s=options.interval_s, samplers=[Timed.making(one) for one in SAMPLERS]):
        return _mean_s(step, options.block_s)


def _mean_s(step: Callable[[], None], seconds: float) -> tuple[float, float]:
    count, start, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        step()
        count += 1
    return (time.perf_counter() - start) / count, (time.process_time() - cpu) / count


def _interval(pairs: int) -> tuple[int, int]:
    """Places of the order statistics that bound the median at 95%."""
    reach = 1.96 * pairs**0.5 / 2
    return max(0, int(pairs / 2 - reach)), min(pairs - 1, int(pairs / 2 + reach))


if __name__ == "__main__":
    sys.exit(main())
