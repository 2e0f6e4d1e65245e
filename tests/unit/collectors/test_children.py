"""A child process and its descendants end no later than the collector."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from tracekit.collectors.children import child, end

from tests.environment import HANG_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

STARTS_ANOTHER = """
import subprocess, sys, time
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
other = subprocess.Popen(sleeper, start_new_session=True)
print(other.pid, flush=True)
time.sleep(float(sys.argv[1]))
"""
COLLECTOR = """
import subprocess, sys
from tracekit.collectors.children import child
with child([sys.executable, "-c", sys.argv[1], "600"], stdout=subprocess.PIPE) as process:
    print(process.stdout.readline(), process.pid, flush=True)
    process.wait()
"""


def gone(pids: list[int]) -> bool:
    """Whether these processes end; one that waits for its parent to take notice has ended."""
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("seconds", ["0", "600"])
def test_descendants_in_other_sessions_end_with_the_block(seconds: str) -> None:
    command = [sys.executable, "-c", STARTS_ANOTHER, seconds]
    before = psutil.Process().children()  # of other tests
    with child(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        other = int(process.stdout.readline())
        if seconds == "0":
            assert process.wait() == 0
    assert not psutil.pid_exists(other)
    assert not psutil.pid_exists(process.pid)
    assert set(psutil.Process().children()) <= set(before)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_child_ends_when_the_collector_is_killed(number: signal.Signals) -> None:
    command = [sys.executable, "-c", COLLECTOR, STARTS_ANOTHER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as collector:
        assert collector.stdout
        other = int(collector.stdout.readline())
        guard = int(collector.stdout.readline())
        family = psutil.Process(collector.pid).children(recursive=True)
        assert guard in [one.pid for one in family]
        collector.send_signal(number)
        collector.wait(HANG_SECONDS)
    assert gone([other, guard, *(one.pid for one in family)])


def test_the_guard_returns_the_exit_code_or_signal_of_the_program() -> None:
    with child([sys.executable, "-c", "raise SystemExit(7)"]) as process:
        assert process.wait() == 7
    with child(["sh", "-c", "kill -9 $$"]) as process:
        assert process.wait() == -signal.SIGKILL


def test_a_missing_program_returns_127_and_an_error_message(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    with log.open("wb") as words, child(["/nowhere/program"], stderr=words) as process:
        assert process.wait() == 127
    assert log.read_text() == "/nowhere/program: No such file or directory\n"
    (tmp_path / "plain").write_text("")
    with log.open("wb") as words, child([str(tmp_path / "plain")], stderr=words) as process:
        assert process.wait() == 126
    assert "Permission denied" in log.read_text()


def test_a_program_that_ignores_sigterm_is_killed() -> None:
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)"
    with child([sys.executable, "-c", stubborn + "; time.sleep(600)"], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        [program] = psutil.Process(process.pid).children()
    assert not program.is_running()


def test_killing_the_guard_kills_the_program() -> None:
    with child([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        while not (programs := psutil.Process(process.pid).children()):
            assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert gone([programs[0].pid])


def test_ending_twice_is_harmless() -> None:
    with child(["true"]) as process:
        end(process)
        end(process)
    assert process.returncode is not None
