"""Measure how often `tracekit try` finds the change that a program needs, and makes no claim where none is.

    python -m benchmarks.planted_changes [--only NAME] [--budget S] [--repeat 4] [--results FILE] [--restart]
    python -m benchmarks.planted_changes --truth 50

Each of 50 programs is generated from a template: one known inefficiency in three sizes, or none. Programs of
one thread are pinned to a core each, and measured side by side, about a minute each; those that need all
cores follow, alone, two to three minutes each. Results are kept in a file, and a later call goes on. With
`--truth N`, the effect of the right change on the programs of middle size is measured apart, without
tracekit: N processes of the program and N of one with the change in its source, which print their own step
times. Printed is what is known so far.

Exits with 1 if all programs were measured and the right change is confirmed in fewer than 9 of 10, or any in
more than 1 of 20 without an inefficiency, or the interval misses the effect that was measured apart in more
than 1 of 10. Use an idle machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

from scipy import stats

MIN_FOUND, MAX_FALSE, MIN_COVERED = 0.9, 0.05, 0.9
SIZES = (1, 2, 4)
ALONE = {"many_threads", "few_threads", "loading"}
"""Programs that need all cores."""
MIDDLE = 2
"""Size of the programs whose effects are measured apart."""
TRAIN_STEPS, LOAD_STEPS = 300, 120
"""Steps of a program; all but the last ones are timed."""
PROCESS_S = 120
"""Time after which a program is taken to wait for another one that failed, s."""
TRAIN = """
import time, torch
torch.manual_seed(0)
{before}
layers = [torch.nn.Linear({width}, {width}) for _ in range({layers})]
model = torch.nn.Sequential(*[each for layer in layers for each in (layer, torch.nn.ReLU())]){dtype}
optimizer = torch.optim.{optimizer}(model.parameters(), lr=1e-3{options})
batch = torch.randn({rows}, {width}){dtype}
for step in range({steps}):
    if step == 1:
        began = time.perf_counter()
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {after}
print("step:", (time.perf_counter() - began) / step)
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
    step = 0
    for epoch in range({epochs}):
        for batch in data:
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step == 0:
                began = time.perf_counter()
            step += 1
    print("step:", (time.perf_counter() - began) / (step - 1))
"""
INFER = """
import time, torch
torch.manual_seed(0)
{before}
class Root(torch.nn.Module):
    def forward(self, x):
        return (x.abs() * 1e-40).sqrt() * 1e20
model = {model}{dtype}
model.{mode}()
batch = torch.randn({shape}){dtype}
with torch.{context}():
    for step in range({steps}):
        if step == 1:
            began = time.perf_counter()
        output = model(batch)
print("step:", (time.perf_counter() - began) / step)
"""
TURN_STEPS = 10
"""Steps that a process runs before it waits for the other one of its pair."""
TURNS = f"""
import os, time
taken, given = (os.open(os.environ[name], os.O_RDWR) for name in ("TAKEN", "GIVEN"))
steps, times, began = 0, [], None
def begin_step():
    global steps, began
    if steps % {TURN_STEPS} == 0:
        if steps:
            times.append((time.perf_counter() - began) / {TURN_STEPS - 1})
            os.write(given, b" ")
        os.read(taken, 1)
    elif steps % {TURN_STEPS} == 1:  # after a step with the caches that the other process left
        began = time.perf_counter()
    steps += 1
def finish():
    print("step:", sum(times[1:]) / len(times[1:]))
    os.write(given, b" ")
"""
"""Module of programs that take turns. The speed of a shared machine changes within seconds, by more than most
changes save, so steps of two processes can only be compared if neither is ahead of the other."""
MENDED = {
    "no_anomaly_detection": (r"torch\.autograd\.set_detect_anomaly\(True\)", "pass"),
    "foreach": ("foreach=False", "foreach=True"),
    "fused": ("foreach=False", "fused=True"),
    "one_thread": (r"set_num_threads\(\d+\)", "set_num_threads(1)"),
    "all_cores": (r"set_num_threads\(\d+\)", "set_num_threads(2)"),
    "less_garbage_collection": (r"gc\.set_threshold\(100\)", "gc.set_threshold(100_000, 20, 20)"),
    "freeze_objects": (r"(?m)^for step", "gc.collect(); gc.freeze()\nfor step"),
    "num_workers": ("batch_size=4", "batch_size=4, num_workers=2"),
    "persistent_workers": ("num_workers=1", "num_workers=1, persistent_workers=True"),
    "flush_denormals": (r"torch\.manual_seed\(0\)", "torch.set_flush_denormal(True)"),
    "inference_mode": (r"torch\.enable_grad\(\)", "torch.inference_mode()"),
    "evaluation_mode": (r"model\.train\(\)", "model.eval()"),
}
"""Expression for what a change replaces in a program, and the text instead."""


@dataclass(frozen=True)
class Planted:
    """A program and the changes that mend it; none for a program without an inefficiency.

    Attributes:
        alone: Whether it needs all cores.
    """

    name: str
    source: str
    right: frozenset[str] = frozenset()
    alone: bool = False


def _train(**values: Any) -> str:
    defaults = {"before": "torch.set_num_threads(1)", "after": "", "layers": 6, "width": 64, "rows": 32}
    others = {"optimizer": "SGD", "options": ", foreach=False", "steps": TRAIN_STEPS, "dtype": ""}
    return TRAIN.format(**{**defaults, **others, **values})


def _load(**values: Any) -> str:
    return LOAD.format(**{"rows": 4 * LOAD_STEPS, "sleep_s": 0, "options": "", "epochs": 1, **values})


def _infer(**values: Any) -> str:
    defaults = {"before": "torch.set_num_threads(1)", "model": "torch.nn.Linear(64, 64)", "mode": "eval"}
    others = {"shape": "8, 64", "context": "inference_mode", "dtype": "", "steps": TRAIN_STEPS}
    return INFER.format(**{**defaults, **others, **values})


def _stack(layers: int, width: int, *others: str) -> str:
    """Return the source of a stack of linear layers, each with layers of other kinds behind it."""
    kinds = ", ".join((f"torch.nn.Linear({width}, {width})", *others))
    return f"torch.nn.Sequential(*[layer for _ in range({layers}) for layer in ({kinds},)])"


def planted() -> list[Planted]:
    """Return the programs with an inefficiency, each in three sizes."""
    programs = []
    for size in SIZES:
        anomaly = "torch.set_num_threads(1); torch.autograd.set_detect_anomaly(True)"
        garbage = "import gc; gc.set_threshold(100); kept = [[] for _ in range(200_000)]"
        kinds: dict[str, tuple[str, set[str]]] = {
            "anomaly": (_train(layers=6 * size, before=anomaly), {"no_anomaly_detection"}),
            "optimizer": (_train(layers=8 * size, width=16, optimizer="AdamW"), {"foreach", "fused"}),
            "many_threads": (
                _train(layers=size, width=512, before="torch.set_num_threads(16)"),
                {"one_thread", "all_cores"},
            ),
            "few_threads": (
                _train(width=384 + 128 * SIZES.index(size), layers=3, rows=256, dtype=".bfloat16()"),
                {"all_cores"},
            ),
            "collector": (
                _train(layers=4, before=garbage, after=f"more = [[] for _ in range({2_000 * size})]"),
                {"less_garbage_collection", "freeze_objects"},
            ),
            "loading": (_load(sleep_s=0.001 * size), {"num_workers"}),
            "restarted": (
                _load(rows=16 * size, options=", num_workers=1", epochs=LOAD_STEPS // (4 * size)),
                {"persistent_workers"},
            ),
            "denormals": (_infer(model=_stack(8 * size, 64, "Root()"), shape="32, 64"), {"flush_denormals"}),
            "gradients": (_infer(model=_stack(40 * size, 64), context="enable_grad"), {"inference_mode"}),
            "training_mode": (
                _infer(model=_stack(20 * size, 64, "torch.nn.Dropout()"), mode="train"),
                {"evaluation_mode"},
            ),
        }
        programs += [
            Planted(f"{kind}_{size}", source, frozenset(right), alone=kind in ALONE)
            for kind, (source, right) in kinds.items()
        ]
    return programs


def clean() -> list[Planted]:
    """Return 20 programs in bfloat16 that a change of one thread or more is not to make faster by 3%."""
    dtype, sizes = (
        ".bfloat16()",
        [(layers, width) for layers in (2, 4) for width in (256, 384, 512, 640, 768)],
    )
    trained = {"optimizer": "SGD", "options": ", fused=True", "dtype": dtype}
    programs = [
        Planted(f"train_{layers}x{width}", _train(layers=layers, width=width, **trained))
        for layers, width in sizes
    ]
    programs += [
        Planted(
            f"infer_{layers}x{width}",
            _infer(model=_stack(2 * layers, width), shape=f"64, {width}", dtype=dtype),
        )
        for layers, width in sizes
    ]
    return programs


def _prefix(cores: Sequence[int]) -> list[str]:
    return ["taskset", "-c", ",".join(map(str, cores))]


def _variables() -> dict[str, str]:
    """Return the environment of a program, which sets its threads itself."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "MKL_"))}


def measure(program: Planted, cores: Sequence[int], options: argparse.Namespace) -> dict[str, Any]:
    """Try the changes that fit a program; returns what is kept of it."""
    steps = LOAD_STEPS if "DataLoader" in program.source else TRAIN_STEPS
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(program.source)
        repeat = ["--repeat", str(options.repeat), "--max-repeat", str(2 * options.repeat)]
        words = ["try", *repeat, "--budget", f"{options.budget}s"]
        window = [
            "--start-step",
            str(steps - 20),
            "--steps",
            "3",
            "--timed-steps",
            "0",
            "--stop-after-profile",
        ]
        collect = ["tracekit", "collect", "--light", *window, "--", sys.executable, "train.py"]
        command = [sys.executable, "-m", "tracekit", *words, "--format", "json", "--", *collect]
        ended = subprocess.run(
            [*_prefix(cores), *command],
            cwd=folder,
            env={**_variables(), "TRACEKIT_STORE": f"{folder}/store"},
            capture_output=True,
            text=True,
            check=False,
        )
    report = {"outcomes": []} if ended.returncode else json.loads(ended.stdout)
    error = ended.stderr.strip().splitlines()[-1] if ended.returncode else ""
    outcomes = {
        "+".join(outcome["changes"]): {
            "status": outcome["status"],
            "predicted": outcome["predicted_share"],
            **{name: (outcome["step_time"] or {}).get(name) for name in ("ratio", "ci95")},
        }
        for outcome in report["outcomes"]
    }
    return {"outcomes": outcomes, "error": error, "seconds": round(time.monotonic() - began, 1)}


def mend(program: Planted, change: str) -> str:
    """Return the source of a program with a change in it.

    Raises:
        ValueError: There is not one place to change.
    """
    source, count = re.subn(*MENDED[change], program.source)
    if count != 1:
        raise ValueError(f"{program.name} has {count} places for {change}")
    return source


def measure_apart(
    program: Planted, change: str, cores: Sequence[int], runs: int
) -> tuple[float, tuple[float, float]]:
    """Return the ratio of step times, with a change in the source over without, as the programs time them.

    Returns:
        The ratio, and its interval of 95%.
    """
    logs = []
    sources = {"base": program.source, "head": mend(program, change)}
    in_turns = "DataLoader" not in program.source  # whose workers go on while a process waits
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "turns.py").write_text(TURNS)
        for name, source in sources.items():
            (Path(folder) / f"{name}.py").write_text(take_turns(source) if in_turns else source)
        for block in range(runs):
            names = list(sources)[:: 1 if block % 2 == 0 else -1]
            commands = [[sys.executable, f"{name}.py"] for name in names]
            steps = dict(zip(names, time_pair(commands, folder, cores, in_turns=in_turns), strict=True))
            logs.append(math.log(steps["head"] / steps["base"]))
    return math.exp(statistics.fmean(logs)), _interval(logs)


def take_turns(source: str) -> str:
    """Return the source of a program that times its steps in turns with another one; see `TURNS`."""
    begin, end = r"if step == \d+:\n +began = time\.perf_counter\(\)", r'print\("step:".*\)'
    source = re.sub(begin, "turns.begin_step()", re.sub(end, "turns.finish()", source))
    return f"import turns\n{source}"


def time_pair(
    commands: Sequence[Sequence[str]], folder: str, cores: Sequence[int], *, in_turns: bool = True
) -> list[float]:
    """Run two programs, in turns or one after the other; return the step times that they print, s."""
    running: list[subprocess.Popen[str]] = []
    names = [f"{folder}/{place}" for place in range(2)]
    for name in names:
        os.mkfifo(name)
    pipes = [os.open(name, os.O_RDWR) for name in names]
    os.write(pipes[0], b" ")
    try:
        for command, taken, given in zip(commands, names, reversed(names), strict=True):
            variables = {**_variables(), "TRACEKIT_STORE": f"{folder}/store", "TAKEN": taken, "GIVEN": given}
            words, out = [*_prefix(cores), *command], subprocess.PIPE
            running.append(subprocess.Popen(words, cwd=folder, env=variables, stdout=out, text=True))
            if not in_turns:
                running[-1].wait(timeout=PROCESS_S)
        printed = [process.communicate(timeout=PROCESS_S)[0] for process in running]
    finally:
        for process in running:
            process.kill()
        for pipe, name in zip(pipes, names, strict=True):
            os.close(pipe)
            Path(name).unlink()
    return [float(text.split("step:")[1].split()[0]) for text in printed]


def _interval(logs: Sequence[float]) -> tuple[float, float]:
    """Return the interval of 95% of the ratio whose logarithms were measured."""
    low, high = stats.t.interval(0.95, len(logs) - 1, statistics.fmean(logs), stats.sem(logs))
    return math.exp(low), math.exp(high)


def _run_all(programs: Sequence[Planted], work: Callable[[Planted, Sequence[int]], None]) -> None:
    """Do work for programs, those of one thread on a core each side by side, then the others alone."""
    free: Queue[int] = Queue()
    all_cores = sorted(os.sched_getaffinity(0))
    for core in all_cores:
        free.put(core)

    def on_one_core(program: Planted) -> None:
        core = free.get()
        try:
            work(program, [core])
        finally:
            free.put(core)

    with ThreadPoolExecutor(len(all_cores)) as pool:
        list(pool.map(on_one_core, [program for program in programs if not program.alone]))
    for program in programs:
        if program.alone:
            work(program, all_cores)


class Results:
    """What is known of programs, in a file of one line each: the last one counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.known: dict[str, dict[str, Any]] = {}
        for line in lines:
            self.known |= json.loads(line)

    def add(self, program: Planted, result: dict[str, Any]) -> None:
        """Keep and print a result."""
        self.known[program.name] = result
        with self.path.open("a") as file:
            file.write(json.dumps({program.name: result}) + "\n")
        print(describe(program, result), flush=True)


def _helpful(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: one for name, one in result["outcomes"].items() if one["status"] == "helps"}


def describe(program: Planted, result: dict[str, Any]) -> str:
    """Return a line of the table: what was to be found, what was, and how long it took."""
    helps = _helpful(result)
    passed = bool(program.right & helps.keys()) if program.right else not helps
    verdict = "ok" if passed else "NOT FOUND" if program.right else "FALSE"
    shown = [
        f"{name} {100 * (one['ratio'] - 1):+.1f}% ({100 * (one['ci95'][0] - 1):+.1f} to "
        f"{100 * (one['ci95'][1] - 1):+.1f}), predicted {-100 * (one['predicted'] or 0):.1f}%"
        for name, one in helps.items()
    ]
    if not passed and program.right:
        shown += [
            f"{name} {one['status']}" for name, one in result["outcomes"].items() if name in program.right
        ]
    if "truth" in result:
        change, ratio, (low, high), covered = result["truth"]
        shown.append(
            f"apart: {change} {100 * (ratio - 1):+.1f}% ({100 * (low - 1):+.1f} to {100 * (high - 1):+.1f}), "
            f"{'inside' if covered else 'OUTSIDE'}"
        )
    wanted = "/".join(sorted(program.right)) or "none"
    text = "; ".join(shown) or result["error"]
    return f"{program.name:16} {wanted:24} {verdict:9} {result['seconds']:4.0f} s  {text}"


def summarize(programs: Sequence[Planted], results: Results) -> int:
    """Print the totals; returns the exit code."""
    known = [(program, results.known[program.name]) for program in programs if program.name in results.known]
    found = [bool(program.right & _helpful(result).keys()) for program, result in known if program.right]
    claims = [bool(_helpful(result)) for program, result in known if not program.right]
    covered = [result["truth"][-1] for _, result in known if "truth" in result]
    print(
        f"{len(known)} of {len(programs)} programs; right change confirmed: {sum(found)} of {len(found)}; "
        f"a claim without an inefficiency: {sum(claims)} of {len(claims)}; "
        f"intervals that hold the effect measured apart: {sum(covered)} of {len(covered)}"
    )
    is_wrong = (
        sum(found) < MIN_FOUND * len(found)
        or sum(claims) > MAX_FALSE * len(claims)
        or sum(covered) < MIN_COVERED * len(covered)
    )
    return int(len(known) == len(programs) and is_wrong)


def main() -> int:
    """Run the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="programs whose name this expression matches")
    parser.add_argument("--repeat", type=int, default=4, help="runs of a change before its test")
    parser.add_argument("--budget", type=int, default=180, help="seconds for each program")
    parser.add_argument("--truth", type=int, default=0, help="runs of each side to measure effects apart")
    default = Path(tempfile.gettempdir()) / "tracekit-planted-changes.jsonl"
    parser.add_argument("--results", type=Path, default=default, help="file of the results")
    parser.add_argument("--restart", action="store_true", help="discard the results")
    options = parser.parse_args()
    if options.restart:
        options.results.unlink(missing_ok=True)
    results = Results(options.results)
    programs = [program for program in (*planted(), *clean()) if re.search(options.only, program.name)]

    def try_program(program: Planted, cores: Sequence[int]) -> None:
        results.add(program, measure(program, cores, options))

    def compare_apart(program: Planted, cores: Sequence[int]) -> None:
        result = results.known[program.name]
        change = min(program.right & _helpful(result).keys())
        ratio, interval = measure_apart(program, change, cores, options.truth)
        low, high = result["outcomes"][change]["ci95"]
        results.add(program, {**result, "truth": [change, ratio, interval, low <= ratio <= high]})

    if options.truth:
        chosen = [
            program
            for program in programs
            if program.name.endswith(f"_{MIDDLE}")
            and "truth" not in (result := results.known.get(program.name, {"truth": None}))
            and program.right & _helpful(result).keys()
        ]
        _run_all(chosen, compare_apart)
    else:
        _run_all([program for program in programs if program.name not in results.known], try_program)
    return summarize(programs, results)


if __name__ == "__main__":
    sys.exit(main())
