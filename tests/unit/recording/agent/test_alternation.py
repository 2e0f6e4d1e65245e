"""Changes that take turns between steps: the ratios of their step times, and what is left of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tracekit.recording.agent.alternation import Alternation, Applied
from tracekit.recording.agent.device import HostClock

RATIOS = {"faster": 0.5, "slower": 1.25, "absent": 1.0}


class Played:
    """A program with steps of known length on a clock of its own, ns."""

    def __init__(self, steps: int, *, initialized: bool = False) -> None:
        self.now, self.done = 0, 0
        self.changes = {name: Applied(name, lambda: None, is_on=False) for name in RATIOS}
        for name in ("faster", "slower"):
            self.changes[name].times = 1
        cuda = SimpleNamespace(is_initialized=lambda: initialized, is_current_stream_capturing=lambda: True)
        self.alternation = Alternation(SimpleNamespace(cuda=cuda), list(self.changes.values()), steps)
        clock: Any = SimpleNamespace(now=lambda: self.now, elapsed_ns=HostClock().elapsed_ns)
        self.alternation._clock = clock

    def on(self) -> list[str]:
        return [name for name, change in self.changes.items() if change.is_on]

    def run(self, steps: int, *, pause_at: int = -1) -> None:
        for _ in range(steps):
            names = self.on()
            assert len(names) <= 1
            drift = 1 + self.done / 1_000  # from cycle to cycle, as clocks and caches change
            self.now += round(1e6 * drift * RATIOS.get(names[0] if names else "", 1.0))
            self.now += 10**9 * (self.done == pause_at)
            self.done += 1
            self.alternation.end_step()


def test_ratios_are_those_of_steps_beside_each_other() -> None:
    program = Played(200)
    program.run(100)
    facts: Any = program.alternation.facts()
    assert facts["ratios"] == pytest.approx({"faster": 0.5, "slower": 1.25}, rel=0.01)
    assert facts["step_ns"] == pytest.approx(1.05e6, rel=0.05)


def test_a_pause_of_the_machine_counts_little() -> None:
    program = Played(200)
    program.run(150, pause_at=75)
    facts: Any = program.alternation.facts()
    assert facts["ratios"] == pytest.approx({"faster": 0.5, "slower": 1.25}, rel=0.02)


def test_a_change_that_finds_nothing_gets_no_more_steps() -> None:
    program, seen = Played(200), []
    for _ in range(100):
        program.run(1)
        seen += program.on()
    assert 0 < seen.count("absent") <= 3 < seen.count("faster")


def test_all_are_off_after_their_steps() -> None:
    program = Played(40)
    program.run(39)
    assert program.on()
    program.run(1)
    assert program.on() == []
    cycles: Any = program.alternation.facts()
    program.run(40)
    assert program.on() == []
    assert program.alternation.facts() == cycles


@pytest.mark.parametrize(("steps", "known"), [(2 + 12 + 3 * 9 - 1, False), (2 + 12 + 3 * 9, True)])
def test_few_cycles_tell_nothing(steps: int, *, known: bool) -> None:
    """Two steps before the first cycle of four windows, which does not count; then three windows a cycle."""
    program = Played(1_000)
    program.run(steps + 1)
    assert (program.alternation.facts() is not None) == known


def test_steps_captured_into_a_graph_are_none() -> None:
    program = Played(40, initialized=True)
    program.run(40)
    assert program.on() == []
    assert program.alternation.facts() is None


def test_followers_hear_of_each_turn_once() -> None:
    heard: list[bool] = []
    change = Applied("any", lambda: None)
    change.follow(heard.append)
    for on in (True, False, False, True):
        change.turn(on=on)
    assert heard == [True, False, True]
