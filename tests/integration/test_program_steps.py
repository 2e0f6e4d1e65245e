"""What counts as a step of a user's program, and which of its processes are recorded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.programs import collected
from tracekit.recording.agent.host_watch import SAMPLED_STEPS
from tracekit.runs.metrics import step_time
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

torch = pytest.importorskip("torch")
PYTHON = sys.executable

INFER = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
for _ in range(CALLS):
    print(tuple(model(torch.ones(2, 4)).shape))
assert not model._forward_hooks and not torch.nn.modules.module._global_forward_hooks
"""
COMPILED = """
import torch
model = torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4)), backend="eager", fullgraph=True)
for _ in range(9):
    print(tuple(model(torch.ones(2, 4)).shape))
"""
COMPILED_STEP = """
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
@torch.compile(backend="eager")
def update():
    optimizer.step()
for _ in range(12):
    model(torch.ones(2, 2)).sum().backward()
    update()
    optimizer.zero_grad()
compiled = torch._dynamo.utils.get_compilation_metrics()
print(sum(metrics.recompile_reason is not None for metrics in compiled))
"""
MARKED = """
import torch, tracekit
optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
for _ in range(10):
    for _ in range(4):
        optimizer.step()
    torch.ones(8, 8) @ torch.ones(8, 8)
    tracekit.step()
"""
GAN = """
import torch
first, second = (torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1) for _ in range(2))
for _ in range(10):
    second.step() if _ else None
    first.step()
    second.step()
"""
LONG = """
import sys, time, torch
optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
window = sys.modules["_tracekit_agent"]._agent._window
while window.state != "done":
    optimizer.step()
    print(window.state)
"""
WARMED = """
import torch
model = torch.nn.Linear(2, 2)
model(torch.ones(1, 2))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(10):
    model(torch.ones(3, 2)).sum().backward()
    optimizer.step()
"""
PROFILES = """
import torch
optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
for _ in range(5):
    optimizer.step()
with torch.profiler.profile() as profiler:
    for _ in range(5):
        optimizer.step()
print(len(profiler.events()) >= 5)
"""
# at the end of the interpreter a thread of gloo that still runs aborts the process, with tracekit or without
RANKS = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
time.sleep(1)
"""
FORKS = """
import os, torch
def train():
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
    for _ in range(9):
        optimizer.step()
if __name__ == "__main__":
    import multiprocessing
    worker = multiprocessing.get_context("METHOD").Process(target=train)
    worker.start()
    worker.join()
"""


def ran(code: str, folder: Path, store: Store, *options: str) -> tuple[Run, str]:
    (folder / "script.py").write_text(code)
    ended = collected(store.path, [PYTHON, "script.py"], folder, "--start-step", "3", *options)
    assert ended.code == 0, ended.err
    [run] = store.runs()
    return run, ended.out.decode()


def codes(run: Run) -> set[str]:
    return {diagnostic.code for diagnostic in run.meta.diagnostics}


def count(run: Run, name: str) -> int:
    names = run.arrow("host_intervals", columns=[C.NAME])[C.NAME].to_pylist()
    return [str(one) for one in names].count(name)


@pytest.mark.slow
def test_without_an_optimizer_a_step_is_a_call_of_the_first_module(tmp_path: Path, store: Store) -> None:
    run, out = ran(INFER.replace("CALLS", "9"), tmp_path, store)
    assert out == "(2, 4)\n" * 9
    assert run.rows("steps") == 5
    assert count(run, "aten::linear") == 5
    assert run.meta.timings is not None
    assert len(run.meta.timings.step_ns) == 2
    assert "steps_are_calls" in codes(run)
    assert run.meta.environment["program"]["step"] == (
        "is a call of Sequential, the first module that was called"
    )


@pytest.mark.slow
def test_steps_after_the_window_are_timed_too(tmp_path: Path, store: Store) -> None:
    run, out = ran(LONG, tmp_path, store)
    states = out.split()
    assert run.rows("steps") == 5
    timings = run.meta.timings
    assert timings is not None
    assert (len(timings.step_ns), timings.later) == (2 + 50, 50)
    assert (
        timings.left_out == states.count("timing") - 50 - SAMPLED_STEPS
    )  # which follow those that are timed


@pytest.mark.slow
def test_a_compiled_module_is_compiled_as_without(tmp_path: Path, store: Store) -> None:
    run, out = ran(COMPILED, tmp_path, store)
    assert out == "(2, 4)\n" * 9
    assert run.rows("steps") == 5


@pytest.mark.slow
def test_a_compiled_step_of_an_optimizer_is_a_step(tmp_path: Path, store: Store) -> None:
    run, out = ran(COMPILED_STEP, tmp_path, store)
    assert run.rows("steps") == 5
    assert out == "0\n", "the counts of the agent are no guards"


@pytest.mark.slow
def test_of_a_single_call_that_call_is_recorded(tmp_path: Path, store: Store) -> None:
    run, _ = ran(INFER.replace("CALLS", "1"), tmp_path, store)
    assert count(run, "aten::linear") == 1
    assert "first_call_only" in codes(run)


@pytest.mark.slow
def test_marks_of_the_program_count_and_nothing_else(tmp_path: Path, store: Store) -> None:
    run, _ = ran(MARKED, tmp_path, store)
    assert run.rows("steps") == 5
    assert count(run, "aten::mm") == 5
    assert count(run, "Optimizer.step#SGD.step") == 20
    assert run.meta.environment["program"]["optimizers"][0]["steps_per_profiled_step"] == 4
    assert run.meta.environment["program"]["step"] == "ends with a call of tracekit.step()"


@pytest.mark.slow
def test_of_several_optimizers_a_step_is_a_round_of_the_first(tmp_path: Path, store: Store) -> None:
    run, _ = ran(GAN, tmp_path, store, "--steps", "3")
    assert run.rows("steps") == 3
    assert count(run, "Optimizer.step#SGD.step") == 3 * 3
    optimizers = run.meta.environment["program"]["optimizers"]
    assert sorted(optimizer["steps_per_profiled_step"] for optimizer in optimizers) == [1, 2]


@pytest.mark.slow
def test_a_call_before_there_is_an_optimizer_is_no_step_and_none_begins_inside_of_one(
    tmp_path: Path, store: Store
) -> None:
    run, _ = ran(WARMED, tmp_path, store)
    assert run.rows("steps") == 5
    assert count(run, "Optimizer.step#AdamW.step") == 5
    assert "steps_are_calls" not in codes(run)
    assert run.meta.environment["program"]["step"] == "ends with step() of AdamW, the first optimizer"
    rows = run.arrow("host_intervals", columns=[C.NAME, C.STEP]).to_pylist()
    stepped = [row[C.STEP] for row in rows if str(row[C.NAME]).startswith("Optimizer.step#")]
    assert stepped == [3, 4, 5, 6, 7]


@pytest.mark.slow
def test_a_program_that_profiles_itself_still_can(tmp_path: Path, store: Store) -> None:
    run, out = ran(PROFILES, tmp_path, store)
    assert out == "True\n"
    assert run.rows("steps") == 2
    assert "other_profiler" in codes(run)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.slow
def test_a_child_that_trains_is_recorded(method: str, tmp_path: Path, store: Store) -> None:
    run, _ = ran(FORKS.replace("METHOD", method), tmp_path, store)
    assert run.rows("steps") == 5


@pytest.mark.slow
def test_all_ranks_of_a_launcher_become_one_run(tmp_path: Path, store: Store) -> None:
    if not torch.distributed.is_available():
        pytest.skip("this torch has no distributed package")
    (tmp_path / "script.py").write_text(RANKS)
    launcher = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = collected(store.path, [*launcher, "script.py"], tmp_path, "--start-step", "2", "--steps", "2")
    assert ended.code == 0, ended.err
    [run] = store.runs()
    assert sorted(run.arrow("steps")[C.RANK].to_pylist()) == [0, 0, 1, 1]
    assert run.meta.fingerprint["world_size"] == 2
    assert "script" in run.id


ALTERNATING = """
import time, torch
optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
for number in range(80):
    time.sleep(0.3 if number % 4 == 0 else 0.05)
    optimizer.step()
"""


@pytest.mark.slow
def test_steps_of_which_every_fourth_does_more_have_their_mean_and_period(
    tmp_path: Path, store: Store
) -> None:
    (tmp_path / "train.py").write_text(ALTERNATING)
    ended = collected(store.path, [PYTHON, "train.py"], tmp_path, "--start-step", "30")
    assert ended.code == 0
    [line] = [line for line in ended.err.splitlines() if line.startswith("The mean is ")]
    assert line.endswith("times the median: the times recur every 4 steps")
    [run] = store.runs()
    assert step_time(run) > 100e6  # the mean of 112 ms and more, not the median of 50 ms
