"""Bisect a real regression: 12 commits of a PyTorch program on the CPU, one of which computes too much.

The program measures the CPU time of its steps, which other programs disturb less than wall time; every
measurement is a new process.

    python -m benchmarks.bisect_real
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

COMMITS, CULPRIT = 12, 8
PROGRAM = """
import time, torch
from model import REPEATS

torch.set_num_threads(1)
torch.manual_seed(0)
weights, batch = [torch.randn(256, 256) for _ in range(10)], torch.randn(128, 256)


def step():
    found = batch
    for weight in weights[:REPEATS]:
        found = torch.tanh(found @ weight)
    return found.sum()


times = []
for _ in range(80):
    begin = time.process_time()
    step()
    times.append(time.process_time() - begin)
print(f"step: {sorted(times[20:])[len(times[20:]) // 2] * 1e3:.5f} ms")
"""


def history(folder: Path) -> list[str]:
    """A repository whose commit `CULPRIT` computes ten layers instead of six; returns its commits."""
    _git(folder, "init", "--quiet")
    (folder / "bench.py").write_text(PROGRAM)
    shas = []
    for number in range(COMMITS + 1):
        (folder / "model.py").write_text(f"REPEATS = {10 if number >= CULPRIT else 6}\n")
        (folder / "notes.txt").write_text(f"{number}\n")
        _git(folder, "add", ".")
        _git(folder, "commit", "--quiet", f"--message=change {number}")
        shas.append(_git(folder, "rev-parse", "HEAD"))
    return shas


def main() -> int:
    """Search, print what the command prints; returns 0 where the culprit is the planted commit."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        shas = history(folder)
        words = [sys.executable, "-c", "from tracekit.cli.main import main; main()", "bisect"]
        words += [
            f"{shas[0]}..{shas[-1]}",
            "--value",
            "step: ([0-9.]+) ms",
            "--warmup",
            "0",
            "--",
            sys.executable,
            "bench.py",
        ]
        begin = time.monotonic()
        done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout)
        right = done.stdout.splitlines()[:1] and shas[CULPRIT][:12] in done.stdout.splitlines()[0]
        took = time.monotonic() - begin
        print(f"{'right' if right else 'WRONG'}: planted at {shas[CULPRIT][:12]}, {took:.0f} s")
    return 0 if right else 1


def _git(folder: Path, *words: str) -> str:
    own = ["-c", "user.name=Bench", "-c", "user.email=bench@example.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *own, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
