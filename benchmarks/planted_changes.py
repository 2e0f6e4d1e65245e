"""Measure how often `tracekit try` finds the change that a program needs, and makes no claim where none is.

    python -m benchmarks.planted_changes [--only NAME] [--repeat 5] [--max-repeat 10] [--budget 5m]

Each program is generated from a template: one known inefficiency in three sizes, or none. Printed are the
changes that were confirmed, with their effects and what findings predicted, and the time. Exits with 1 if the
right change is confirmed in fewer than 9 of 10 programs, or any in more than 1 of 20 without an inefficiency.
Use an idle machine: a program takes one to five minutes.
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

MIN_FOUND, MAX_FALSE = 0.9, 0.05
SIZES = (1, 2, 4)
TRAIN = """
import torch
torch.manual_seed(0)
{before}
layers = [torch.nn.Linear({width}, {width}) for _ in range({layers})]
model = torch.nn.Sequential(*[each for layer in layers for each in (layer, torch.nn.ReLU())])
optimizer = torch.optim.{optimizer}(model.parameters(), lr=1e-3{options})
batch = torch.randn(32, {width})
for step in range(150):
    loss = model(batch).square().mean()
    optimizer.zero_grad({zero_grad})
    loss.backward()
    optimizer.step()
    {after}
print("loss:", float(loss.detach()))
"""
LOAD = """
import time, torch
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)
class Rows(Dataset):
    def __len__(self): return {rows}
    def __getitem__(self, row):
        time.sleep({sleep_s})
        return torch.full((64,), float(row % 7))
if __name__ == "__main__":
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    data = DataLoader(Rows(), batch_size=4{options})
    for epoch in range({epochs}):
        for batch in data:
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
INFER = """
import torch
torch.manual_seed(0)
{before}
model = {model}
model.{mode}()
batch = torch.randn({shape})
with torch.{context}():
    for step in range(150):
        output = model(batch)
"""


@dataclass(frozen=True)
class Planted:
    """A program and the changes that mend it; none for a program without an inefficiency."""

    name: str
    source: str
    right: frozenset[str] = frozenset()


def _train(**values: Any) -> str:
    defaults = {"before": "torch.set_num_threads(1)", "after": "", "layers": 6, "width": 64, "zero_grad": ""}
    return TRAIN.format(**{**defaults, "optimizer": "SGD", "options": ", foreach=False", **values})


def _infer(**values: Any) -> str:
    defaults = {"before": "torch.set_num_threads(1)", "model": "torch.nn.Linear(64, 64)", "mode": "eval"}
    return INFER.format(**{**defaults, "shape": "8, 64", "context": "inference_mode", **values})


def _stack(layers: int, width: int, *others: str) -> str:
    """Return the source of a stack of linear layers, each with layers of other kinds behind it."""
    kinds = ", ".join((f"torch.nn.Linear({width}, {width})", *(f"torch.nn.{other}()" for other in others)))
    return f"torch.nn.Sequential(*[layer for _ in range({layers}) for layer in ({kinds},)])"


def planted() -> list[Planted]:
    """Return the programs with an inefficiency, each in three sizes."""
    programs = []
    for size in SIZES:
        kinds = {
            "anomaly": (
                _train(
                    layers=4 * size,
                    before="torch.set_num_threads(1); torch.autograd.set_detect_anomaly(True)",
                ),
                {"no_anomaly_detection"},
            ),
            "optimizer": (_train(layers=8 * size, width=16, optimizer="AdamW"), {"foreach", "fused"}),
            "many_threads": (
                _train(width=48 * size, before="torch.set_num_threads(16)"),
                {"one_thread", "all_cores"},
            ),
            "few_threads": (_train(width=512 * size, layers=2), {"all_cores"}),
            "collector": (
                _train(
                    layers=2 * size,
                    before="import gc; gc.set_threshold(100); kept = [[] for _ in range(200_000)]",
                    after="more = [[] for _ in range(2_000)]",
                ),
                {"less_garbage_collection"},
            ),
            "loading": (LOAD.format(rows=600, sleep_s=0.001 * size, options="", epochs=1), {"num_workers"}),
            "restarted": (
                LOAD.format(rows=16 * size, sleep_s=0, options=", num_workers=1", epochs=40),
                {"persistent_workers"},
            ),
            "denormals": (
                _infer(
                    model=_stack(2 * size, 128),
                    before="torch.set_num_threads(1)",
                    shape="32, 128) * (1e-40",
                ),
                {"flush_denormals"},
            ),
            "gradients": (_infer(model=_stack(8 * size, 64), context="enable_grad"), {"inference_mode"}),
            "training_mode": (
                _infer(model=_stack(8 * size, 64, "Dropout"), mode="train"),
                {"evaluation_mode"},
            ),
        }
        programs += [
            Planted(f"{kind}_{size}", source, frozenset(right)) for kind, (source, right) in kinds.items()
        ]
    return programs


def clean() -> list[Planted]:
    """Return 20 programs without an inefficiency that a change of one thread or more could mend by 3%."""
    fused = {"optimizer": "AdamW", "options": ", fused=True"}
    sizes = [(layers, width) for layers in (1, 2) for width in (256, 384, 512, 640, 768)]
    programs = [
        Planted(f"train_{layers}x{width}", _train(layers=layers, width=width, **fused))
        for layers, width in sizes
    ]
    programs += [
        Planted(
            f"infer_{layers}x{width}",
            _infer(
                model=_stack(layers, width),
                shape=f"64, {width}",
                before="",
            ),
        )
        for layers, width in sizes
    ]
    return programs


def measure(program: Planted, options: argparse.Namespace) -> dict[str, Any]:
    """Try the changes that fit a program; returns the report of `tracekit try`."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(program.source)
        flags = ["--repeat", str(options.repeat), "--max-repeat", str(options.max_repeat), "--format", "json"]
        budget = ["--budget", options.budget] if options.budget else []
        words = [sys.executable, "-m", "tracekit", "try", *flags, *budget, "--", sys.executable, "train.py"]
        variables = {**os.environ, "TRACEKIT_STORE": f"{folder}/store"}
        ended = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    if ended.returncode:
        return {"outcomes": [], "error": ended.stderr.strip().splitlines()[-1]}
    return json.loads(ended.stdout)  # type: ignore[no-any-return]


def _describe(outcome: dict[str, Any]) -> str:
    change, predicted = 100 * (outcome["step_time"]["ratio"] - 1), outcome["predicted_share"]
    return f"{change:+.1f}% (predicted {-100 * (predicted or 0):.1f}%)"


def main() -> int:
    """Run the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--max-repeat", type=int, default=10)
    parser.add_argument("--budget", default="", help="time for each program")
    options = parser.parse_args()
    right: list[bool] = []
    silent: list[bool] = []
    for program in (*planted(), *clean()):
        if options.only not in program.name:
            continue
        began = time.monotonic()
        report = measure(program, options)
        helps = {
            outcome["changes"][0]: outcome for outcome in report["outcomes"] if outcome["status"] == "helps"
        }
        passed = bool(program.right & helps.keys()) if program.right else not helps
        (right if program.right else silent).append(passed)
        shown = ", ".join(f"{name} {_describe(outcome)}" for name, outcome in helps.items())
        wanted = "/".join(sorted(program.right)) or "none"
        verdict = "ok" if passed else "NOT FOUND" if program.right else "FALSE"
        error = report.get("error", "")
        print(
            f"{program.name:18} {wanted:24} {verdict:9} {time.monotonic() - began:4.0f} s  {shown or error}",
            flush=True,
        )
    print(f"right change confirmed: {sum(right)} of {len(right)}; no claim: {sum(silent)} of {len(silent)}")
    is_found = sum(right) >= MIN_FOUND * len(right)
    return int(not (is_found and len(silent) - sum(silent) <= MAX_FALSE * len(silent)))


if __name__ == "__main__":
    sys.exit(main())
