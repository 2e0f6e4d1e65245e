"""Train a network that keeps the device busy, and measure the wall time of its steps without a profiler.

Facts: `wall_ns` of `steps` steps between two synchronizations.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

BEFORE, TIMED = 10, 20
"""Steps that are not timed, and those that are; the recorded window begins after both."""


def main() -> None:
    """Train; all of the work is queued on one stream."""
    parser = argparse.ArgumentParser()
    parser.add_argument("facts", type=Path)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--after", type=int, default=14, help="steps behind the timed ones")
    options = parser.parse_args()
    model = torch.nn.Sequential(*(torch.nn.Linear(options.width, options.width) for _ in range(4))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batch = torch.randn(options.width, options.width, device="cuda")
    began = ended = 0
    for number in range(BEFORE + TIMED + options.after):
        if number in (BEFORE, BEFORE + TIMED):
            torch.cuda.synchronize()
            began, ended = ended, time.perf_counter_ns()
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    options.facts.write_text(json.dumps({"wall_ns": ended - began, "steps": TIMED}))


if __name__ == "__main__":
    main()
