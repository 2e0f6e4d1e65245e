"""However a program ends, it ends under `tracekit collect` as it does alone, and leaves nothing running."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from tests.environment import HANG_SECONDS
from tests.integration.programs import MAIN

pytest.importorskip("torch")
LONGER_S, TIMES = 30, 4
"""Time that `collect` may take beside so many times the program's own, which is long on a busy machine."""
MODEL = """
import atexit, os, signal, subprocess, sys, threading, time
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def train(steps=3):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
def child(work, leave=sys.exit):
    pid = os.fork()
    if pid == 0:
        work()
        print("child", flush=True)
        leave(4)
    return pid
def wait(pid):
    print("child ended with", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
IN_PROCESS = """
import multiprocessing
if __name__ == "__main__":
    train()
    process = multiprocessing.get_context({0!r}).Process(target=train)
    process.start()
    process.join(60)
    print("worker", process.exitcode)
"""
ENDINGS = {
    "fork before the window": "wait(child(train)); train()",
    "fork inside the window": "train(1); wait(child(train)); train()",
    "fork after the window": "train(6); wait(child(train)); train()",
    "fork, and the child leaves at once": "train(6); wait(child(train, os._exit)); train()",
    "fork, and the parent leaves first": "train(6)\nchild(lambda: time.sleep(1))\nsys.exit(3)",
    "fork of a fork": "train(6); wait(child(lambda: wait(child(train))))",
    "spawn": IN_PROCESS.format("spawn"),
    "forkserver": IN_PROCESS.format("forkserver"),
    "exec": "train(6); sys.stdout.flush(); os.execv('/bin/sh', ['sh', '-c', 'echo replaced; exit 5'])",
    "daemon": "train(6); subprocess.Popen(['sleep', '1'], start_new_session=True); print('left')",
    "os._exit": "train(6); print('last', flush=True); os._exit(6)",
    "exception": "train(6); raise SystemError('on purpose')",
    "signal": "train(6); print('last', flush=True); os.kill(os.getpid(), signal.SIGTERM)",
    "abort": "train(6); print('last', flush=True); os.abort()",
    "threads alive": "train(6); threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
    "a thread that ends later": "train(6); threading.Timer(0.5, lambda: print('thread')).start()",
    "closed descriptors": "train(6); print('last', flush=True); os.closerange(0, 3)",
    "work at exit": "atexit.register(lambda: (train(), print('at exit'))); train(6); sys.exit(7)",
    "nested": "train(6); print(subprocess.run([sys.executable, '-c', 'print(8)']).returncode)",
}


def run(words: list[str], folder: Path, mark: str) -> tuple[int, str, float]:
    environment = {**os.environ, "ENDING": mark, "TRACEKIT_STORE": str(folder / "store")}
    began = time.monotonic()
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    return done.returncode, done.stdout, time.monotonic() - began


def left(mark: str) -> list[str]:
    """Processes with the mark in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("ENDING") == mark:
                found.append(process.name())
        except psutil.Error:
            continue
    return found


@pytest.mark.slow_except("fork after the window")
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_ends_as_it_does_alone(ending: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MODEL + ENDINGS[ending])
    program, mark = [sys.executable, "train.py"], uuid.uuid4().hex
    code, output, took_s = run(program, tmp_path, mark)
    collect = [sys.executable, "-P", "-c", MAIN, "collect", "--start-step", "0", "--steps", "2"]
    recorded = run([*collect, "--", *program], tmp_path, mark)
    assert recorded[0] == (code if code >= 0 else 128 - code)
    assert recorded[1].startswith(output)
    assert recorded[2] < TIMES * took_s + LONGER_S
    deadline = time.monotonic() + 5
    while left(mark) and time.monotonic() < deadline:
        os.sched_yield()
    assert left(mark) == []
