"""Capture the forward pass of a network as a CUDA graph, and replay it in each step.

Facts: `replays` per step.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

import tracekit

STEPS = 30


def main() -> None:
    """Capture and replay."""
    layers = [torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()) for _ in range(8)]
    model = torch.nn.Sequential(*layers).cuda().eval()
    batch = torch.randn(64, 512, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad():
        with torch.cuda.stream(side):
            for _ in range(3):
                model(batch)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(batch)
    for _ in range(STEPS):
        batch.normal_()
        graph.replay()
        tracekit.step()
    torch.cuda.synchronize()
    Path(sys.argv[1]).write_text(json.dumps({"replays": 1}))


if __name__ == "__main__":
    main()
