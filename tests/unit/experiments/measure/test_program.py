"""One measurement: a fresh process in a worktree, and what is read from it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.runs import make_run
from tracekit.errors import CollectionError, UnusableInputError
from tracekit.experiments import process
from tracekit.experiments.measure import Program, Reading, measure, prepare, program
from tracekit.experiments.process import ProgramError
from tracekit.runs.meta import Timings
from tracekit.runs.metrics import of_run
from tracekit.schema import C

if TYPE_CHECKING:
    from tests.conftest import Git
    from tracekit.runs.store import Store

PYTHON = sys.executable
SAY_AND_SLEEP = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
MEASURE = f"""
import os, sys
from pathlib import Path
from tracekit.experiments import process
words = [sys.executable, "-c", {SAY_AND_SLEEP!r}, sys.argv[1]]
process.run(words, folder=Path.cwd(), environment=os.environ)
"""


def run(code: str, **options: Any) -> process.Finished:
    return process.run([PYTHON, "-c", code], folder=Path.cwd(), environment=dict(os.environ) | options)


def test_time_and_memory_are_those_of_the_program_not_of_tracekit() -> None:
    small, big = run("pass"), run("import time; block = b'1' * (300 << 20); time.sleep(0.2)")
    assert small.peak_bytes < 60 << 20 < psutil.Process().memory_info().rss, "a parent's memory would count"
    assert 300 << 20 < big.peak_bytes < 400 << 20
    assert big.wall_ns > 200_000_000


def test_output_variables_and_signals_pass_and_input_is_empty() -> None:
    code = "import os, signal, sys; print(os.environ['A'], sys.stdin.read(), signal.pthread_sigmask(0, []))"
    assert run(code, A="1").output == "1  set()\n"


@pytest.mark.parametrize(
    ("code", "message", "tail"),
    [
        ("import sys; print('why', file=sys.stderr); sys.exit(3)", "exit code 3", "why"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL", ""),
    ],
)
def test_a_program_that_fails_says_how(code: str, message: str, tail: str) -> None:
    with pytest.raises(ProgramError, match=message) as failed:
        run(code)
    assert failed.value.tail == tail


def test_a_program_that_is_not_there_is_unusable() -> None:
    with pytest.raises(UnusableInputError, match="no-such-program cannot be started: No such file"):
        process.run(["no-such-program"], folder=Path.cwd(), environment=dict(os.environ))


def test_what_a_program_left_running_ends_with_it(tmp_path: Path) -> None:
    left = tmp_path / "pid"
    code = (
        f"import subprocess, sys; open({str(left)!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid))"
    )
    run(code)
    _wait_for_end(int(left.read_text()))


def test_a_program_does_not_outlive_a_killed_tracekit(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    measuring = subprocess.Popen([PYTHON, "-c", MEASURE, str(pid)])
    while not (pid.exists() and pid.read_text()):
        time.sleep(0.01)
        assert measuring.poll() is None
    measuring.kill()
    measuring.wait()
    _wait_for_end(int(pid.read_text()))


def test_an_interrupted_program_has_time_to_clean_up(tmp_path: Path) -> None:
    pid, cleaned = tmp_path / "pid", tmp_path / "cleaned"
    program = (
        "import os, signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), "
        f"open({str(cleaned)!r}, 'w'), sys.exit()))\n"
        f"open({str(pid)!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(600)"
    )
    measure = (
        "import os, sys; from pathlib import Path; from tracekit.experiments import process\n"
        "process._GRACE_SECONDS = 100\n"  # on a busy machine the default may pass before the program is done
        "process.run([sys.executable, '-c', sys.argv[1]], folder=Path.cwd(), environment=os.environ)"
    )
    measuring = subprocess.Popen([PYTHON, "-c", measure, program], stderr=subprocess.DEVNULL)
    while not (pid.exists() and pid.read_text()):
        time.sleep(0.01)
        assert measuring.poll() is None
    measuring.send_signal(signal.SIGINT)
    measuring.wait()
    _wait_for_end(int(pid.read_text()))
    assert cleaned.exists()


def test_imports_and_files_are_those_of_the_worktree(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, tree = Path.cwd(), tmp_path / "tree"
    for folder, number in ((root, 1), (tree, 2)):
        for below in ("src", "lib", "sub"):
            (folder / below).mkdir(parents=True)
        for name in ("top.py", "src/inner.py", "lib/other.py"):
            (folder / name).write_text(f"x = {number}\n")
    (tree / "sub" / "main.py").write_text("import top, inner, other; print(top.x, inner.x, other.x, sep='')")
    monkeypatch.setenv("PYTHONPATH", str(root / "lib"))
    reading = Reading(r"(\d+)", "count")
    made = program((PYTHON, "main.py"), root, folder=root / "sub", reading=reading)
    assert measure(made, tree, scratch=tmp_path / "runs").values["value"] == 222
    silent = program((PYTHON, "-c", ""), root, reading=reading)
    with pytest.raises(CollectionError, match="matches nothing"):
        measure(silent, tree, scratch=tmp_path / "runs")


def test_files_of_the_users_tree_by_absolute_path_are_refused(git: Git) -> None:
    with pytest.raises(UnusableInputError, match="same at every commit"):
        program((PYTHON, str(Path("file.txt").resolve())), Path.cwd())


def test_an_interpreter_that_git_does_not_know_stays_where_it_is(git: Git) -> None:
    interpreter = Path(".venv/bin/python")
    interpreter.parent.mkdir(parents=True)
    interpreter.symlink_to(PYTHON)
    made = program((str(interpreter), "file.txt"), Path.cwd())
    assert made.command == (str(Path.cwd() / interpreter), "file.txt")
    assert program(("./file.txt",), Path.cwd()).command == ("./file.txt",)


def test_a_setup_runs_in_the_worktree(tmp_path: Path) -> None:
    made = Program(command=("true",), repository=tmp_path)
    prepare(made, tmp_path, "echo built > built", scratch=tmp_path / "runs")
    assert (tmp_path / "built").read_text() == "built\n"
    with pytest.raises(ProgramError, match="exit code 4"):
        prepare(made, tmp_path, "exit 4", scratch=tmp_path / "runs")


def test_a_stored_run_has_the_metrics_it_measured(store: Store) -> None:
    def sample(metric: str, value: float, device: int | None) -> dict[str, Any]:
        unit = {C.UNIT: "bytes", C.SOURCE: "torch", C.T_NS: 0}
        return {**unit, C.METRIC: metric, C.VALUE: value, C.DEVICE: device}

    counters = [
        sample("host_peak_bytes", 5.0, None),
        sample("device_peak_allocated_bytes", 7.0, 0),
        sample("device_peak_allocated_bytes", 9.0, 1),
        sample("device_peak_reserved_bytes", 11.0, 1),
    ]
    full = make_run(store, tables={"counters": counters}, timings=Timings([1, 9, 4, 2], [], "perf_counter"))
    assert of_run(full) == {"step_time": 4.0, "host_peak": 5.0, "device_peak": 9.0}
    assert of_run(make_run(store, after_s=1)) == {}


def _wait_for_end(pid: int) -> None:
    """Ends by the test's own limit of time if the process never does."""
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        ("step: fast", "'fast', which is not a number"),
        ("step: 0", "not above 0"),
        ("step: nan", "not above 0"),
        ("", "nothing"),
    ],
)
def test_what_is_no_value_is_nothing_measured(printed: str, message: str) -> None:
    with pytest.raises(CollectionError, match=message):
        Reading("step: (.*)").read(printed)


def test_the_mean_of_what_is_printed_counts_in_its_unit() -> None:
    text = "step: 3\nstep: 1\nstep: 5\n"
    assert [Reading(r"^step: (\d+)$", unit).read(text) for unit in ("ms", "s", "KiB", "count")] == [
        3e6,
        3e9,
        3072,
        3,
    ]
