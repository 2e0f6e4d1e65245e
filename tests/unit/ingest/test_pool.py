from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.traces import kernels_text
from tracekit.errors import TracekitError
from tracekit.ingest.pool import open_pool

if TYPE_CHECKING:
    from pathlib import Path


def test_answers_come_in_the_order_of_the_tasks() -> None:
    tasks = [str(number) * 1000 for number in range(40)]
    with open_pool(2) as pool:
        assert list(pool.ordered(lambda task: pool.elsewhere(len, task), tasks)) == [
            (task, len(task)) for task in tasks
        ]


def test_an_error_is_raised_where_its_answer_is_awaited() -> None:
    with open_pool(2) as pool, pytest.raises(ValueError, match="invalid literal"):
        list(pool.ordered(lambda task: pool.elsewhere(int, task), ["1", "one", "2"]))


def test_a_worker_that_dies_is_an_error() -> None:
    with open_pool(2) as pool, pytest.raises(TracekitError, match="ended with code 3"):
        pool.elsewhere(os._exit, 3)


def test_a_worker_that_dies_in_the_middle_of_its_answer_is_an_error() -> None:
    dying = "import os; os.write(3, b'\\x80\\x05\\x95'); os._exit(3)"
    with open_pool(2) as pool, pytest.raises(TracekitError, match="ended with code 3"):
        pool.elsewhere(exec, dying)


SCRIPT = """
import sys
import tracekit
from tracekit.ingest import importer
importer.POOL_BYTES = importer.THREAD_BYTES = 1
importer.cores = lambda: 2
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
