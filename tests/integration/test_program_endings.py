"""However a program ends, it ends under `tracekit collect` as it does alone, and leaves nothing running."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
import uuid
from pathlib import Path

import psutil
import pytest

from tests.environment import HANG_SECONDS
from tests.integration.programs import MAIN
from tracekit.runs.store import Store

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
NESTED = f"""
code = "import torch; o = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), 1); o.step(); o.step()"
words = [sys.executable, "-P", "-c", {MAIN!r}, "collect", "--start-step", "0", "--steps", "2"]
done = subprocess.run([*words, "--store", "inner", "--", sys.executable, "-c", code], capture_output=True)
print("inner", done.returncode, done.stderr.count(b"Traceback"))
"""
EMBEDDED = """
#include <Python.h>
int main(int count, char **words) {
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  PyConfig_SetBytesString(&config, &config.program_name, words[1]);
  PyStatus status = Py_InitializeFromConfig(&config);
  if (PyStatus_Exception(status)) Py_ExitStatusException(status);
  FILE *file = fopen(words[2], "r");
  int failed = PyRun_SimpleFile(file, words[2]);
  if (count > 3) return 12;
  return Py_FinalizeEx() || failed ? 11 : 10;
}
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
    "fork, and the parent leaves inside the window": "train(1)\nchild(lambda: train(4))\nsys.exit(3)",
    "fork, and the parent leaves before the window": "child(lambda: time.sleep(1))\ntrain()\nsys.exit(3)",
    "fork that becomes another program": (
        "train(6); wait(child(lambda: os.execl('/bin/sh', 'sh', '-c', 'exit 9')))"
    ),
    "posix_spawn": "train(6); wait(os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 9'], os.environ))",
    "exec inside the window": "train(1); os.execv('/bin/sh', ['sh', '-c', 'echo replaced; exit 5'])",
    "os._exit inside the window": "train(1); print('last', flush=True); os._exit(6)",
    "exception inside the window": "train(1); raise SystemError('on purpose')",
    "a signal that kills": "train(6); print('last', flush=True); os.kill(os.getpid(), signal.SIGKILL)",
    "interrupt": "train(6); print('last', flush=True); os.kill(os.getpid(), signal.SIGINT)",
    "a signal with a handler": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(8)); train(6); os.kill(os.getpid(), 15)"
    ),
    "a program inside": "train(6); print(subprocess.run([sys.executable, '-c', 'print(8)']).returncode)",
    "nested collect": f"train(6)\n{NESTED}",
}


def run(words: list[str], folder: Path, mark: str) -> tuple[int, str, str, float]:
    environment = {**os.environ, "ENDING": mark, "TRACEKIT_STORE": str(folder / "store")}
    began = time.monotonic()
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    return done.returncode, done.stdout, done.stderr, time.monotonic() - began


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
    ends_as_alone([sys.executable, "train.py"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("last", [[], ["without a finalizer"]], ids=["finalized", "not finalized"])
def test_an_embedded_interpreter_ends_as_it_does_alone(last: list[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MODEL + "train(6); print('trained', flush=True)")
    ends_as_alone([str(build_embedding(tmp_path)), sys.executable, "train.py", *last], tmp_path)


def build_embedding(folder: Path) -> Path:
    """Build a program with this Python inside; skip where it cannot be built."""
    (folder / "embed.c").write_text(EMBEDDED)
    places = sysconfig.get_config_vars()
    library = f"python{places['LDVERSION']}"
    command = ["cc", "embed.c", "-o", "embed", f"-I{places['INCLUDEPY']}", f"-L{places['LIBDIR']}"]
    command += [f"-L{places['LIBPL']}", f"-l{library}", f"-Wl,-rpath,{places['LIBDIR']}", "-rdynamic"]
    command += [*shlex.split(places["LIBS"] or ""), *shlex.split(places["SYSLIBS"] or "")]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no program can embed this Python: {getattr(error, 'stderr', error)}")
    return folder / "embed"


def ends_as_alone(program: list[str], tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    code, output, _, took_s = run(program, tmp_path, mark)
    collect = [sys.executable, "-P", "-c", MAIN, "collect", "--start-step", "0", "--steps", "2"]
    recorded = run([*collect, "--", *program], tmp_path, mark)
    assert recorded[0] == (code if code >= 0 else 128 - code)
    assert recorded[1].startswith(output)
    assert recorded[3] < TIMES * took_s + LONGER_S
    deadline = time.monotonic() + 5
    while left(mark) and time.monotonic() < deadline:
        os.sched_yield()
    assert left(mark) == []


STUCK = """
import time
ended = torch.autograd.profiler._disable_profiler
def never():
    time.sleep(10_000)
def late():
    until = time.monotonic() + 6
    while time.monotonic() < until:
        pass
    return ended()
def end_by(function):
    torch.autograd.profiler._disable_profiler = function
"""
"""Ends of torch's profiler that wait for ever, or that work for longer than is waited."""
STUCK_ENDS = {
    "at the end": ("end_by(never); train(1); print('last', flush=True)", 5, 0),
    "after an exception": ("end_by(never); train(1); print('last', flush=True); raise SystemError", 1, 0),
    "after a request": (
        "end_by(never); train(1); print('last', flush=True); os.kill(os.getpid(), signal.SIGTERM)",
        128 + signal.SIGTERM,
        0,
    ),
    "in the program": ("end_by(never); print('last', flush=True); train(6); print('not reached')", 5, 0),
    "in a later window": (
        "train(3); print('last', flush=True); end_by(never); train(9); print('not reached')",
        128 + signal.SIGKILL,
        1,
    ),
    "while it works": ("end_by(late); train(6); print('last', flush=True)", 0, 1),
}
"""What the program does, its exit code under `collect`, and how many runs are kept."""


@pytest.mark.slow_except("at the end")
@pytest.mark.parametrize("ending", STUCK_ENDS)
def test_a_profiler_that_never_ends_is_not_waited_for(ending: str, tmp_path: Path) -> None:
    program, code, kept = STUCK_ENDS[ending]
    (tmp_path / "train.py").write_text(MODEL + STUCK + program)
    main = f"from tracekit.collectors import program; program.PROFILER_END_S = 3.0; {MAIN}"
    every = ["--every", "1", "--timed-steps", "0"] if "window" in ending else []
    collect = [sys.executable, "-P", "-c", main, "collect", "--start-step", "0", "--steps", "2", *every]
    mark = uuid.uuid4().hex
    done, output, error, _ = run([*collect, "--", sys.executable, "train.py"], tmp_path, mark)
    assert (done, output) == (code, "last\n"), error
    assert ("within 3 s: the process was killed" in error) == (ending != "while it works")
    assert len(Store(tmp_path / "store").runs()) == kept
    assert left(mark) == []
