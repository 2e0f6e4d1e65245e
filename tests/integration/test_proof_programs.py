"""The programs of the proof kit run to their end, and write the facts that its claims need."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import samples.proof
from samples.proof import processes
from samples.proof.recipes import RECIPES
from tracekit.runs.store import Store

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

pauses = import_module("samples.proof.programs.pauses")

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(samples.proof.__file__).parent / "programs"


def start(name: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cuda_on_cpu", str(PROGRAMS / f"{name}.py"), *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def facts_of(path: Path, name: str, *arguments: str) -> dict[str, Any]:
    process = start(name, str(path), *arguments)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    read: dict[str, Any] = json.loads(path.read_text())
    return read


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("loop", ["--width", "16"], {"steps": 20}),
        (
            "matmul",
            ["--precision", "tf32", "--size", "16", "--steps", "3"],
            {"size": 16, "precision": "tf32"},
        ),
        ("copies", ["--memory", "pinned", "--bytes", "4096"], {"memory": "pinned", "bytes": 4096}),
        ("graph", [], {"replays": 1}),
        ("optimizer", [], {"replays": 1}),
        ("visible", ["--index", "0"], {"name": "Simulated GPU", "count": 1}),
    ],
)
def test_a_program_writes_its_facts(
    name: str, arguments: list[str], expected: dict[str, Any], tmp_path: Path
) -> None:
    facts = facts_of(tmp_path / "facts.json", name, *arguments)
    assert facts.items() >= expected.items()
    assert facts.get("wall_ns", 1) > 0


class SimulatedClock:
    """Time that only spins of the device and pauses of the host take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        self.spins: list[int] = []
        cuda = pauses.torch.cuda
        monkeypatch.setattr(cuda, "_sleep", self.spin)
        monkeypatch.setattr(cuda, "synchronize", lambda: None)
        monkeypatch.setattr(cuda, "Event", partial(Moment, self))
        monkeypatch.setattr(pauses, "time", self)

    def spin(self, cycles: int) -> None:
        self.spins.append(cycles)
        self.now_ns += cycles  # of 1 GHz

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)

    def monotonic(self) -> float:
        return self.now_ns / 1e9

    def perf_counter_ns(self) -> int:
        return self.now_ns


class Moment:
    """An event at the simulated time of its recording."""

    def __init__(self, clock: SimulatedClock, *, enable_timing: bool) -> None:
        assert enable_timing
        self._clock = clock

    def record(self) -> None:
        self.ns = self._clock.now_ns

    def elapsed_time(self, end: Moment) -> float:
        return (end.ns - self.ns) / 1e6


def test_spins_and_pauses_are_as_long_as_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, facts = SimulatedClock(monkeypatch), tmp_path / "facts.json"
    monkeypatch.setattr(sys, "argv", ["pauses.py", str(facts), "--cycles", "2000000"])
    pauses.main()
    assert json.loads(facts.read_text()) == {
        "cycles": 2_000_000,
        "event_ns": 2_000_000,
        "pause_ns": [20_000_000] * 20,
    }
    assert clock.spins[-40:] == [2_000_000, 4_000_000] * 20
    assert set(clock.spins[:-40]) == {2_000_000}
    assert sum(clock.spins[:-40]) >= 1_000_000_000  # the clocks have ramped up


def test_two_ranks_share_a_gpu(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    facts = tmp_path / "facts.json"
    ranks = [start("ranks", str(facts), RANK=rank, LOCAL_RANK=rank, **shared) for rank in ("0", "1")]
    ended = [one.communicate(timeout=200)[1] for one in ranks]
    assert [one.returncode for one in ranks] == [0, 0], ended
    assert json.loads(facts.read_text()) == {"world_size": 2, "backend": "gloo"}


def test_a_deliberate_error_ends_its_program() -> None:
    process = start("fault")
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 1
    assert "out of bounds" in errors


def test_too_large_a_batch_is_asked_for(tmp_path: Path) -> None:
    process = start("overflow", "--store", str(tmp_path), "--device", "cuda")
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 2
    assert "torch can use no GPU" in errors  # of the recorded process, which is not replaced


def test_the_probe_names_the_gpus() -> None:
    out, errors = start("probe").communicate(timeout=200)
    found = json.loads(out)
    assert (found["available"], found["reason"], found["names"]) == (True, "", ["Simulated GPU"]), errors


SMALL = {
    "loop-attached": ["--width", "16"],
    "matmul-bf16": ["--size", "16"],
    "copy-pageable": ["--bytes", "4096"],
    "pauses": ["--cycles", "100000"],
    "cuda-graph": [],
    "captured-optimizer": [],
    "visible-devices": [],
}
"""Recipes that record one process of a program, and arguments that make its work small."""


@pytest.mark.parametrize("name", SMALL)
def test_a_recipe_records_all_steps_of_its_window(name: str, tmp_path: Path) -> None:
    (recipe,) = (one for one in RECIPES if one.name == name)
    at = recipe.command.index("--") + 2
    words = (*recipe.command[:at], "-m", "tests.cuda_on_cpu", *recipe.command[at:], *SMALL[name])
    small = replace(recipe, command=words)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    ended = processes.run(
        small, tmp_path / "out", store=tmp_path / "store", last="0", seconds=250, environment=environment
    )
    assert (ended.state, ended.reason) == (processes.State.OK, ""), ended.errors
    assert ended.facts
    (run,) = Store(tmp_path / "store").runs()
    assert run.meta.label == name
    assert run.rows("steps") == int(words[words.index("--steps") + 1])
    assert [one.message for one in run.meta.diagnostics if one.level != "info"] == []
