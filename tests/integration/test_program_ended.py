"""A recorded program that is interrupted, ended or killed, and what is left then."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.environment import HANG_SECONDS
from tests.integration.programs import collecting, variables
from tests.tiers import thinned

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.store import Store

pytest.importorskip("torch")
TRAINS = """
import torch
optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
for _ in range(STEPS):
    optimizer.step()
"""
SCRIPT = f"""
import os, signal, sys, time, subprocess
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
{TRAINS}
try:
    print("ready", os.getpid(), helper.pid, flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("once", flush=True)
    helper.kill()
    try:
        time.sleep(0.5)
    except KeyboardInterrupt:
        print("twice", flush=True)
    sys.exit(9)
"""
OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
WINDOW = 10


def start(
    store: Store, folder: Path, steps: int, *, before: str = "", **streams: int
) -> subprocess.Popen[bytes]:
    (folder / "script.py").write_text(before + SCRIPT.replace("STEPS", str(steps)))
    command = collecting(store.path, [sys.executable, "script.py"])
    return subprocess.Popen(command, cwd=folder, env=variables(), **streams)


def ready(stream: int) -> list[psutil.Process]:
    """Wait for the program's own word; returns its processes."""
    heard = b""
    while b"ready" not in heard or not heard.endswith(b"\n"):
        read = os.read(stream, 4096)
        assert read, "it ended before it was ready"
        heard += read
    return [psutil.Process(int(word)) for word in heard.split()[-2:]]


def left_over(store: Store) -> list[str]:
    return sorted(path.name for path in store.path.iterdir() if path.name != ".gitignore")


def gone(processes: list[psutil.Process]) -> bool:
    return psutil.wait_procs(processes, timeout=HANG_SECONDS)[1] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "steps"),
    thinned(
        [(signal.SIGTERM, 7), (signal.SIGTERM, WINDOW), (signal.SIGHUP, 7)], default=[(signal.SIGTERM, 7)]
    ),
)
def test_asked_to_end_the_program_ends_and_what_was_recorded_is_kept(
    number: signal.Signals, steps: int, tmp_path: Path, store: Store
) -> None:
    with start(store, tmp_path, steps, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as collector:
        assert collector.stdout
        assert collector.stderr
        program, helper = ready(collector.stdout.fileno())
        collector.send_signal(number)
        assert collector.wait(HANG_SECONDS) == 128 + number
        helper.kill()  # it has the other end of the pipe, too
        said = collector.stderr.read()
    assert gone([program])
    [run] = store.runs()
    assert run.rows("steps") == steps - 5
    assert f"the program was ended by {number.name}".encode() in said
    assert left_over(store) == [run.id]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 9)])
def test_a_program_without_torch_gets_each_signal_once(
    number: signal.Signals, code: int, tmp_path: Path, store: Store
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.replace(TRAINS, ""))
    command = collecting(store.path, [sys.executable, "script.py"])
    with subprocess.Popen(command, cwd=tmp_path, env=variables(), stdout=subprocess.PIPE) as collector:
        assert collector.stdout
        program, helper = ready(collector.stdout.fileno())
        collector.send_signal(number)
        if number == signal.SIGINT:
            assert collector.stdout.read() == b"once\n"
        assert collector.wait(HANG_SECONDS) == code
        if number == signal.SIGTERM:
            helper.kill()
    assert gone([program, helper])
    assert store.runs() == []
    assert left_over(store) == []


@pytest.mark.slow
@pytest.mark.parametrize("handled", ["sys.exit(7)", "os.write(1, b'asked\\n')"])
def test_a_program_ends_in_its_own_way_and_a_second_request_ends_it_at_once(
    handled: str, tmp_path: Path, store: Store
) -> None:
    handler = f"import os, signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: {handled})\n"
    with start(store, tmp_path, WINDOW, before=handler, stdout=subprocess.PIPE) as collector:
        assert collector.stdout
        program, helper = ready(collector.stdout.fileno())
        collector.send_signal(signal.SIGTERM)
        if "exit" in handled:
            assert collector.wait(HANG_SECONDS) == 7
            helper.kill()
        else:
            assert os.read(collector.stdout.fileno(), 99) == b"asked\n"
            time.sleep(1)
            collector.send_signal(signal.SIGTERM)
            assert collector.wait(HANG_SECONDS) == 128 + signal.SIGTERM
    assert gone([program, helper])
    assert left_over(store) == [run.id for run in store.runs()]
    assert len(left_over(store)) == ("exit" in handled)


@pytest.mark.slow
def test_killed_outright_it_takes_the_program_and_its_folder_along(tmp_path: Path, store: Store) -> None:
    with start(store, tmp_path, 1, stdout=subprocess.PIPE) as collector:
        assert collector.stdout
        program = ready(collector.stdout.fileno())
        [guard] = psutil.Process(collector.pid).children()
        collector.kill()
        collector.wait(HANG_SECONDS)
    assert gone([*program, guard])
    assert left_over(store) == []


@pytest.mark.slow
def test_an_interrupt_is_the_programs_and_what_was_recorded_is_kept(tmp_path: Path, store: Store) -> None:
    with start(store, tmp_path, WINDOW, stdout=subprocess.PIPE) as collector:
        assert collector.stdout
        program = ready(collector.stdout.fileno())
        collector.send_signal(signal.SIGINT)
        assert collector.stdout.read() == b"once\n"
        assert collector.wait(HANG_SECONDS) == 9
    assert gone(program)
    [run] = store.runs()
    assert run.rows("steps") == 5
    assert left_over(store) == [run.id]


@pytest.mark.slow
def test_on_a_terminal_one_key_is_one_interrupt(tmp_path: Path, store: Store) -> None:
    """The terminal interrupts the whole foreground; the collector must not add to it."""
    (tmp_path / "script.py").write_text(SCRIPT.replace("STEPS", "1"))
    terminal, inside = pty.openpty()
    command = [sys.executable, "-c", OWN_TERMINAL, *collecting(store.path, [sys.executable, "script.py"])]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), inside)
    collector = subprocess.Popen(command, cwd=tmp_path, env=variables(), start_new_session=True, **streams)
    os.close(inside)
    with collector:
        program = ready(terminal)
        os.write(terminal, b"\x03")
        heard = everything(terminal)
    os.close(terminal)
    assert collector.returncode == 9
    assert heard.count(b"once") == 1
    assert b"twice" not in heard
    assert b"before anything was recorded" in heard
    assert gone(program)
    assert left_over(store) == []


def everything(terminal: int) -> bytes:
    heard = b""
    while True:
        try:
            read = os.read(terminal, 4096)
        except OSError:  # how Linux says that nobody is left on it
            return heard
        if not read:
            return heard
        heard += read
