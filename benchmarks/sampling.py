"""What sampling costs the program that is sampled.

    python -m benchmarks.sampling [--workload mnist_cnn] [--device cpu] [--blocks 40] [--block-s 0.5]

Blocks of steps run with and without sampling in turns, in pairs of random order, in one process. Told is the
median over pairs of the ratio of their mean step times, by the wall clock and by the CPU time of the whole
process (which other programs disturb less), each with its 95 % interval (order statistics of the pairs), and
what a reading takes. Exits with 1 when even the lower end of an interval is above the limit.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from tracekit.collectors.nvml import NvmlSampler
from tracekit.collectors.process import ProcessSampler
from tracekit.collectors.sampling import INTERVAL_S, sampling

from tracekit import registry
from tracekit.collecting import Request, decide

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 1.02
READINGS = 200


def main() -> int:
    """Run the benchmark; returns the exit code."""
    options = _options()
    step = _step(options.workload, options.device)
    for make in (ProcessSampler.of, NvmlSampler.of):
        _tell_reading(make)
    pairs = np.array([_pair(step, options) for _ in range(options.blocks)])
    print(
        f"sampling every {options.interval_s * 1e3:g} ms; step time with it over without, {len(pairs)} pairs:"
    )
    lows = [_tell(clock, np.sort(ratios)) for clock, ratios in zip(("wall", "CPU"), pairs.T, strict=True)]
    return int(max(lows) > LIMIT)


def _tell(clock: str, ratios: Any) -> float:
    low, high = _interval(len(ratios))
    print(f"  by the {clock} clock {np.median(ratios):.4f} ({ratios[low]:.4f} to {ratios[high]:.4f})")
    return float(ratios[low])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workload", default="mnist_cnn")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--block-s", type=float, default=0.5)
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
    with sampling(interval_s=options.interval_s):
        return _mean_s(step, options.block_s)


def _mean_s(step: Callable[[], None], seconds: float) -> tuple[float, float]:
    count, start, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        step()
        count += 1
    return (time.perf_counter() - start) / count, (time.process_time() - cpu) / count


def _tell_reading(make: Callable[[int], Any]) -> None:
    sampler = make(os.getpid())
    if sampler is None:
        return
    sampler.read()
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(READINGS):
        sampler.read()
    wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
    sampler.close()
    each = f"{1e6 * cpu / READINGS:.0f} µs of CPU, {1e6 * wall / READINGS:.0f} µs in all"
    print(f"a reading of {sampler.name}: {each}")


def _interval(pairs: int) -> tuple[int, int]:
    """Places of the order statistics that bound the median at 95 %."""
    reach = 1.96 * pairs**0.5 / 2
    return max(0, int(pairs / 2 - reach)), min(pairs - 1, int(pairs / 2 + reach))


if __name__ == "__main__":
    sys.exit(main())
