from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tracekit.collectors import sampling
from tracekit.collectors.sampling import ProcessSampler


def test_a_busy_process_uses_a_core() -> None:
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


def test_children_are_counted_until_they_end() -> None:
    own = ProcessSampler.of(os.getpid())
    assert own
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE):
        during = {one.metric: one.value for one in own.read()}
    after = {one.metric: one.value for one in own.read()}
    assert during["processes"] - after["processes"] == 1
    assert during["rss_bytes"] > after["rss_bytes"]


def test_the_thread_that_samples_is_none_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_usage", lambda _process: (1.0, 4_096.0, 3))
    own = ProcessSampler.of(os.getpid())
    assert own
    monkeypatch.setattr(own._root, "children", lambda recursive: [])
    assert {one.metric: one.value for one in own.read()} == {"rss_bytes": 4_096, "threads": 2, "processes": 1}


def test_a_child_counts_from_the_reading_that_finds_it() -> None:
    own = ProcessSampler.of(os.getpid())
    assert own
    seconds, second_ns = {1: 5.0}, 1_000_000_000
    assert own._share(seconds, second_ns) is None
    assert own._share({1: 5.5, 2: 70.0}, 2 * second_ns) == 50
    assert own._share({1: 5.5, 2: 70.25}, 3 * second_ns) == 25


@pytest.mark.parametrize("system", ["linux", "other"])
def test_proc_stat_agrees_with_psutil(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = psutil.Process()
    with monkeypatch.context() as patch:
        if system == "other":
            patch.setattr(sampling, "Path", lambda name: Path(f"/no{name}"))
        cpu_s, rss, threads = sampling._usage(own)
    times = own.cpu_times()
    assert cpu_s == pytest.approx(times.user + times.system, abs=1)
    assert rss == pytest.approx(own.memory_info().rss, rel=0.1)
    assert threads == own.num_threads()


def test_a_missing_process_has_no_samples() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as child:
        own = ProcessSampler.of(child.pid)
        assert own
        assert own.read()
    assert own.read() == []
    assert ProcessSampler.of(child.pid) is None


def test_a_zombie_has_no_samples() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # it stays until it is waited for
        sampler = ProcessSampler.of(ended.pid)
        assert sampler is not None
        assert sampler.read() == []
