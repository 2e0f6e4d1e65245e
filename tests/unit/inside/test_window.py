from __future__ import annotations

import pytest

from tracekit.recording.agent.window import Window


class Diary:
    """A recorder that writes down what it is told."""

    def __init__(self, *, needs_warmup: bool = False) -> None:
        self.needs_warmup = needs_warmup
        self.told: list[str] = []

    def mark(self) -> None:
        self.told.append("mark")

    def start(self, first: int, *, warm: bool) -> None:
        self.told.append(f"warm {first}" if warm else f"start {first}")

    def step(self) -> None:
        self.told.append("step")

    def stop(self, whole: int, *, open_step: int | None) -> None:
        self.told.append(f"stop {whole} open {open_step}")

    def discard(self) -> None:
        self.told.append("discard")


def lived(diary: Diary, start: int, steps: int | None, passed: int, *, begin: bool = False) -> list[str]:
    window = Window(start, steps, diary)
    if begin:
        window.begin()
    for _ in range(passed):
        window.finished()
    window.end()
    return diary.told


def test_steps_before_the_window_are_timed_from_the_end_of_the_first() -> None:
    told = lived(Diary(), 3, 2, passed=9)
    assert told == ["mark", "mark", "mark", "start 3", "step", "stop 2 open None"]


def test_where_the_begin_is_known_the_first_step_is_timed_too() -> None:
    told = lived(Diary(), 1, 1, passed=2, begin=True)
    assert told == ["mark", "mark", "start 1", "stop 1 open None"]


def test_the_last_step_before_the_window_warms_a_device_up_and_is_not_timed() -> None:
    told = lived(Diary(needs_warmup=True), 3, 2, passed=9)
    assert told == ["mark", "mark", "warm 3", "step", "step", "stop 2 open None"]


@pytest.mark.parametrize(
    ("passed", "end"),
    [(3, "discard"), (4, "stop 1 open 4"), (5, "stop 2 open 5"), (6, "stop 3 open None")],
)
def test_a_program_that_ends_inside_keeps_its_whole_steps(passed: int, end: str) -> None:
    assert lived(Diary(), 3, 3, passed=passed)[-1] == end


def test_a_program_that_ends_while_the_device_warms_up_keeps_nothing() -> None:
    assert lived(Diary(needs_warmup=True), 3, 3, passed=2)[-2:] == ["warm 3", "discard"]


def test_without_an_end_the_window_lasts_as_long_as_the_program() -> None:
    assert lived(Diary(), 0, None, passed=40, begin=True)[-1] == "stop 40 open 40"


def test_a_block_without_marks_is_one_step_if_that_is_asked_for() -> None:
    diary = Diary()
    window = Window(0, None, diary)
    window.begin()
    window.end(keep_open=True)
    assert diary.told == ["mark", "start 0", "stop 0 open None"]


def test_what_is_abandoned_is_neither_written_nor_begun_again() -> None:
    diary = Diary()
    window = Window(0, 2, diary)
    window.begin()
    window.abandon()
    window.finished()
    window.end()
    assert diary.told == ["mark", "start 0", "discard"]
