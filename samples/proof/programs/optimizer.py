"""Capture whole training steps, with the step of the optimizer, as a CUDA graph, and mark no steps.

tracekit follows the optimizer, so it is called inside the capture, before its window begins. Each step
replays the graph and trains once more without it.
Facts: `replays` per step.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

STEPS = 30


def main() -> None:
    """Train, capture and replay."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=True)
    batch = torch.randn(64, 256, device="cuda")

    def train() -> None:
        optimizer.zero_grad(set_to_none=False)
        model(batch).square().mean().backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            train()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        train()
    for _ in range(STEPS):
        graph.replay()
        train()
    torch.cuda.synchronize()
    Path(sys.argv[1]).write_text(json.dumps({"replays": 1}))


if __name__ == "__main__":
    main()
