"""What watches a process ends with the recording, and is not in processes that it forks."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time

import pytest

from tracekit.recording.agent import host_watch, stack_sampler
from tracekit.recording.agent.host_watch import HostWatch
from tracekit.recording.agent.stack_sampler import StackSampler


def test_a_forked_process_is_not_watched_and_neither_is_one_after_the_end() -> None:
    torch = pytest.importorskip("torch")
    former, threads = list(gc.callbacks), threading.active_count()
    watch, switch_s = HostWatch(torch, samples=True), sys.getswitchinterval()
    watch.start()
    try:
        assert (len(gc.callbacks), threading.active_count()) == (len(former) + 1, threads + 1)
        child = os.fork()
        if child == 0:
            unlike = gc.callbacks != former or sys.getswitchinterval() != switch_s
            os._exit(unlike or threading.active_count() != 1)
        assert (len(gc.callbacks), threading.active_count()) == (len(former) + 1, threads + 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        watch.stop()
    assert (gc.callbacks, threading.active_count()) == (former, threads)
    assert sys.getswitchinterval() == switch_s
    watch.stop()  # does nothing


def test_steps_after_the_timed_ones_are_sampled_for_a_second_or_a_number_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    former, threads = list(gc.callbacks), threading.active_count()
    assert not HostWatch(torch, samples=False).start_sampling()
    watch = HostWatch(torch, samples=True)
    assert watch.start_sampling()
    assert (gc.callbacks, threading.active_count()) == (former, threads + 1)
    count = host_watch.SAMPLED_STEPS
    assert [watch.step() for _ in range(count)] == [True] * (count - 1) + [False]
    assert threading.active_count() == threads
    monkeypatch.setattr(host_watch, "SAMPLED_NS", 30_000_000)
    assert watch.start_sampling()
    child = os.fork()
    if child == 0:
        os._exit(threading.active_count() != 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (gc.callbacks, threading.active_count()) == (former, threads + 1), "goes on in the parent"
    time.sleep(0.04)
    assert not watch.step()
    assert (gc.callbacks, threading.active_count()) == (former, threads)
    assert {profiled for _, _, profiled, *_ in watch.sampler.facts()["samples"]} == {0}


def test_only_the_thread_of_the_steps_is_read() -> None:
    """Another one, which may end the recording, has run for other times."""
    watch = HostWatch(pytest.importorskip("torch"), samples=False)
    watch.start()
    try:
        watch.read_thread_times()
        readings = len(watch.thread_times)  # 0 without /proc
        other = threading.Thread(target=watch.read_thread_times)
        other.start()
        other.join()
        assert len(watch.thread_times) == readings
    finally:
        watch.stop()


def test_stacks_are_named_as_torch_names_them_without_frames_of_the_agent() -> None:
    sampler = StackSampler()

    def busy() -> None:
        ended = time.monotonic() + 10
        while len(sampler._samples) < 3 * stack_sampler._FIELDS and time.monotonic() < ended:
            pass

    sampler.start()
    busy()
    sampler.stop()
    facts = sampler.facts()
    assert {sample[3] for sample in facts["samples"]} == {threading.get_native_id()}
    assert {sample[4] for sample in facts["samples"]} == {None}
    assert len(facts["samples"]) >= 3
    assert [sample[0] for sample in facts["samples"]] == sorted(sample[0] for sample in facts["samples"])
    assert {sample[2] for sample in facts["samples"]} == {1}
    stack, lines = facts["stacks"][facts["samples"][1][1]]
    frames = stack.split(";")
    first = busy.__code__.co_firstlineno
    assert frames[0].endswith(f"test_host_watch.py({first}): busy")
    assert first < int(lines.split(",")[0]) <= first + 3
    assert len(frames) == len(lines.split(","))
    assert any(frame.startswith("site-packages/_pytest/") for frame in frames), "of an installed package"


def test_another_thread_is_sampled_if_it_runs() -> None:
    sampler, ended = StackSampler(), threading.Event()

    def spin() -> None:
        while not ended.is_set():
            sum(range(1_000))

    spinning, asleep = threading.Thread(target=spin), threading.Thread(target=ended.wait)
    for thread in (spinning, asleep):
        thread.start()
    try:
        sampler.start()
        limit = time.monotonic() + 30
        while spinning.native_id not in sampler._samples[3 :: stack_sampler._FIELDS]:
            time.sleep(0.01)
            assert time.monotonic() < limit
        sampler.stop()
    finally:
        ended.set()
    facts = sampler.facts()
    assert asleep.native_id not in {sample[3] for sample in facts["samples"]}
    others = [sample for sample in facts["samples"] if sample[3] == spinning.native_id]
    assert ": spin" in facts["stacks"][others[0][1]][0]
    assert all(sample[4] > 0 and sample[5:] == (None, None, None) for sample in others)
    driver = [sample[5:] for sample in facts["samples"] if sample[3] == threading.get_native_id()]
    assert all(0 <= lock_ns <= blocked_ns <= since_ns for since_ns, blocked_ns, lock_ns in driver)
