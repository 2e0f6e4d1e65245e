"""A user's program does under `tracekit collect` what it does without, and leaves a run."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.programs import TRAIN, Ended, collected, plain
from tests.tiers import thinned
from tracekit.runs.store import Store
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run

pytest.importorskip("torch")
PYTHON = sys.executable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__main__.py").write_text(TRAIN)
    return tmp_path


def only_run(store: Store) -> Run:
    [run] = store.runs()
    assert sorted(path.name for path in store.path.iterdir()) == [".gitignore", run.id]
    return run


def codes(run: Run) -> set[str]:
    return {diagnostic.code for diagnostic in run.meta.diagnostics}


def steps(run: Run) -> list[str]:
    return [str(name) for name in run.arrow("steps")[C.NAME].to_pylist()]


def same(with_it: Ended, without: Ended) -> None:
    assert with_it.out == without.out
    assert with_it.code == without.code


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("train.py", "--steps", "11"), id="plain", marks=pytest.mark.slow),
        pytest.param(
            ("train.py", "--workers", "2", "--start-method", "fork", "--fail-after", "10"),
            id="fails-with-forked-workers",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ("train.py", "--workers", "1", "--start-method", "spawn"),
            id="spawned-worker",
            marks=pytest.mark.slow,
        ),
        pytest.param(("-m", "pkg"), id="module", marks=pytest.mark.slow),
        pytest.param(("train.py", "--no-such-option"), id="argparse"),
        pytest.param(
            ("train.py", "--steps", "2", "--fail-after", "1"), id="fails-early", marks=pytest.mark.slow
        ),
    ],
)
def test_output_and_exit_code_are_those_without(words: tuple[str, ...], folder: Path, store: Store) -> None:
    command = [PYTHON, *words]
    without, with_it = plain(command, folder), collected(store.path, command, folder)
    same(with_it, without)
    if "Traceback" in without.err:
        assert without.err[without.err.index("Traceback") :] in with_it.err, "it is the program's own"
    assert ("Traceback" in without.err) == ("--fail-after" in words)
    if without.code == 0 or "10" in words:
        run = only_run(store)
        assert steps(run) == [f"ProfilerStep#{number}" for number in range(5, 10)]
        assert run.meta.workload is not None
        assert run.meta.workload["exit_code"] == without.code
        assert run.meta.command == command
        assert run.meta.timings is not None
        assert len(run.meta.timings.step_ns) == 4
        assert run.id in with_it.err
        assert "host_peak_bytes" in run.arrow("counters")[C.METRIC].to_pylist()
    else:
        assert store.runs() == []
        assert "before anything was recorded" in with_it.err


@pytest.mark.slow_except("streams", "killed", "untouched")
@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read() + b'\\xff\\x00'); sys.exit('text')",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import atexit, sys; atexit.register(print, 'bye'); sys.exit(7)",
        "import sys; print(sys.path, sys.argv, sys.flags)",
    ],
    ids=["streams", "killed", "atexit", "untouched"],
)
def test_a_program_without_torch_is_left_alone(code: str, folder: Path, store: Store) -> None:
    command = [PYTHON, "-c", code, "a", "--b"]
    without = plain(command, folder, b"in\xfe\n")
    with_it = collected(store.path, command, folder, stdin=b"in\xfe\n")
    assert with_it.out == without.out
    expected = without.code if without.code > 0 else 128 - without.code
    assert with_it.code == (expected if without.code else 5)
    assert store.runs() == []


def test_a_sitecustomize_of_the_environment_still_runs(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sitecustomize.py").write_text("import sys; sys.customized = getattr(sys, 'customized', 0) + 1")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    command = [PYTHON, "-c", "import sitecustomize, sys; print(sys.customized, sitecustomize, sys.path)"]
    without, with_it = plain(command, folder), collected(store.path, command, folder)
    assert without.out.startswith(b"1 <module 'sitecustomize' from")
    assert with_it.out == without.out


NOTHING = {
    "import torch": "used no optimizer and called no module; mark the end of each step",
    "pass": "no Python process that imported torch",
}


@pytest.mark.parametrize("code", thinned(NOTHING, default=["pass"]))
def test_nothing_recorded_is_exit_code_5_and_one_line(code: str, folder: Path, store: Store) -> None:
    ended = collected(store.path, [PYTHON, "-c", code], folder)
    assert (ended.code, ended.out) == (5, b"")
    assert NOTHING[code] in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.slow
def test_a_program_too_short_for_its_window_says_how_long_it_was(folder: Path, store: Store) -> None:
    ended = collected(store.path, [PYTHON, "train.py", "--steps", "2"], folder)
    assert ended.code == 5
    assert "ended after 2 steps; recording would have started after step 5; use --start-step 1" in ended.err


@pytest.mark.slow
def test_a_window_that_is_cut_short_keeps_its_whole_steps(folder: Path, store: Store) -> None:
    command = [PYTHON, "train.py", "--steps", "4"]
    ended = collected(store.path, command, folder, "--start-step", "1", "--keep-trace")
    assert ended.code == 0
    run = only_run(store)
    assert steps(run) == [f"ProfilerStep#{number}" for number in (1, 2, 3)]
    assert "window_cut_short" in codes(run)
    assert "after 3 of 5 profiled steps" in ended.err
    assert (run.path / "trace.json.gz").is_file()


@pytest.mark.slow
def test_from_the_first_step_on_nothing_is_timed(folder: Path, store: Store) -> None:
    command = [PYTHON, "train.py", "--steps", "3"]
    ended = collected(store.path, command, folder, "--start-step", "0", "--steps", "2", "--format", "json")
    run = only_run(store)
    assert steps(run) == ["ProfilerStep#0", "ProfilerStep#1"]
    assert run.meta.timings is None
    last = ended.err.splitlines()[-1]
    assert json.loads(last) == {"schema": "tracekit.collect/1", "runs": [run.id]}


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrapper",
    [(PYTHON,), ("uv", "run", "--no-project", "--offline", "python"), ("env", "X=1", "nice", PYTHON)],
    ids=["plain", "uv", "env"],
)
def test_two_programs_of_one_command_are_two_runs(
    wrapper: tuple[str, ...], folder: Path, store: Store
) -> None:
    if shutil.which(wrapper[0]) is None:
        pytest.skip(f"{wrapper[0]} is not installed")
    (folder / "second.py").write_text(TRAIN)
    commands = [shlex.join([*wrapper, name, "--steps", "11"]) for name in ("train.py", "second.py")]
    ended = collected(store.path, ["bash", "-c", "; ".join(commands)], folder, "--keep-trace")
    assert ended.code == 0, ended.err
    runs = store.runs()
    assert sorted((run.meta.workload or {})["name"] for run in runs) == ["second", "train"]
    assert sorted(run.meta.fingerprint["process"] for run in runs) == [1, 2]
    assert all((run.path / "trace.json.gz").exists() for run in runs)
    assert "2 runs: each window, and each process that is no rank, is a run" in ended.err


@pytest.mark.slow
def test_a_program_that_is_too_short_beside_another_is_said(folder: Path, store: Store) -> None:
    (folder / "short.py").write_text(TRAIN)
    script = f"{PYTHON} short.py --steps 3; {PYTHON} train.py --steps 11"
    ended = collected(store.path, ["bash", "-c", script], folder)
    run = only_run(store)
    assert (run.meta.workload or {})["name"] == "train"
    assert "another process (short) was not recorded: it ended after 3 steps" in ended.err


LOOP = """
import torch
class Server:
    def __init__(self):
        self.model = torch.nn.Linear(8, 4)
    def handle(self, x):
        return self.model(self.model(x) @ torch.ones(4, 8))  # two calls of a module in a step
def main():
    server = Server()
    for number in range(30):
        server.handle(torch.ones(2, 8))
    print("done", number)
main()
"""


@pytest.mark.slow
def test_calls_of_a_named_method_are_the_steps(folder: Path, store: Store) -> None:
    (folder / "loop.py").write_text(LOOP)
    options = ["--step-on", "loop:Server.handle", "--start-step", "3", "--steps", "4", "--timed-steps", "7"]
    ended = collected(store.path, [PYTHON, "loop.py"], folder, *options, "--light")
    assert (ended.code, ended.out) == (0, b"done 29\n"), ended.err
    run = only_run(store)
    assert run.meta.collector.options["step"] == "function"
    assert run.meta.environment["program"]["step"] == "is a call of loop:Server.handle (--step-on)"
    assert steps(run) == [f"ProfilerStep#{number}" for number in range(3, 7)]
    assert not run.meta.fingerprint["profiler_record_shapes"]
    assert run.meta.timings is not None
    assert run.meta.timings.later <= 7
    assert (
        "tracekit: profiled 4 steps; the program goes on; Ctrl-C ends it and keeps the profile" in ended.err
    )
    assert "Profiling: a profiled step takes" in ended.err


@pytest.mark.slow
def test_a_wrong_function_is_named(folder: Path, store: Store) -> None:
    (folder / "loop.py").write_text(LOOP)
    ended = collected(store.path, [PYTHON, "loop.py"], folder, "--step-on", "loop:Server.serve")
    assert ended.code == 5
    assert "loop:Server.serve was not called" in ended.err


@pytest.mark.slow
def test_a_program_ends_after_the_profile_if_asked(folder: Path, store: Store) -> None:
    command = [PYTHON, "train.py", "--steps", "3000"]
    ended = collected(store.path, command, folder, "--stop-after-profile", "--timed-steps", "0")
    assert ended.code == 0, ended.err
    assert len(ended.out.splitlines()) < 100
    assert (only_run(store).meta.workload or {})["exit_code"] == 0


@pytest.mark.slow
def test_windows_now_and_then_are_runs_of_one_configuration(folder: Path, store: Store) -> None:
    command = [PYTHON, "train.py", "--steps", "60"]
    options = ["--every", "5", "--steps", "2", "--timed-steps", "0"]
    ended = collected(store.path, command, folder, *options)
    assert ended.code == 0, ended.err
    runs = store.runs()
    assert len(runs) > 2
    assert [(run.meta.workload or {})["window"] for run in runs] == list(range(1, len(runs) + 1))
    assert all(run.meta.fingerprint["process"] is None for run in runs)
    assert all(run.rows("steps") == 2 for run in runs)
