"""Measure the overhead of sampling on the sampled program.

    python -m benchmarks.sampling [--workload mnist_cnn] [--device cpu] [--blocks 10] [--block-s 4]

Blocks of steps run with and without sampling, in pairs of random order, in one process. Printed are the CPU
time of the samples, also as a share of the process's, and the median over pairs of the ratio of mean step
times, by wall clock and by CPU time, with 95% intervals (order statistics of the pairs). The ratios include
every effect of sampling, but also disturbances by other programs; the share is more stable. Exits with 1 if
the share, or the lower bound of an interval, is above 2%.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from tracekit.collectors.sampling import INTERVAL_S, SAMPLERS, sample_counters

from tracekit import registry
from tracekit.recording.collect import decide
from tracekit.recording.collector import Request

if TYPE_CHECKING:
    from collections.abc import Callable

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
