"""Record a workload with a batch that cannot fit into the memory of the device.

Arguments: options of `tracekit collect`; the batch size is added.
"""

from __future__ import annotations

import sys

import torch

from tracekit.cli.main import main as tracekit_main

BYTES_OF_A_SAMPLE = 40_000_000
"""At most two thirds of what training VGG-16 keeps for an image of 224 x 224."""
NOT_APPLICABLE = 77


def main() -> None:
    """Run `tracekit collect`, which must fail."""
    properties = torch.cuda.get_device_properties(0)
    if getattr(properties, "is_integrated", 0):
        sys.exit(_skip("the GPU shares the memory of the host, which must not run out"))
    batch = properties.total_memory // BYTES_OF_A_SAMPLE
    workload = ("--workload", "vgg16", "--size", "gpu", "--batch-size", str(batch), "--steps", "1")
    tracekit_main(["collect", *workload, *sys.argv[1:]])


def _skip(reason: str) -> int:
    sys.stderr.write(f"{reason}\n")
    return NOT_APPLICABLE


if __name__ == "__main__":
    main()
