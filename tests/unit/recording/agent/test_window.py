from __future__ import annotations

import pytest

from tracekit.recording.agent.window import Window


class FakeRecorder:
    """A recorder that logs its calls."""

    def __init__(self, *, needs_warmup: bool = False) -> None:
        self.needs_warmup = needs_warmup
        self.calls: list[str] = []
        self.later = 0

    def is_captured(self) -> bool:
        return False

    def mark(self) -> None:
        self.calls.append("mark")

    def mark_later(self) -> bool:
        self.later += 1
        return self.later < 3

    def start(self, first: int, *, warm: bool) -> None:
        self.calls.append(f"warm {first}" if warm else f"start {first}")

    def step(self) -> None:
        self.calls.append("step")

    def stop(self, steps: int, *, open_step: int | None) -> None:
        self.calls.append(f"stop {steps} open {open_step}")

    def discard(self) -> None:
        self.calls.append("discard")


def calls(
    recorder: FakeRecorder, start: int, steps: int | None, steps_done: int, *, begin: bool = False
) -> list[str]:
    window = Window(start, steps, recorder)
    if begin:
        window.begin()
    for _ in range(steps_done):
        window.end_step()
    window.close()
    return recorder.calls


def test_steps_before_the_window_are_timed_from_the_end_of_the_first() -> None:
    log = calls(FakeRecorder(), 3, 2, steps_done=9)
    assert log == ["mark", "mark", "mark", "start 3", "step", "stop 2 open None"]


def test_the_first_step_is_timed_if_its_begin_is_marked() -> None:
    log = calls(FakeRecorder(), 1, 1, steps_done=2, begin=True)
    assert log == ["mark", "mark", "start 1", "stop 1 open None"]


def test_the_last_step_before_the_window_warms_up_a_gpu_and_is_not_timed() -> None:
    log = calls(FakeRecorder(needs_warmup=True), 3, 2, steps_done=9)
    assert log == ["mark", "mark", "warm 3", "step", "step", "stop 2 open None"]


@pytest.mark.parametrize(
    ("steps_done", "end"),
    [(3, "discard"), (4, "stop 1 open 4"), (5, "stop 2 open 5"), (6, "stop 3 open None")],
)
def test_a_program_that_ends_in_the_window_keeps_its_complete_steps(steps_done: int, end: str) -> None:
    assert calls(FakeRecorder(), 3, 3, steps_done=steps_done)[-1] == end


def test_a_program_that_ends_during_warmup_keeps_nothing() -> None:
    assert calls(FakeRecorder(needs_warmup=True), 3, 3, steps_done=2)[-2:] == ["warm 3", "discard"]


def test_a_window_without_a_length_lasts_until_it_is_closed() -> None:
    assert calls(FakeRecorder(), 0, None, steps_done=40, begin=True)[-1] == "stop 40 open 40"


def test_a_block_without_marks_is_recorded_if_kept_open() -> None:
    recorder = FakeRecorder()
    window = Window(0, None, recorder)
    window.begin()
    window.close(keep_open=True)
    assert recorder.calls == ["mark", "start 0", "stop 0 open None"]


def test_an_abandoned_window_is_neither_written_nor_started_again() -> None:
    recorder = FakeRecorder()
    window = Window(0, 2, recorder)
    window.begin()
    window.abandon()
    window.end_step()
    window.close()
    assert recorder.calls == ["mark", "start 0", "discard"]


def test_steps_after_the_window_are_marked_until_enough_are_timed() -> None:
    recorder = FakeRecorder()
    window = Window(1, 1, recorder)
    states = []
    for _ in range(6):
        window.end_step()
        states.append((window.state, recorder.later))
    assert states == [("recording", 0), ("timing", 0), ("timing", 1), ("timing", 2), ("done", 3), ("done", 3)]
    assert window.steps_done == 6
    window.close()
    assert recorder.calls == ["mark", "start 1", "stop 1 open None"]


def test_what_is_sampled_after_the_window_ends_with_an_abandoned_one() -> None:
    recorder = FakeRecorder()
    window = Window(1, 1, recorder)
    for _ in range(3):
        window.end_step()
    window.abandon()
    assert (window.state, recorder.calls[-1]) == ("done", "discard")


def test_the_program_may_end_while_steps_after_the_window_are_timed() -> None:
    log = calls(FakeRecorder(), 1, 1, steps_done=3)
    assert log == ["mark", "start 1", "stop 1 open None"]
