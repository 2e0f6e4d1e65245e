"""Multiply large square matrices at one precision.

Facts: `size`, `precision`, `products` per step.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

import tracekit

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
PRODUCTS = 4
NOT_APPLICABLE = 77


def main() -> None:
    """Multiply."""
    parser = argparse.ArgumentParser()
    parser.add_argument("facts", type=Path)
    parser.add_argument("--precision", choices=DTYPES, required=True)
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    if reason := _unsupported(options.precision):
        sys.stderr.write(f"{reason}\n")
        sys.exit(NOT_APPLICABLE)
    torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"
    shape, dtype = (options.size, options.size), DTYPES[options.precision]
    one, other = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(2))
    for _ in range(options.steps):
        for _ in range(PRODUCTS):
            torch.mm(one, other)
        tracekit.step()
    torch.cuda.synchronize()
    facts = {"size": options.size, "precision": options.precision, "products": PRODUCTS}
    options.facts.write_text(json.dumps(facts))


def _unsupported(precision: str) -> str:
    """Return why the device has no such precision, empty if it has."""
    if torch.version.hip:
        return "TF32 is a precision of NVIDIA's GPUs" if precision == "tf32" else ""
    old = precision in ("tf32", "bf16") and torch.cuda.get_device_capability() < (8, 0)
    return f"the GPU is too old for {precision}" if old else ""


if __name__ == "__main__":
    main()
