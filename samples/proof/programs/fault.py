"""Read beyond the end of a tensor on the device, which fails a device-side assertion."""

from __future__ import annotations

import torch

import tracekit


def main() -> None:
    """Work for two steps, then fail."""
    values = torch.zeros(4, device="cuda")
    for _ in range(2):
        values += 1
        tracekit.step()
    values[torch.tensor([1_000_000], device="cuda")].sum().item()


if __name__ == "__main__":
    main()
