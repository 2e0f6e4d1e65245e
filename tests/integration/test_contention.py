"""Programs that share the CPU with others: what `collect` and `ab` say of their step times."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.integration.programs import collected
from tests.unit.recording.agent.test_cpu_load import needs_scheduler, spinning
from tracekit.runs.conditions import MIN_OTHERS, others_share
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, needs_scheduler]
TINY = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(512, 64), torch.randint(0, 10, (512,))
for _ in range(600):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny.py").write_text(TINY)
    return tmp_path


def test_three_spinning_processes_beside_a_tiny_model_are_said(folder: Path) -> None:
    with ExitStack() as others:
        for _ in range(3):
            others.enter_context(spinning())
        ended = collected(folder / "store", [sys.executable, "tiny.py"], folder, "--start-step", "400")
    assert ended.code == 0
    [integrity] = [line for line in ended.err.splitlines() if line.startswith("integrity: ")]
    assert "other programs took " in integrity
    assert "step times are unreliable (the steps waited " in integrity


def test_a_program_on_a_quiet_machine_is_not_doubted(folder: Path) -> None:
    ended = collected(folder / "store", [sys.executable, "tiny.py"], folder, "--start-step", "400")
    [run] = Store(folder / "store").runs()
    if (others_share(run.meta.cpu_loads[0]) or 0) >= MIN_OTHERS:
        pytest.skip("other programs use this machine")
    assert "step times are unreliable" not in ended.err


def test_ab_names_the_runs_that_were_disturbed(folder: Path) -> None:
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], cwd=folder, check=True)
    command = [sys.executable, "-c", "from tracekit.cli.main import main; main()", "ab", "HEAD", "HEAD"]
    options = ["--repeat", "2", "--max-repeat", "2", "--warmup", "0", "--store", str(folder / "store")]
    spin = [sys.executable, "-c", "for _ in range(20_000_000): pass"]
    with ExitStack() as others:
        for _ in range(3):
            others.enter_context(spinning())
        done = subprocess.run(
            [*command, *options, "--", *spin], cwd=folder, capture_output=True, text=True, check=False
        )
    assert done.returncode in {0, 1, 3}, done.stderr
    assert "warning: other programs took " in done.stderr
    assert "step times are unreliable, in 2 of 2 runs of the base" in " ".join(done.stdout.split())
