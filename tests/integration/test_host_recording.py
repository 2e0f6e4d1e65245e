"""What the agent records of the host of a program beside the trace, in one recording of all of it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.integration.clean_programs import HEAD, PROGRAMS
from tests.integration.programs import collected
from tracekit.analysis import Severity, analyze
from tracekit.analysis.findings import advise
from tracekit.analysis.verdict import judge
from tracekit.runs.range_names import COLLECTION
from tracekit.runs.store import Store
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run

pytest.importorskip("torch")

PROGRAM = """
import gc
import threading
import torch
from torch.utils.data import DataLoader, TensorDataset

def collate(samples):
    return torch.stack([torch.stack(sample) for sample in samples])

def tokenize(numbers):
    return sum(number * number for number in range(numbers))

def main():
    torch.set_num_threads(3)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout())
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    data = TensorDataset(torch.randn(48, 4), torch.randn(48, 4))
    for batch in DataLoader(data, 4, num_workers=1, collate_fn=collate):
        objects = [[] for _ in range(3_000)]
        tokenize(1_500_000)
        loss = model(batch).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(gc.callbacks, [thread.name for thread in threading.enumerate()])

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, str, str]:
    folder = tmp_path_factory.mktemp("host")
    (folder / "train.py").write_text(PROGRAM)
    store = Store(folder / "store")
    ended = collected(store.path, ["env", "A=1", sys.executable, "train.py"], folder)
    assert ended.code == 0, ended.err
    [run] = store.runs()
    return run, ended.out.decode(), ended.err


@pytest.fixture(scope="module")
def run(recorded: tuple[Run, str, str]) -> Run:
    return recorded[0]


@pytest.fixture(scope="module")
def settings(run: Run) -> dict[str, Any]:
    recorded: dict[str, Any] = run.meta.environment["program"]
    return recorded


def test_the_run_is_named_for_the_script_behind_a_wrapper(recorded: tuple[Run, str, str]) -> None:
    run = recorded[0]
    assert (run.meta.workload or {})["name"] == "train"
    assert "-train-" in run.id


def test_what_a_step_is_is_said(recorded: tuple[Run, str, str], settings: dict[str, Any]) -> None:
    assert settings["step"] == "ends with step() of AdamW, the first optimizer"
    assert f"A step {settings['step']}\n" in recorded[2]


def test_threads_and_modes_are_recorded(settings: dict[str, Any]) -> None:
    assert settings["threads"]["intra_op"] == 3
    assert 1 <= settings["threads"]["affinity"] <= settings["threads"]["cores"]
    assert settings["modes"] == {
        "anomaly_detection": False,
        "deterministic_algorithms": False,
        "grad": True,
        "inference": False,
        "default_dtype": "float32",
        "flush_denormals": False,
        "outermost_module": {"class": "Sequential", "training": True},
    }


def test_loaders_and_optimizers_are_recorded(settings: dict[str, Any]) -> None:
    (loader,), (optimizer,) = settings["data_loaders"], settings["optimizers"]
    assert loader == {
        "dataset": "TensorDataset",
        "samples": 48,
        "collate": "collate",
        "num_workers": 1,
        "persistent_workers": False,
        "prefetch_factor": 2,
        "pin_memory": False,
    }
    assert optimizer == {
        "class": "AdamW",
        "foreach": True,
        "tensors": 2,
        "elements": 20,
        "sparse_gradients": 0,
        "steps_per_profiled_step": 1,
    }


def test_nothing_is_left_after_the_profiled_steps(recorded: tuple[Run, str, str]) -> None:
    assert recorded[1].startswith("[] ['MainThread'")
    assert "tracekit" not in recorded[1]


def test_pauses_of_the_garbage_collector_are_ranges_of_the_driving_thread(run: Run) -> None:
    rows = run.table("host_intervals")
    pauses = rows[rows[C.NAME].astype(str).str.startswith(COLLECTION)]
    assert set(pauses[C.KIND]) == {HostKind.ANNOTATION}
    assert set(pauses[C.TID]) == set(rows[rows[C.NAME] == "aten::linear"][C.TID])
    assert set(pauses[C.STEP]) == {5, 6, 7, 8, 9}
    assert pauses[C.PARENT_ROW].notna().all()
    tables = analyze(run, "host_breakdown").tables
    collected_ns = tables["per_step"]["garbage_collection_ns"]
    assert (collected_ns > 0).all()
    assert int(collected_ns.sum()) == int(pauses[C.DUR_NS].sum())


def test_functions_between_ops_are_sampled_and_named(run: Run) -> None:
    samples = run.table("host_samples")
    samples = samples[samples[C.RAN_NS].isna()]  # of the thread of the steps
    steps = run.table("steps")
    assert samples[C.T_NS].between(0, (steps[C.START_NS] + steps[C.DUR_NS]).max()).mean() > 0.8
    assert set(samples[C.TID]) == set(run.table("host_intervals")[C.TID].mode())
    functions = analyze(run, "host_breakdown").tables["by_function"].set_index(C.NAME)
    assert functions["samples"]["train.py(10): tokenize"] >= 3
    assert functions["source"]["train.py(10): tokenize"] == "train.py(11): tokenize"
    assert "train.py(10): tokenize, line 11" in judge(run).sentence


@pytest.mark.slow
def test_samples_can_be_turned_off(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    store = Store(tmp_path / "store")
    assert collected(store.path, [sys.executable, "train.py"], tmp_path, "--no-host-samples").code == 0
    [run] = store.runs()
    assert run.rows("host_samples") == 0
    assert "--no-host-samples" not in run.meta.command


LOOP = """
import json, os, sys, threading, time
import tracekit
import torch

def wait():
    time.sleep(0.004)

def main():
    ended = []
    for step in range(int(sys.argv[1])):
        for _ in range(5):
            wait()
        if step == 25 and len(sys.argv) > 2 and os.fork() == 0:
            os._exit(threading.active_count() - 1)
        tracekit.step()
        ended.append(time.time_ns())
    print(json.dumps([ended, [thread.name for thread in threading.enumerate()]]))

main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "options", "arguments", "later"),
    [
        (12, (), (), False),  # ends in the steps that are left out
        (90, ("--timed-steps", "20"), ("fork",), True),
        (90, ("--timed-steps", "20", "--stop-after-profile"), (), True),
        (90, ("--start-step", "0", "--timed-steps", "10"), (), True),
        (90, ("--timed-steps", "0"), (), False),
    ],
)
def test_steps_that_are_neither_profiled_nor_timed_are_sampled(
    tmp_path: Path, steps: int, options: tuple[str, ...], arguments: tuple[str, ...], *, later: bool
) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    store = Store(tmp_path / "store")
    command = [sys.executable, "loop.py", str(steps), *arguments]
    ended = collected(store.path, command, tmp_path, *options)
    assert ended.code == 0, ended.err
    [run] = store.runs()
    samples, timings = run.table("host_samples"), run.meta.timings
    times = samples[C.T_NS][samples[C.PROFILED] == 0].to_numpy() + run.meta.t0_unix_ns
    if "--timed-steps" in options and options[-1] == "0":
        assert len(times) == 0
        return
    assert len(times) >= 2
    assert (samples[C.STACK][samples[C.PROFILED] == 0].str.contains("loop.py(6): wait", regex=False)).any()
    if later and "--stop-after-profile" not in options:
        ends, threads = json.loads(ended.out.splitlines()[-1])
        assert threads == ["MainThread"]
        start = int(options[1]) if "--start-step" in options else 5
        first = start + 5 + timings.left_out
        timed = slice(first - 1, first + timings.later)
        most = int(options[options.index("--timed-steps") + 1])
        assert timings.later == min(most, steps - first)  # more are left out on a busy machine
        assert not ((times > ends[timed][0]) & (times < ends[timed][-1])).any(), "in no step that is timed"
        assert (times > ends[timed][-1]).sum() > 10
    functions = analyze(run, "host_breakdown").tables["by_function"].set_index(C.NAME)
    assert functions["unprofiled_samples"]["loop.py(6): wait"] >= 2


SAVES = """
import sys, time
import tracekit
import torch

def save():
    time.sleep(0.15)

def main():
    for step in range(110):
        time.sleep(0.01)
        if step % int(sys.argv[1]) == 0:
            save()
        tracekit.step()

main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("every", [8, 1])
def test_what_every_nth_step_does_is_named_also_if_one_of_them_is_profiled(
    tmp_path: Path, every: int
) -> None:
    (tmp_path / "saves.py").write_text(SAVES)
    store = Store(tmp_path / "store")
    command = [sys.executable, "saves.py", str(every)]
    ended = collected(store.path, command, tmp_path)
    assert ended.code == 0, ended.err
    [run] = store.runs()
    findings = {finding.code: finding for finding in analyze(run, "host_breakdown").findings}
    assert ("slow_steps_by_function" in findings) == (every > 1)
    if every > 1:
        slow = findings["slow_steps_by_function"]
        assert slow.title.startswith("Every 8 steps one takes far longer: up to ")
        assert " are in saves.py(6): save: call it less often" in slow.advice


PLANTED = """
import gc, json, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
import tracekit

class Slow(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, place):
        time.sleep(0.03)
        return torch.full((8,), float(place))

def pause():
    time.sleep(0.2)

def main():
    gc.disable()
    kept = [[place] for place in range(20_000)]
    values, output = torch.randn(300, 300), torch.empty(300, 300)
    batches = iter(DataLoader(Slow(), 1, num_workers=int(sys.argv[1])))
    lengths = []
    for step in range(12):
        at = [time.perf_counter_ns()]
        def mark():
            at.append(time.perf_counter_ns())
        next(batches); mark()
        gc.collect(); mark()
        pause(); mark()
        for _ in range(6):
            torch.mm(values, values, out=output)
        mark()
        lengths.append(at)
        tracekit.step()
    print(json.dumps(lengths))

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_parts_have_the_lengths_that_the_program_measures(tmp_path: Path, workers: int) -> None:
    (tmp_path / "planted.py").write_text(PLANTED)
    store = Store(tmp_path / "store")
    command = [sys.executable, "planted.py", str(workers)]
    ended = collected(store.path, command, tmp_path, "--start-step", "4", "--steps", "6")
    assert ended.code == 0, ended.err
    [run] = store.runs()
    clock = np.array(json.loads(ended.out.splitlines()[-1]))
    planted, between = np.diff(clock), np.append(clock[1:, 0] - clock[:-1, -1], 0)
    result = analyze(run, "host_breakdown")
    steps, states = result.tables["per_step"], result.tables["thread_states"]
    assert (states["step_ns"] == steps["step_ns"]).all()
    assert (states["on_core_ns"] + states["run_delay_ns"] + states["blocked_ns"] == states["step_ns"]).all()
    assert states["blocked_ns"].median() >= 200_000_000 - 1_000_000
    measured = steps[["loading_ns", "garbage_collection_ns", "outside_ns", "ops_ns"]].to_numpy(np.int64)
    assert (measured.sum(axis=1) <= steps["step_ns"]).all()
    names = ("loading", "garbage collection", "sleeping", "ops")
    for name, true, found in zip(names, planted[4:10].T, measured.T, strict=True):
        # what runs between the steps that the program measures is outside of ops too
        spare = (between[3:9] + between[4:10]) * (name == "sleeping")
        errors = np.maximum(found - true - spare, true - found)
        allowed = np.maximum(0.03 * true, 1_000_000)
        # a program that runs between two readings of a clock may spoil a step
        assert np.median(errors / allowed) <= 1, (name, true, found)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_ordinary_program_gets_no_warning(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.py").write_text(HEAD + PROGRAMS[name])
    store = Store(tmp_path / "store")
    ended = collected(store.path, [sys.executable, "train.py"], tmp_path)
    assert ended.code == 0, ended.err
    [run] = store.runs()
    warned = {Severity.HIGH, Severity.WARN}
    assert [ranked.finding for ranked in advise(run).findings if ranked.finding.severity in warned] == []
