"""Verdicts of `tracekit ab` on real processes: commits that differ in a comment or by a known slowdown.

    python -m benchmarks.ab_null [--repeats 40] [--planted 0,3,10,30,86] [--program loader|train|collect]

Each repeat is a full `tracekit ab` between two commits of a temporary repository. The program is a
data loader that waits (runs differ by 3%, steps by 6%), which other programs disturb least; a small PyTorch
training loop on one CPU thread; or `tracekit collect`. Exits with 1 if more than one verdict in twenty is
wrong: a change where there is none, or none where it is at least the threshold.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tracekit.experiments.measure import MAIN
from tracekit.stats.comparison import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUNDS = 100
WORKLOAD = """
import statistics
import time

import torch

ROUNDS = {rounds}  # {comment}
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, labels = torch.randn(64, 256), torch.randint(0, 10, (64,))
times = []
for _ in range(15):
    start = time.thread_time_ns()
    for _ in range(ROUNDS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    times.append(time.thread_time_ns() - start)
print(f"step: {{statistics.fmean(times[5:]) / 1e6:.6f}} ms")
"""
LOADER = """
import math
import random
import time

STEP_S = {step_s}  # {comment}
level = STEP_S * math.exp(random.gauss(0, 0.03))
begin = time.perf_counter()
for _ in range(40):
    time.sleep(level * random.uniform(0.9, 1.1))
print(f"step: {{1e3 * (time.perf_counter() - begin) / 40:.6f}} ms")
"""
LOADER_S = 0.01
PROGRAMS = {"loader": LOADER, "train": WORKLOAD, "collect": "# {comment}"}
MAX_WRONG = 0.05
SCRIPT = ("--value", r"^step: ([0-9.]+) ms$", "--", sys.executable, "train.py")
COLLECT = ("--", "tracekit", "collect", "--workload", "mnist_cnn", "--device", "cpu", "--threads", "1")
COLLECT_STEPS = ("--batch-size", "16", "--steps", "10", "--warmup", "3")
HEADER = (
    f"{'':>3} {'verdict':12} {'step time':12} {'change':>8}   {'95% interval':19} {'mde':>7}"
    f" {'memory':12} {'k':>3} {'seconds':>8}"
)


@dataclass(frozen=True)
class Answer:
    """One `tracekit ab`.

    Attributes:
        content: Its JSON report.
        seconds: What the whole command took.
    """

    content: dict[str, Any]
    seconds: float

    @property
    def verdict(self) -> str:
        """The verdict over all metrics."""
        return str(self.content["verdict"])

    def metric(self, name: str) -> dict[str, Any]:
        """One metric of the report."""
        return next(one for one in self.content["metrics"] if one["name"] == name)


def main() -> None:
    """Print a line for each comparison and a row for each change; exit with 1 where too many are wrong."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # unwinds, so nothing is left
    planted = [float(percent) for percent in options.planted.split(",")]
    rows = []
    for percent in planted:
        print(f"{options.repeats} x tracekit ab, {options.program}, head {percent:g}% slower\n{HEADER}")
        rows.append(_repeat(percent, options))
        print()
    print("| head slower by | verdicts | wrong | runs per side | seconds |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        print(row.text)
    sys.exit(int(any(row.wrong > MAX_WRONG * options.repeats for row in rows)))


@dataclass(frozen=True)
class Row:
    """A row of the table of results, and how many of its verdicts are wrong."""

    text: str
    wrong: int


def _repeat(percent: float, options: argparse.Namespace) -> Row:
    answers = []
    with TemporaryDirectory() as folder:
        make(Path(folder), options.program, planted=percent)
        for number in range(1, options.repeats + 1):
            answers.append(ask(Path(folder), options))
            print(line(number, answers[-1]), flush=True)
    tally = Counter(answer.verdict for answer in answers)
    changed = 100 * answers[0].content["design"]["theta"] <= percent
    false = (Verdict.PASS, Verdict.IMPROVEMENT) if changed else (Verdict.REGRESSION, Verdict.IMPROVEMENT)
    wrong = sum(tally[verdict] for verdict in false)
    verdicts = ", ".join(f"{verdict} {count}" for verdict, count in sorted(tally.items()))
    k, seconds = (
        _range([one.content["design"]["k"] for one in answers]),
        _range([one.seconds for one in answers]),
    )
    return Row(f"| {percent:g}% | {verdicts} | {wrong} of {options.repeats} | {k} | {seconds} |", wrong)


def _range(values: Sequence[float]) -> str:
    return f"{median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def make(folder: Path, program: str, *, planted: float) -> None:
    """A repository with two commits in a folder.

    Args:
        folder: An empty folder.
        program: One of `PROGRAMS`.
        planted: How much slower the second commit is, per cent.
    """
    git(folder, "init", "--quiet")
    for comment, factor in (("one", 1.0), ("two", 1 + planted / 100)):
        text = PROGRAMS[program].format(
            rounds=round(ROUNDS * factor), step_s=LOADER_S * factor, comment=comment
        )
        (folder / "train.py").write_text(text)
        git(folder, "add", "train.py")
        git(folder, "commit", "--quiet", f"--message={comment}")


def git(folder: Path, *words: str) -> None:
    """Run git there, whoever the user is."""
    who = [word for key in ("name", "email") for word in ("-c", f"user.{key}=ab@example.org")]
    subprocess.run(["git", *who, *words], cwd=folder, check=True)


def ask(folder: Path, options: argparse.Namespace) -> Answer:
    """One `tracekit ab` in a store of its own.

    Raises:
        subprocess.CalledProcessError: It failed otherwise than by its verdict.
    """
    plan = ["-k", str(options.k), "--max-k", str(options.max_k), "--warmup", str(options.warmup)]
    measured = (*COLLECT, *COLLECT_STEPS) if options.program == "collect" else SCRIPT
    with TemporaryDirectory() as store:
        words = ["ab", "HEAD~1", "HEAD", *plan, "--store", store, "--format", "json", *measured]
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *words],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode not in {0, 1, 3}:
        sys.stderr.write(done.stderr)
        raise subprocess.CalledProcessError(done.returncode, "tracekit ab")
    return Answer(json.loads(done.stdout), time.perf_counter() - start)


def line(number: int, answer: Answer) -> str:
    """An answer as a line of the table."""
    steps, memory = answer.metric("step_time"), answer.metric("host_peak")
    low, high = (100 * (bound - 1) for bound in steps["ci95"])
    return (
        f"{number:>3} {answer.verdict:12} {steps['verdict']:12} {100 * (steps['ratio'] - 1):+7.2f}%"
        f" {f'{low:+7.2f} to {high:+7.2f}%':>21} {100 * steps['mde']:6.2f}%"
        f" {memory['verdict']:12} {answer.content['design']['k']:>3} {answer.seconds:8.1f}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", choices=PROGRAMS, default="loader", help="what is measured")
    parser.add_argument("--repeats", type=int, default=40, help="comparisons of each change")
    parser.add_argument("--planted", default="0,3,10,30,86", help="how much slower heads are, per cent")
    parser.add_argument("-k", type=int, default=5, help="runs per side at the first look")
    parser.add_argument("--max-k", type=int, default=20, help="runs per side at the last look")
    parser.add_argument("--warmup", type=int, default=1, help="runs per side that do not count")
    return parser.parse_args()


if __name__ == "__main__":
    main()
