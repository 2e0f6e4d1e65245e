"""The guard of a foreground program: what it passes on, what it ignores, and what it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tracekit.collectors import children, guard, program

from tests.environment import HANG_SECONDS
from tracekit.recording.agent.agent import BUSY

if TYPE_CHECKING:
    from collections.abc import Iterator

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(1, flush=True)
time.sleep(60)
"""
STARTS_STUBBORN = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {STUBBORN!r}]).wait()
"""
WAITS = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print("ready", signal.getsignal(signal.SIGINT) is signal.SIG_IGN, flush=True)
signal.sigwait({signal.SIGUSR1})
print("got it")
sys.exit(5)
"""


@contextmanager
def guarded(
    code: str, tmp_path: Path, **options: object
) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A foreground guard with a program, and the write end of its pipe."""
    pipes: list[int] = []

    @contextmanager
    def remember(send: int) -> Iterator[None]:
        pipes.append(send)
        yield

    with children.run_guarded(
        [sys.executable, "-c", code],
        environment=None,
        scratch=tmp_path / "scratch",
        while_running=remember,
        stdout=subprocess.PIPE,
        **options,
    ) as process:
        yield process, pipes


@pytest.fixture
def _like_nohup() -> Iterator[None]:
    """Ignore the signals that `nohup` and a background job of a shell ignore."""
    former = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)}
    yield
    for number, action in former.items():
        signal.signal(number, action)


@pytest.mark.usefixtures("_like_nohup")
def test_signals_that_are_ignored_stay_ignored(tmp_path: Path) -> None:
    with guarded(WAITS, tmp_path) as (process, [pipe]):
        assert process.stdout
        assert process.stdout.readline() == "ready True\n"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        os.write(pipe, bytes([signal.SIGUSR1]))
        assert process.stdout.read() == "got it\n"
        assert process.wait(HANG_SECONDS) == 5


def test_a_signal_for_a_program_that_has_ended_is_dropped(tmp_path: Path) -> None:
    with guarded(STARTS_STUBBORN, tmp_path) as (process, [pipe]):
        assert process.stdout
        process.stdout.readline()
        [started] = psutil.Process(process.pid).children()
        os.write(pipe, bytes([guard.END]))
        psutil.wait_procs([started], timeout=HANG_SECONDS)
        os.write(pipe, bytes([signal.SIGUSR1]))
        assert process.wait(HANG_SECONDS) == -signal.SIGTERM


def test_a_signal_that_the_program_received_itself_is_not_forwarded(tmp_path: Path) -> None:
    with guarded(WAITS, tmp_path) as (process, [pipe]):
        assert process.stdout
        process.stdout.readline()
        process.send_signal(signal.SIGUSR2)  # as from the terminal, which signals the program as well
        os.write(pipe, bytes([signal.SIGUSR2]))  # which would end the program
        os.write(pipe, bytes([signal.SIGUSR1]))
        assert process.stdout.read() == "got it\n"
        assert process.wait(HANG_SECONDS) == 5


def test_the_end_of_the_collector_ends_all_processes_and_removes_their_folder(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with guarded(STARTS_STUBBORN, tmp_path) as (process, [pipe]):
        assert process.stdout
        process.stdout.readline()
        started = psutil.Process(process.pid).children(recursive=True)
        with Path(os.devnull).open() as other:
            os.dup2(other.fileno(), pipe)  # closes this end, as the system does
        assert process.wait(HANG_SECONDS) == -signal.SIGKILL
    assert psutil.wait_procs(started, timeout=HANG_SECONDS)[1] == []
    assert list(tmp_path.iterdir()) == []


def test_a_second_request_to_end_ends_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    receive, send = os.pipe()
    now_s = iter([0.0, 0.1, 9.0])
    monkeypatch.setattr(program.time, "monotonic", lambda: next(now_s))
    with program.forward_signals([signal.SIGTERM], send):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # `timeout` sends each request twice
        assert os.read(receive, 9) == bytes([signal.SIGTERM])
        with pytest.raises(SystemExit, match="143"):
            signal.raise_signal(signal.SIGTERM)
    assert os.read(receive, 9) == bytes([guard.END])
    os.close(receive)
    with program.forward_signals([], send):  # of a guard that has ended
        pass
    os.close(send)


def test_a_program_is_not_started_once_its_guard_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(guard, "_control", lambda *_: None)
    monkeypatch.setattr(os, "getppid", lambda: 1)  # whoever adopts it
    pid = guard._start(["touch", str(tmp_path / "started")])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == guard.CANNOT_START
    assert list(tmp_path.iterdir()) == []


def test_attributes_of_processes_that_a_kernel_lacks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: object) -> None:
        raise OSError("no such library")

    monkeypatch.setattr(guard.ctypes, "CDLL", missing)
    guard._control(guard._SET_CHILD_SUBREAPER, 1)


@pytest.mark.parametrize(("is_suspended", "is_own"), [(False, True), (True, True), (False, False)])
def test_a_process_whose_profiler_waits_is_ended_unless_suspended_or_of_others(
    tmp_path: Path, *, is_suspended: bool, is_own: bool
) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        if is_suspended:
            process.send_signal(signal.SIGSTOP)
        busy = tmp_path / f"process-{process.pid}{BUSY}"
        busy.write_text(json.dumps({"name": "rank-0", "thread": process.pid, "at_end": False}))
        root = os.getpid() if is_own else process.pid
        with children.end_stuck_profilers(tmp_path, root, 0.2):
            if is_own and not is_suspended:
                assert process.wait(HANG_SECONDS) == -signal.SIGKILL
            else:
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(1)
        process.kill()
    assert busy.with_suffix(children.STUCK).exists() == (is_own and not is_suspended)
