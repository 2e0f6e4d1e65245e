"""Sampling while a program runs, with samplers that may fail."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from tracekit.collectors.children import child
from tracekit.collectors.protocol import MEASURE, PROFILE
from tracekit.collectors.sampling import (
    RSS,
    ProcessSampler,
    SampledProgress,
    Sampler,
    is_recording,
    program_of,
    sample_counters,
)

from tests.environment import HANG_SECONDS
from tracekit.ingest.write import Sample
from tracekit.runs.meta import Diagnostic, Level

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Scripted:
    """A sampler whose readings a test can wait for, and which can fail."""

    name = "scripted"

    def __init__(self, *, breaks_at: int = 0, closing: bool = True, enough: int = 3) -> None:
        self.reads, self.closed, self.enough = 0, 0, threading.Event()
        self._breaks_at, self._closing, self._enough = breaks_at, closing, enough

    def read(self) -> list[Sample]:
        self.reads += 1
        if self.reads == self._breaks_at:
            raise OSError("gone")
        if self.reads >= self._enough:
            self.enough.set()
        return [Sample(time.time_ns(), "process", None, "reads", "count", float(self.reads))]

    def close(self) -> None:
        self.closed += 1
        if not self._closing:
            raise RuntimeError("cannot close")

    def diagnostics(self) -> list[Diagnostic]:
        return [Diagnostic(Level.INFO, "scripted", "said")]


def test_samplers_are_read_first_repeatedly_and_last_and_closed() -> None:
    own = Scripted()
    before = time.time_ns()
    with sample_counters(interval_s=0.001, samplers=[lambda _: own]) as buffer:
        assert buffer.samples()
        assert own.enough.wait(HANG_SECONDS)
    times = [one.t_unix_ns for one in buffer.samples()]
    assert times == sorted(times)
    assert before <= times[0] <= times[-1] <= time.time_ns()
    assert [one.value for one in buffer.samples()] == list(range(1, own.reads + 1))
    assert (own.reads >= 4, own.closed) == (True, 1)
    assert buffer.diagnostics() == (Diagnostic(Level.INFO, "scripted", "said"),)


def test_a_long_interval_still_has_a_first_and_a_last_reading() -> None:
    own = Scripted()
    with sample_counters(interval_s=3_600, samplers=[lambda _: own]) as buffer:
        pass
    assert [one.value for one in buffer.samples()] == [1, 2]


def test_the_interval_grows_with_the_length_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracekit.collectors.sampling.MAX_READINGS", 8)
    own = Scripted(enough=40)
    with sample_counters(interval_s=0.0001, samplers=[lambda _: own]) as buffer:
        assert own.enough.wait(HANG_SECONDS)
    values = [one.value for one in buffer.samples()]
    assert values[0] == 1
    assert len(values) < 16
    assert max(values[1:4]) - values[0] > 3, "the early ones were thinned as well"


def broken(_: int) -> Sampler | None:
    raise RuntimeError("cannot start\nwith more")


def test_a_failing_sampler_is_reported_and_affects_no_other() -> None:
    breaks, works = Scripted(breaks_at=2, closing=False), Scripted()
    makes = [broken, lambda _: None, lambda _: breaks, lambda _: works]
    with sample_counters(interval_s=0.001, samplers=makes) as buffer:
        assert works.enough.wait(HANG_SECONDS)
    assert (breaks.reads, breaks.closed, works.closed) == (2, 1, 1)
    assert [one.message for one in buffer.diagnostics() if one.code != "scripted"] == [
        "sampling of broken ended early: RuntimeError: cannot start",
        "sampling of scripted ended early: OSError: gone",
        "sampling of scripted ended early: RuntimeError: cannot close",
    ]


def test_an_error_of_the_block_passes_and_ends_the_thread() -> None:
    own = Scripted()
    with pytest.raises(ZeroDivisionError), sample_counters(samplers=[lambda _: own]):
        _ = 1 // 0
    assert own.closed == 1
    assert "tracekit-sampling" not in {thread.name for thread in threading.enumerate()}


@pytest.fixture
def guard() -> Iterator[psutil.Process]:
    """A guard of a program that waits for input."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield psutil.Process(process.pid)


def test_a_window_lasts_from_the_claim_of_a_rank_to_its_facts(tmp_path: Path) -> None:
    assert not is_recording(tmp_path)
    (tmp_path / "rank-0.claim").touch()
    assert is_recording(tmp_path)
    (tmp_path / "rank-0.first.facts").touch()
    assert is_recording(tmp_path), "the window is still to come"
    (tmp_path / "rank-0.facts").touch()
    assert not is_recording(tmp_path)
    (tmp_path / "rank-1.claim").touch()
    assert is_recording(tmp_path)


def test_the_program_is_sampled_only_in_its_window(tmp_path: Path, guard: psutil.Process) -> None:
    [program] = guard.children()
    pids: list[int] = []
    own = Scripted(enough=1)
    asked = 0

    def make(pid: int) -> ProcessSampler | None:
        pids.append(pid)
        return ProcessSampler.of(pid)

    def in_window() -> bool:
        nonlocal asked
        asked += 1
        return is_recording(tmp_path)

    def wait_for_readings(count: int) -> None:
        give_up = asked + count
        while asked < give_up:
            time.sleep(0.001)

    with sample_counters(
        interval_s=0.001,
        pid=lambda: program_of(guard.pid),
        samplers=[make, lambda _: own],
        condition=in_window,
    ) as buffer:
        wait_for_readings(3)
        assert (pids, buffer.samples()) == ([], ())
        (tmp_path / "rank-0.claim").touch()
        assert own.enough.wait(HANG_SECONDS)
        assert pids == [program.pid]
        (tmp_path / "rank-0.facts").touch()
        wait_for_readings(2)  # one may have been under way
        reads = own.reads
        wait_for_readings(3)
        assert own.reads == reads
    assert (own.reads, own.closed) == (reads, 1)
    assert {sample.value for sample in buffer.samples() if sample.metric == "processes"} == {1}


def test_samplers_are_made_once_there_is_a_process() -> None:
    own = Scripted()
    answers = iter([None, None, 7])
    pids: list[int] = []
    with sample_counters(
        interval_s=0.001,
        pid=lambda: next(answers),
        samplers=[lambda pid: pids.append(pid) or own],  # type: ignore[func-returns-value]
    ):
        assert own.enough.wait(HANG_SECONDS)
    assert pids == [7]


def test_a_guard_that_has_ended_has_no_program() -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    assert program_of(ended.pid) is None


def test_samplers_read_while_steps_run_and_once_more() -> None:
    sampled = SampledProgress(lambda *_: None)
    reads = sampled.is_due
    assert not reads()
    sampled(MEASURE, 0, 2)
    assert [reads(), reads()] == [True, True]
    sampled(PROFILE, 1, 1)
    assert [reads(), reads(), reads()] == [True, False, False]


def test_the_end_of_the_last_step_is_always_sampled(guard: psutil.Process) -> None:
    sampled = SampledProgress(lambda *_: None)
    with sampled.sampling(guard.pid):
        sampled(PROFILE, 0, 1)
        sampled(PROFILE, 1, 1)
        ended_ns = time.time_ns()
    after = [sample.metric for sample in sampled.buffer.samples() if sample.t_unix_ns > ended_ns]
    assert 1 <= after.count(RSS) <= 2, "a reading may have been under way"
