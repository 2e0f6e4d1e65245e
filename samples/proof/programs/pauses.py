"""Busy the device for known numbers of cycles, with a known pause between.

Each step spins for `cycles`, waits for the device, sleeps on the host, and spins for twice the cycles.
Facts: `cycles`, `event_ns` of one spin of `cycles` by CUDA events without a profiler, and `pause_ns` of each
step as the host measured it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

import tracekit

PAUSE_S = 0.02
STEPS = 20


def main() -> None:
    """Spin and pause."""
    parser = argparse.ArgumentParser()
    parser.add_argument("facts", type=Path)
    parser.add_argument("--cycles", type=int, default=20_000_000)
    options = parser.parse_args()
    event_ns = _calibrated(options.cycles)
    pauses = []
    for _ in range(STEPS):
        torch.cuda._sleep(options.cycles)
        torch.cuda.synchronize()
        began = time.perf_counter_ns()
        time.sleep(PAUSE_S)
        pauses.append(time.perf_counter_ns() - began)
        torch.cuda._sleep(2 * options.cycles)
        torch.cuda.synchronize()
        tracekit.step()
    facts = {"cycles": options.cycles, "event_ns": event_ns, "pause_ns": pauses}
    options.facts.write_text(json.dumps(facts))


def _calibrated(cycles: int) -> int:
    """Return the median time of a spin by CUDA events, ns, after the clocks have ramped up."""
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        torch.cuda._sleep(cycles)
        torch.cuda.synchronize()
    times = []
    for _ in range(9):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        torch.cuda._sleep(cycles)
        end.record()
        torch.cuda.synchronize()
        times.append(round(start.elapsed_time(end) * 1e6))
    median: int = statistics.median_low(times)
    return median


if __name__ == "__main__":
    main()
