"""Multiply large square matrices at one precision.

Facts: `size`, `precision`, `products` per step.
"""

from __future__ import annotations

import argparse
import json
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


def main() -> None:
    """Multiply."""
    parser = argparse.ArgumentParser()
    parser.add_argument("facts", type=Path)
    parser.add_argument("--precision", choices=DTYPES, required=True)
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
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


if __name__ == "__main__":
    main()
