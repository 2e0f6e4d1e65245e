"""`tracekit try` on a real program: what is applied, and what becomes of its ops and numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.programs import MAIN
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
PROGRAM = """
import torch
torch.manual_seed(0)
torch.autograd.set_detect_anomaly(True)
model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(10)])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(60):
    loss = model(torch.ones(4, 32)).square().mean()
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    print(f"loss: {loss.item().hex()} {loss.item():.8f}")
"""


def test_a_change_that_finds_its_cause_and_one_that_finds_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    untouched = _run([sys.executable, "train.py"], tmp_path).stdout
    names = ["no_anomaly_detection", "bfloat16", "num_workers"]
    flags = [word for name in names for word in ("--change", name)]
    options = ["--repeat", "2", "--max-repeat", "2", "--check-value", r"loss: \S+ (.+)", "--format", "json"]
    tracekit, program = [sys.executable, "-c", MAIN], ["--", sys.executable, "train.py"]
    ended = _run([*tracekit, "try", *flags, *options, *program], tmp_path)
    outcomes: dict[str, Any] = {
        outcome["changes"][0]: outcome for outcome in json.loads(ended.stdout)["outcomes"]
    }
    sound, half, absent = (outcomes[name] for name in names)
    # Anomaly detection asks each gradient for NaN, in two ops or more.
    assert sound["work"]["ops"][0] > 1.2 * sound["work"]["ops"][1]
    stored = {run.id: run.meta.label for run in Store(tmp_path / "store").runs()}
    assert stored[sound["run"]] == "try-no_anomaly_detection"
    assert "try-base" in stored.values()
    assert (sound["numbers"], sound["alters_numbers"]) == ("equal", False)
    assert half["numbers"].startswith("differ by up to ")
    assert absent["status"] == "not applied"
    assert (absent["step_time"], absent["run"]) == (None, "")
    # Nothing is left: the recorded program without a change computes the same bits, and has the same files.
    assert _run([*tracekit, "collect", *program], tmp_path).stdout == untouched
    turns = [*("--alternate", "--start-step", "50"), *flags[:2], "--change", "zero_grad_to_none"]
    assert _run([*tracekit, "collect", *turns, *program], tmp_path).stdout == untouched
    alternation: Any = Store(tmp_path / "store").runs()[-1].meta.environment["program"]["alternation"]
    assert alternation["ratios"]["no_anomaly_detection"] < 1
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "store"}
    assert (tmp_path / "train.py").read_text() == PROGRAM


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "TRACEKIT_STORE": str(folder / "store")}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=True)
