"""Try changes on built-in workloads: what findings predict, what was measured, and what the agent costs.

    python -m benchmarks.tried_workloads [--only NAME] [--scale 1]
    python -m benchmarks.tried_workloads --overhead 20

Prints a row per change. Two workloads run in a small program around them: `zero_grad` fills the gradients of
DLRM parameter by parameter, as a program of TorchBench did, and `loader` reads the images of a CNN in the
process of the steps. With `--overhead N`, N runs of a program that times its own steps are compared with N in
which the agent follows these steps and makes no change; the two of a pair take turns on one core. Use an idle
machine: 12 minutes, and 3 minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.planted_changes import TURNS, take_turns, time_pair
from tracekit.runs.metrics import STEP_TIME, metric
from tracekit.stats.compare import compare

ZERO_GRAD = """
from dataclasses import replace
import torch
from tracekit import registry
from tracekit.workloads.base import Options
torch.set_num_threads(1)
workload = registry.load(registry.WORKLOADS, "dlrm")
program = workload.build(Options(workload="dlrm", mode="train", device="cpu", batch_size=8, resolution=1))
program = replace(program, zero_grad=lambda optimizer: optimizer.zero_grad(set_to_none=False))
for _ in range(200):
    program.step()
"""
LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset
from tracekit import registry
from tracekit.workloads.base import Options
torch.set_num_threads(1)
class Images(Dataset):
    def __len__(self): return 60 * 16
    def __getitem__(self, row):
        image = torch.rand(1, 112, 112)
        for _ in range(4):  # as decoding and augmentation do
            image = torch.nn.functional.avg_pool2d(image, 3, stride=1, padding=1)
        return image[:, ::4, ::4].contiguous()
if __name__ == "__main__":
    workload = registry.load(registry.WORKLOADS, "mnist_cnn")
    options = Options(workload="mnist_cnn", mode="train", device="cpu", batch_size=16, resolution=28)
    program = workload.build(options)
    labels = torch.zeros(16, dtype=torch.int64)
    for images in DataLoader(Images(), batch_size=16):
        loss = torch.nn.functional.cross_entropy(program.model(images), labels)
        program.optimizer.zero_grad()
        loss.backward()
        program.optimizer.step()
"""
TIMED = """
import time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(12)])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = torch.randn(64, 256)
for step in range(400):
    if step == 20:
        began = time.perf_counter()
    if step == 380:
        print("step:", (time.perf_counter() - began) / 360)
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LATE = ("--start-step", "390", "--steps", "1", "--timed-steps", "0", "--light")
"""Options that profile a step after those that the program times."""


@dataclass(frozen=True)
class Case:
    """A workload, the changes to try, and the time for them in s.

    Attributes:
        command: Options of `tracekit collect`; of a program, its source.
        start_step: Steps of a program that are timed.
    """

    name: str
    command: str
    changes: tuple[str, ...]
    budget_s: int
    start_step: int = 0


CASES = (
    Case("resnet18", "--workload resnet18 --mode infer --steps 10", ("channels_last", "bfloat16"), 100),
    Case("mnist_cnn", "--workload mnist_cnn --threads 1 --steps 30", ("foreach", "fused"), 100),
    Case("mnist_cnn_infer", "--workload mnist_cnn --mode infer --steps 60", ("compile",), 150),
    Case("bert", "--workload bert --threads 1 --steps 5", ("all_cores", "bfloat16"), 160),
    Case("zero_grad", ZERO_GRAD, ("zero_grad_to_none",), 90, start_step=150),
    Case("loader", LOADER, ("num_workers",), 100, start_step=30),
)


def _environment(folder: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "MKL_"))}
    return {**kept, "TRACEKIT_STORE": f"{folder}/store"}


def try_case(case: Case, scale: float) -> dict[str, Any]:
    """Try the changes of a case; returns the report of `tracekit try`."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["tracekit", "collect", *case.command.split(), "--size", "test"]
        if not case.command.startswith("--"):
            (Path(folder) / "train.py").write_text(case.command)
            window = ["--start-step", str(case.start_step), "--timed-steps", "0", "--stop-after-profile"]
            command = ["tracekit", "collect", *window, "--", sys.executable, "train.py"]
        names = [word for name in case.changes for word in ("--change", name)]
        budget = ["--budget", f"{round(scale * case.budget_s)}s", "--max-repeat", "10", "--format", "json"]
        words = [sys.executable, "-m", "tracekit", "try", *names, *budget, "--", *command]
        ended = subprocess.run(
            words, cwd=folder, env=_environment(folder), capture_output=True, text=True, check=False
        )
    if ended.returncode:
        return {"outcomes": [], "seconds": 0.0, "error": ended.stderr.strip().splitlines()[-1]}
    return json.loads(ended.stdout)  # type: ignore[no-any-return]


def print_case(case: Case, report: dict[str, Any]) -> None:
    """Print a row for each change."""
    for outcome in report["outcomes"]:
        step, predicted = outcome["step_time"] or {}, outcome["predicted_share"]
        effect = "–"
        if step.get("ci95"):
            low, high = (100 * (bound - 1) for bound in step["ci95"])
            effect = f"{100 * (step['ratio'] - 1):+.1f}% ({low:+.1f} to {high:+.1f})"
        predicted_text = "–" if predicted is None else f"{-100 * predicted:.1f}%"
        name, reason = outcome["changes"][0], outcome["reason"] if not step else ""
        print(f"| {case.name} | `{name}` | {predicted_text} | {effect} | {outcome['status']} | {reason} |")
    if "error" in report:
        print(f"| {case.name} | – | – | – | failed | {report['error']} |")
    sys.stdout.flush()


def measure_overhead(runs: int) -> None:
    """Print the step time with the agent, which makes no change, over that without, in pairs of processes."""
    sides: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "turns.py").write_text(TURNS)
        (Path(folder) / "train.py").write_text(take_turns(TIMED))
        program = [sys.executable, "train.py"]
        collect = [sys.executable, "-m", "tracekit", "collect", "--format", "csv", *LATE, "--", *program]
        for block in range(runs):
            order = (False, True) if block % 2 == 0 else (True, False)
            commands = [collect if followed else program for followed in order]
            for followed, step_s in zip(order, time_pair(commands, folder, [0]), strict=True):
                sides[followed].append(step_s * 1e9)
    one = compare(metric(STEP_TIME), sides[False], sides[True], paired=True, threshold=0.01)
    low, high = one.ci95 or (0.0, 0.0)
    print(
        f"agent without a change, {runs} pairs of runs, steps of {one.a / 1e6:.2f} ms: "
        f"{100 * ((one.ratio or 1) - 1):+.2f}% ({100 * (low - 1):+.2f}% to {100 * (high - 1):+.2f}%)"
    )


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the time for each case")
    parser.add_argument("--overhead", type=int, default=0, help="pairs of runs with and without the agent")
    options = parser.parse_args()
    if options.overhead:
        measure_overhead(options.overhead)
        return 0
    began = time.monotonic()
    print("| workload | change | predicted | measured (95% interval) | result | |\n| - | - | - | - | - | - |")
    for case in CASES:
        if options.only in case.name:
            print_case(case, try_case(case, options.scale))
    print(f"\n{time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
