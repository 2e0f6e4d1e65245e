"""Tests start in the same process environment, independent of that of pytest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.environment import normalize_variables

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
NORMALIZED = """
import subprocess, sys
from tests import environment
environment.normalize()
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
"""
STATE = """
import json, os, signal, sys
opened = os.open(os.devnull, os.O_RDONLY)
umask = os.umask(0)
print(json.dumps({
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "ignored": [s for s in (signal.SIGHUP, signal.SIGQUIT) if signal.getsignal(s) == signal.SIG_IGN],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "first free descriptor": opened,
    "umask": umask,
    "writes bytecode": not sys.dont_write_bytecode,
}))
"""
EXPECTED = {
    "interrupt": True,
    "ignored": [],
    "blocked": [],
    "first free descriptor": 3,
    "umask": 0o022,
    "writes bytecode": True,
}


def background_job() -> None:
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def blocked_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])


def closed_input() -> None:
    os.close(0)


def private_files() -> None:
    os.umask(0o077)


@pytest.mark.parametrize("inherited", [background_job, blocked_signals, closed_input, private_files])
def test_children_of_tests_do_not_inherit_what_started_pytest(inherited: Callable[[], None]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NORMALIZED, STATE],
        preexec_fn=inherited,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        cwd=ROOT,
        check=True,
    )
    state: dict[str, Any] = json.loads(done.stdout)
    assert state == EXPECTED


def test_variables_that_change_behavior_are_removed() -> None:
    variables = {"GIT_DIR": ".git", "TRACEKIT_STORE": "/elsewhere", "COLUMNS": "40", "HOME": "/home/tester"}
    normalize_variables(variables)
    warnings = "error::RuntimeWarning,error::FutureWarning"
    kept = {"HOME": "/home/tester", "OMP_NUM_THREADS": "1", "TERM": "dumb"}
    assert variables == {**kept, "PYTHONWARNINGS": warnings}
