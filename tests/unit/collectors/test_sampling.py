"""Sampling beside a program, and what happens when a sampler breaks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import psutil
import pytest
from tracekit.collectors import process
from tracekit.collectors.process import ProcessSampler
from tracekit.collectors.sampling import Sampler, sampling

from tracekit.ingest.write import Sample
from tracekit.runs.meta import Diagnostic, Level


class Scripted:
    """A sampler that lets a test wait for its readings, and can break."""

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


def test_it_reads_at_once_then_again_and_at_the_end_and_closes() -> None:
    own = Scripted()
    before = time.time_ns()
    with sampling(interval_s=0.001, samplers=[lambda _: own]) as taken:
        assert taken.samples()
        assert own.enough.wait(60)
    times = [one.t_unix_ns for one in taken.samples()]
    assert times == sorted(times)
    assert before <= times[0] <= times[-1] <= time.time_ns()
    assert [one.value for one in taken.samples()] == list(range(1, own.reads + 1))
    assert (own.reads >= 4, own.closed) == (True, 1)
    assert taken.diagnostics() == (Diagnostic(Level.INFO, "scripted", "said"),)


def test_a_long_interval_still_has_a_first_and_a_last_reading() -> None:
    own = Scripted()
    with sampling(interval_s=3_600, samplers=[lambda _: own]) as taken:
        pass
    assert [one.value for one in taken.samples()] == [1, 2]


def test_a_long_program_is_sampled_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracekit.collectors.sampling.MOST_READINGS", 8)
    own = Scripted(enough=40)
    with sampling(interval_s=0.0001, samplers=[lambda _: own]) as taken:
        assert own.enough.wait(60)
    values = [one.value for one in taken.samples()]
    assert values[0] == 1
    assert len(values) < 16
    assert max(values[1:4]) - values[0] > 3, "the early ones were thinned as well"


def broken(_: int) -> Sampler | None:
    raise RuntimeError("cannot start\nwith more")


def test_what_breaks_is_said_and_reaches_neither_the_program_nor_the_other_samplers() -> None:
    breaks, works = Scripted(breaks_at=2, closing=False), Scripted()
    makes = [broken, lambda _: None, lambda _: breaks, lambda _: works]
    with sampling(interval_s=0.001, samplers=makes) as taken:
        assert works.enough.wait(60)
    assert (breaks.reads, breaks.closed, works.closed) == (2, 1, 1)
    assert [one.message for one in taken.diagnostics() if one.code != "scripted"] == [
        "sampling of broken ended early: RuntimeError: cannot start",
        "sampling of scripted ended early: OSError: gone",
        "sampling of scripted ended early: RuntimeError: cannot close",
    ]


def test_the_programs_own_error_passes_and_the_thread_ends() -> None:
    own = Scripted()
    with pytest.raises(ZeroDivisionError), sampling(samplers=[lambda _: own]):
        _ = 1 // 0
    assert own.closed == 1
    assert "tracekit-sampling" not in {thread.name for thread in threading.enumerate()}


def test_a_process_that_computes_takes_a_core() -> None:
    own = ProcessSampler.of(os.getpid())
    assert own
    moments = [_clocks()]
    first = {one.metric: one.value for one in own.read()}
    moments.append(_clocks())
    while time.process_time() - moments[1][1] < 0.3:
        pass
    moments.append(_clocks())
    second = {one.metric: one.value for one in own.read()}
    moments.append(_clocks())
    (wall_most, cpu_most), (wall_least, cpu_least) = (
        (moments[end][0] - moments[begin][0], moments[end][1] - moments[begin][1])
        for begin, end in ((0, 3), (1, 2))
    )
    ticks_s = 0.03  # the system counts in ticks of 10 ms
    assert "cpu_percent" not in first
    assert cpu_least - ticks_s <= second["cpu_percent"] / 100 * wall_most
    assert second["cpu_percent"] / 100 * wall_least <= cpu_most + ticks_s
    assert second["rss_bytes"] > 1 << 20


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def test_children_count_and_may_end() -> None:
    own = ProcessSampler.of(os.getpid())
    assert own
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE):
        during = {one.metric: one.value for one in own.read()}
    after = {one.metric: one.value for one in own.read()}
    assert during["processes"] - after["processes"] == 1
    assert during["rss_bytes"] > after["rss_bytes"]


def test_the_system_s_own_file_says_what_psutil_says() -> None:
    own = psutil.Process()
    cpu_s, rss, threads = process._usage(own)
    times = own.cpu_times()
    assert cpu_s == pytest.approx(times.user + times.system, abs=1)
    assert rss == pytest.approx(own.memory_info().rss, rel=0.1)
    assert threads == own.num_threads()


def test_a_process_that_is_gone_has_no_samples() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as child:
        own = ProcessSampler.of(child.pid)
        assert own
        assert own.read()
    assert own.read() == []
    assert ProcessSampler.of(child.pid) is None


def test_a_process_that_has_ended_has_no_memory_to_sample() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # it stays until it is waited for
        sampler = ProcessSampler.of(ended.pid)
        assert sampler is not None
        assert sampler.read() == []
