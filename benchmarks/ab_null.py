"""Error rates of `tracekit ab` on real processes: commits that differ in a comment or by a known slowdown.

    python -m benchmarks.ab_null [--repeats 20] [--planted 15]

Each repeat is a full `tracekit ab` between two commits of a temporary repository. The workload is a small
PyTorch training loop on one CPU thread, or `tracekit collect` (--collect). Exits with 1 if equivalent commits
are reported as a regression, or a slowdown is not.
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
from tempfile import TemporaryDirectory
from typing import Any

from tracekit.experiments.measure import MAIN

ROUNDS = 20
CLOCKS = {False: "perf_counter_ns", True: "thread_time_ns"}
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
for _ in range(40):
    start = time.{clock}()
    for _ in range(ROUNDS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    times.append(time.{clock}() - start)
print(f"step: {{statistics.median(times[10:]) / 1e6:.6f}} ms")
"""
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
    """Repeat, print a line each and the tally; exit with 1 where one is wrong."""
    options = _options()
    if options.collect and options.planted:
        sys.exit("--planted changes the script, which --collect does not measure")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # unwinds, so nothing is left
    wrong, tally = 0, Counter[str]()
    planted = f"head {options.planted:g}% slower" if options.planted else "commits differ in a comment"
    print(f"{options.repeats} x tracekit ab, {planted}, up to {options.max_k} runs per side\n{HEADER}")
    with TemporaryDirectory() as folder:
        make(Path(folder), planted=options.planted, clock=CLOCKS[options.cpu_time])
        for number in range(1, options.repeats + 1):
            answer = ask(Path(folder), options)
            print(line(number, answer), flush=True)
            tally[answer.verdict] += 1
            wrong += (answer.verdict == "regression") != (options.planted > 0)
    counted = ", ".join(f"{verdict} {count}" for verdict, count in sorted(tally.items()))
    print(f"\n{counted}; wrong: {wrong} of {options.repeats}")
    sys.exit(int(wrong > 0))


def make(folder: Path, *, planted: float, clock: str) -> None:
    """A repository with two commits in a folder.

    Args:
        folder: An empty folder.
        planted: How much slower the second commit is, per cent.
        clock: What the program times itself with, a function of `time`.
    """
    git(folder, "init", "--quiet")
    for comment, rounds in (("one", ROUNDS), ("two", round(ROUNDS * (1 + planted / 100)))):
        (folder / "train.py").write_text(WORKLOAD.format(rounds=rounds, comment=comment, clock=clock))
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
    measured = (*COLLECT, *COLLECT_STEPS) if options.collect else SCRIPT
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
    parser.add_argument("--repeats", type=int, default=20, help="comparisons to make")
    parser.add_argument("--planted", type=float, default=0.0, help="how much slower the head is, per cent")
    parser.add_argument("-k", type=int, default=5, help="runs per side at the first look")
    parser.add_argument("--max-k", type=int, default=10, help="runs per side at the last look")
    parser.add_argument("--warmup", type=int, default=1, help="runs per side that do not count")
    parser.add_argument("--cpu-time", action="store_true", help="time the CPU, which other load slows less")
    parser.add_argument("--collect", action="store_true", help="measure `tracekit collect`")
    return parser.parse_args()


if __name__ == "__main__":
    main()
