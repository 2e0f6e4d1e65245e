"""How the agent enters a Python process, and how it leaves one: the program does what it does without it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.environment import HANG_SECONDS
from tracekit.recording.agent import STARTUP, VARIABLE, environment_with_agent
from tracekit.recording.agent.agent import AgentRequest

if TYPE_CHECKING:
    from pathlib import Path

NOT_TORCH = "torch = 1"
"""A module of that name that cannot be recorded."""
PROGRAM = "import sys; print([path for path in sys.path if 'startup' in path]); import torch"
LATE = """
import sys
known, sys.path[:] = sys.path[:], []
try:
    import torch
except ModuleNotFoundError as error:
    print(error)
sys.path[:] = known
import torch
"""
ENDINGS = """
import multiprocessing, os, signal, sys, threading
from tracekit.recording.agent import step_hooks

def finish(exit_code):
    print("finished by", "worker" if os.getpid() != OWNER else "program", flush=True)

def work():
    step_hooks.at_exit(finish)

if __name__ == "__main__":
    OWNER = os.getpid()
    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join()
    step_hooks.at_exit(finish)
    thread = threading.Thread(target=step_hooks.before_signals, args=[finish])
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # only the main thread can set handlers
    step_hooks.before_signals(finish)
    for ending in (sys.exit, lambda: os.kill(os.getpid(), signal.SIGTERM)):
        child = os.fork()
        if not child:
            ending()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
"""


def run(
    code: str, own: Path, *, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program with a folder of its own modules."""
    given = os.environ if environment is None else environment
    paths = [*filter(None, [given.get("PYTHONPATH")]), str(own)]
    variables = {**given, "PYTHONPATH": os.pathsep.join(paths)}
    words = [sys.executable, "-c", code]
    return subprocess.run(words, env=variables, cwd=own, capture_output=True, text=True, timeout=HANG_SECONDS)


def recorded(directory: Path) -> dict[str, str]:
    request = AgentRequest(
        str(directory),
        profiler="torch",
        start_step=1,
        steps=1,
        stacks=False,
        no_host_samples=True,
        collector_pid=1,
    )
    return environment_with_agent(vars(request), dict(os.environ))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "torch.py").write_text(NOT_TORCH)
    return folder


@pytest.mark.parametrize("exists", [True, False])
def test_a_torch_that_cannot_be_recorded_does_not_end_the_program(
    exists: bool, own: Path, tmp_path: Path
) -> None:
    done = run(PROGRAM, own, environment=recorded(tmp_path if exists else tmp_path / "removed"))
    assert (done.returncode, done.stdout) == (0, "[]\n")
    assert done.stderr.startswith("tracekit: cannot record this program: ") == exists
    assert bool(done.stderr) == exists


def test_torch_may_be_found_only_later(own: Path, tmp_path: Path) -> None:
    done = run(LATE, own, environment=recorded(tmp_path))
    assert (done.returncode, done.stdout) == (0, "No module named 'torch'\n")
    assert done.stderr.startswith("tracekit: cannot record this program")


@pytest.mark.parametrize(
    "customized", ["print('customized')", "import no_such_module", "raise OSError('own')", None]
)
def test_a_sitecustomize_of_the_program_does_what_it_does_alone(
    customized: str | None, own: Path, tmp_path: Path
) -> None:
    if customized:
        (own / "sitecustomize.py").write_text(customized)
    code = "import sitecustomize; print(sitecustomize.__name__)"
    without = run(code, own) if customized else None
    done = run(code, own, environment=recorded(tmp_path))
    if without:
        assert (done.returncode, done.stdout) == (without.returncode, without.stdout)
        assert done.stderr.splitlines()[-1:] == without.stderr.splitlines()[-1:]
    else:
        assert (done.stdout, done.stderr) == ("sitecustomize\n", "")


def test_an_agent_that_cannot_be_loaded_does_not_end_the_program(own: Path, tmp_path: Path) -> None:
    startup = tmp_path / "agent" / "startup"
    startup.mkdir(parents=True)
    startup.joinpath("sitecustomize.py").symlink_to(STARTUP / "sitecustomize.py")
    environment = {**recorded(tmp_path), "PYTHONPATH": str(startup)}
    done = run(PROGRAM, own, environment=environment)
    assert (done.returncode, done.stdout) == (0, "[]\n")
    assert done.stderr.startswith("tracekit: cannot record this Python process: FileNotFoundError")
    del environment[VARIABLE]
    assert run(PROGRAM, own, environment=environment).stderr == ""


def test_a_recording_is_finished_once_by_the_process_that_began_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(ENDINGS)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["finished by worker", "0", "-15", "finished by program"]
    assert (done.returncode, done.stderr) == (-15, "")
