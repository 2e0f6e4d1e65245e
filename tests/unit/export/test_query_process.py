"""Limits of time and memory hold whatever the work in the child process does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tracekit.errors import ExitCode, TracekitError, UnusableInputError
from tracekit.export.query_process import Query, run_query

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SERVE = "from tracekit.export.query_process import serve; "
MEMORY = 1 << 28


def texts(work: str, *, seconds: float = 0, memory_bytes: int = MEMORY, before: str = "") -> list[str]:
    code = f"{before}\n{SERVE}serve(lambda query: {work})"
    query = Query(sql="FROM a", store=None, output_format="", seconds=seconds, memory_bytes=memory_bytes)
    return list(run_query(query, code=code))


def test_the_texts_of_the_work_and_its_errors_pass() -> None:
    assert texts("[query.sql, 'ä\\n']") == ["FROM a", "ä\n"]
    failing = """
def work():
    from tracekit.errors import CollectionError
    yield "first"
    raise CollectionError("nothing", hint="try")
"""
    with pytest.raises(TracekitError, match="nothing") as caught:
        texts("work()", before=failing)
    assert (caught.value.hint, caught.value.exit_code) == ("try", ExitCode.NOTHING_MEASURED)
    with pytest.raises(FileNotFoundError, match="No such file"):
        texts("open('/nowhere')")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        texts("[1 / 0]")


def test_work_that_hears_nothing_is_killed_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(UnusableInputError, match=r"longer than 0\.3 s"):
        texts("[__import__('tempfile').mkdtemp(), str(sum(range(10**12)))]", seconds=0.3)  # one call in C
    assert list(tmp_path.iterdir()) == []


def test_memory_beyond_the_limit_is_refused_and_what_fits_is_not() -> None:
    with pytest.raises(TracekitError, match="exceeds its memory limit"):
        texts("[str(len(bytearray(2 * 10**9)))]")
    assert texts("[str(len(bytearray(200 << 20)))]") == [str(200 << 20)]


def test_a_process_that_crashes_is_one_line() -> None:
    with pytest.raises(UnusableInputError, match="was ended by SIGSEGV"):
        texts("__import__('os').kill(__import__('os').getpid(), 11)")


def test_a_process_killed_before_its_query_was_sent_is_one_line() -> None:
    def kill_and_wait(kill: Callable[[], None]) -> None:
        kill()
        kill.__self__.wait()  # type: ignore[attr-defined]

    query = Query(sql="FROM a", store=None, output_format="", seconds=9, memory_bytes=MEMORY)
    with pytest.raises(UnusableInputError, match="was ended by SIGKILL"):
        list(run_query(query, started=kill_and_wait))


def test_the_child_ends_with_its_parent(tmp_path: Path) -> None:
    work = "(str(call()) for call in (__import__('os').getpid, __import__('signal').pause))"
    parent = tmp_path / "parent.py"
    parent.write_text(
        "from tracekit.export.query_process import Query, run_query\n"
        f"code = {f'{SERVE}serve(lambda _: {work})'!r}\n"
        f"query = Query(sql='', store=None, output_format='', seconds=0, memory_bytes={MEMORY})\n"
        "for text in run_query(query, code=code):\n    print(text, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, str(parent)], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        child = int(started.stdout.readline())
        os.kill(started.pid, signal.SIGKILL)
    for _ in range(200):
        if not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)
    pytest.fail("the child is still there")
