"""Programs of users, and what they do with and without tracekit."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MAIN = "from tracekit.cli.main import main; main()"

TRAIN = """
import argparse, os, sys
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=11)
parser.add_argument("--fail-after", type=int)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--start-method", default=None)
options = parser.parse_args()
import torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(options.steps * 2, 8), torch.randn(options.steps * 2, 4))
    method = options.start_method
    loader = DataLoader(data, 2, num_workers=options.workers, multiprocessing_context=method)
    for number, (x, y) in enumerate(loader, 1):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{number} {loss.item():.4f}")
        if number == options.fail_after:
            raise ValueError("no more")

if __name__ == "__main__":
    print(__name__, sys.argv[1:], sys.path[0] == os.path.dirname(os.path.abspath(__file__)), os.getcwd())
    print("sitecustomize" in sys.path[0], [path for path in sys.path if "startup" in path])
    main()
"""


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    out: bytes
    err: str


def variables() -> dict[str, str]:
    """One thread for each process, and no profiler that reports to a daemon."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def plain(command: Sequence[str], cwd: Path, stdin: bytes = b"") -> Ended:
    """Run a command by itself."""
    done = subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, env=variables(), timeout=200)
    return Ended(done.returncode, done.stdout, done.stderr.decode())


def collecting(store: Path, command: Sequence[str], *options: str) -> list[str]:
    """The command line that records a command."""
    return [sys.executable, "-c", MAIN, "collect", "--store", str(store), *options, "--", *command]


def collected(store: Path, command: Sequence[str], cwd: Path, *options: str, stdin: bytes = b"") -> Ended:
    """Record a command."""
    return plain(collecting(store, command, *options), cwd, stdin)
