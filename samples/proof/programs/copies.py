"""Copy a large tensor to the device and back, from pinned or pageable host memory.

Facts: `memory`, `bytes` of each copy, `copies` per step and direction.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

import tracekit


def main() -> None:
    """Copy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("facts", type=Path)
    parser.add_argument("--memory", choices=("pinned", "pageable"), required=True)
    parser.add_argument("--bytes", type=int, default=256 << 20)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    host = torch.zeros(options.bytes, dtype=torch.uint8)
    if options.memory == "pinned":
        host = host.pin_memory()
    on_device = torch.empty(options.bytes, dtype=torch.uint8, device="cuda")
    for _ in range(options.steps):
        on_device.copy_(host)
        host.copy_(on_device)
        tracekit.step()
    torch.cuda.synchronize()
    options.facts.write_text(json.dumps({"memory": options.memory, "bytes": options.bytes, "copies": 1}))


if __name__ == "__main__":
    main()
