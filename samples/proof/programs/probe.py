"""Print what torch can use here as JSON: whether a GPU works and why not, the GPUs, and torch's build."""

from __future__ import annotations

import json
import sys

import torch


def main() -> None:
    """Try the GPU and print."""
    available, reason = torch.cuda.is_available(), ""
    try:
        torch.zeros(1, device="cuda")
    except Exception as error:  # builds without CUDA, drivers and devices fail in many ways
        available, reason = False, (str(error).splitlines() or [type(error).__name__])[0]
    count = torch.cuda.device_count() if available else 0
    found = {
        "available": available,
        "reason": reason,
        "names": [str(torch.cuda.get_device_properties(index).name) for index in range(count)],
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "config": torch.__config__.show(),
    }
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main()
