"""Train with DistributedDataParallel; torchrun starts one process per rank.

With fewer GPUs than ranks, the ranks share a GPU and communicate by gloo.
Facts of rank 0: `world_size`, `backend`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

STEPS = 30


def main() -> None:
    """Train."""
    world, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    count = torch.cuda.device_count()
    backend = "nccl" if count >= world else "gloo"
    torch.cuda.set_device(local % count)
    torch.distributed.init_process_group(backend)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 8)).cuda()
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=1e-4)
    batch = torch.randn(256, 1024, device="cuda")
    for _ in range(STEPS):
        optimizer.zero_grad()
        parallel(batch).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    if torch.distributed.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps({"world_size": world, "backend": backend}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
