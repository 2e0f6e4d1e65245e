"""Pools for decoding, and the background thread for writing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tests.traces import kernels_text
from tracekit.errors import TracekitError
from tracekit.ingest.pool import BackgroundThread, open_pool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_results_come_in_the_order_of_tasks() -> None:
    tasks = [str(number) * 1000 for number in range(40)]
    with open_pool(2) as pool:
        assert list(pool.map_in_order(lambda task: pool.call_in_process(len, task), tasks)) == [
            (task, len(task)) for task in tasks
        ]


def test_an_error_of_a_task_is_raised_by_its_result() -> None:
    with open_pool(2) as pool, pytest.raises(ValueError, match="invalid literal"):
        list(pool.map_in_order(lambda task: pool.call_in_process(int, task), ["1", "one", "2"]))


def test_a_dead_worker_is_an_error() -> None:
    with open_pool(2) as pool, pytest.raises(TracekitError, match="ended with code 3"):
        pool.call_in_process(os._exit, 3)


def test_a_worker_that_dies_while_answering_is_an_error() -> None:
    dying = "import os; os.write(3, b'\\x80\\x05\\x95'); os._exit(3)"
    with open_pool(2) as pool, pytest.raises(TracekitError, match="ended with code 3"):
        pool.call_in_process(exec, dying)


SCRIPT = """
import sys
import tracekit
from tracekit.ingest.importer import local
local.POOL_BYTES = local.THREAD_BYTES = 1
local.cores = lambda: 2
print(tracekit.open(sys.argv[1], store=sys.argv[2]).rows("device_intervals"))
"""


def test_a_script_may_open_a_large_trace_at_its_top_level(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(kernels_text(10))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script, trace, tmp_path / "store"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "19\n"
    assert done.stderr == ""


def _fail() -> None:
    raise OSError("full")


def test_background_work_runs_in_order_in_another_thread() -> None:
    done: list[tuple[int, int]] = []
    with BackgroundThread() as thread:
        for number in range(5):
            thread.do(lambda number=number: done.append((number, threading.get_ident())))
    assert [number for number, _ in done] == [0, 1, 2, 3, 4]
    assert threading.get_ident() not in {number for _, number in done}


def _fail() -> None:
    raise OSError("full")


def run_in_background(*functions: Callable[[], None], then: Exception | None = None) -> None:
    """Queue functions, and raise an error of the caller after them."""
    with BackgroundThread() as thread:
        for function in functions:
            thread.do(function)
        if then is not None:
            raise then


def test_an_error_stops_the_queue_and_is_raised() -> None:
    done: list[str] = []
    with pytest.raises(OSError, match="full"):
        run_in_background(_fail, *[lambda: done.append("later")] * 5)
    assert done == []


def test_an_error_of_the_last_function_is_raised_at_exit() -> None:
    with pytest.raises(OSError, match="full"):
        run_in_background(_fail)


def test_an_error_of_the_caller_takes_precedence() -> None:
    with pytest.raises(ValueError, match="caller"):
        run_in_background(_fail, then=ValueError("caller"))
