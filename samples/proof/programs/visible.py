"""Choose the last GPU by setting CUDA_VISIBLE_DEVICES inside the program, before torch is imported.

Facts: `uuid` and `name` of the GPU as torch sees it, `count` of visible GPUs.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path


def main() -> None:
    """Train on the chosen GPU."""
    parser = argparse.ArgumentParser()
    parser.add_argument("facts", type=Path)
    parser.add_argument("--index", required=True)
    options = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = options.index
    import torch

    model = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(256, 1024, device="cuda")
    for _ in range(30):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    properties = torch.cuda.get_device_properties(0)
    uuid = str(getattr(properties, "uuid", ""))
    facts = {"uuid": uuid, "name": properties.name, "count": torch.cuda.device_count()}
    options.facts.write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
