from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from tracekit.collectors.children import child
from tracekit.collectors.process import RSS, ProcessSampler
from tracekit.collectors.protocol import MEASURE, PROFILE
from tracekit.collectors.sampling import Watched, in_window, recording

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def guard() -> Iterator[psutil.Process]:
    """A guard with a program below it, which waits for its end."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield psutil.Process(process.pid)


def test_a_window_is_between_a_taken_rank_and_what_is_known_of_its_trace(tmp_path: Path) -> None:
    assert not recording(tmp_path)
    (tmp_path / "rank-0.claim").touch()
    assert recording(tmp_path)
    (tmp_path / "rank-0.first.facts").touch()
    assert recording(tmp_path), "the window is still to come"
    (tmp_path / "rank-0.facts").touch()
    assert not recording(tmp_path)
    (tmp_path / "rank-1.claim").touch()
    assert recording(tmp_path)


def test_only_the_program_is_read_and_only_in_its_window(tmp_path: Path, guard: psutil.Process) -> None:
    [program] = guard.children()
    pids: list[int] = []

    def make(pid: int) -> ProcessSampler | None:
        pids.append(pid)
        return ProcessSampler.of(pid)

    sampler = in_window(tmp_path, [make])[0](guard.pid)
    assert sampler is not None
    assert sampler.read() == []
    assert pids == []
    (tmp_path / "rank-0.claim").touch()
    taken = {sample.metric: sample.value for sample in sampler.read()}
    assert pids == [program.pid]
    assert taken["processes"] == 1
    (tmp_path / "rank-0.facts").touch()
    assert sampler.read() == []
    sampler.close()


def test_samplers_read_while_steps_run_and_once_more() -> None:
    watched = Watched(lambda *_: None)
    reads = watched._gate()
    assert not reads()
    watched(MEASURE, 0, 2)
    assert [reads(), reads()] == [True, True]
    watched(PROFILE, 1, 1)
    assert [reads(), reads(), reads()] == [True, False, False]


def test_the_end_of_the_last_step_is_read_however_soon_the_program_is_left(guard: psutil.Process) -> None:
    watched = Watched(lambda *_: None)
    with watched.sampling(guard.pid):
        watched(PROFILE, 0, 1)
        watched(PROFILE, 1, 1)
        ended_ns = time.time_ns()
    after = [sample.metric for sample in watched.taken.samples() if sample.t_unix_ns > ended_ns]
    assert 1 <= after.count(RSS) <= 2, "a reading may have been under way"
