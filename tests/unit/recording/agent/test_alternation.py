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

    def __init__(self, steps: int, *, initialized: bool = False, ranks: bool = False, seed: str = "") -> None:
        self.now, self.done = 0, 0
        self.changes = {name: Applied(name, lambda: None, is_on=False) for name in RATIOS}
        for name in ("faster", "slower"):
            self.changes[name].took_effect = True
        cuda = SimpleNamespace(is_initialized=lambda: initialized, is_current_stream_capturing=lambda: True)
        distributed = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: ranks)
        torch = SimpleNamespace(cuda=cuda, distributed=distributed)
        self.alternation = Alternation(torch, list(self.changes.values()), steps, seed=seed)
        clock: Any = SimpleNamespace(now=lambda: self.now, wait=self.wait, elapsed_ns=HostClock().elapsed_ns)
        self.alternation._clock = clock

    def wait(self) -> None:
        """Wait for the device."""

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
    program.run(steps)
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


def test_the_last_step_ends_a_cycle() -> None:
    program = Played(2 + 12 + 3 * 9)
    program.run(2 + 12 + 3 * 9)
    facts: Any = program.alternation.facts()
    assert (facts["cycles"], program.on()) == (3, [])


def test_ranks_agree_on_the_order_also_where_a_change_takes_effect_in_one_only() -> None:
    orders = []
    for seed in ("job", "job", "next job"):
        program, seen = Played(200, ranks=True, seed=seed), []
        program.changes["slower"].took_effect = len(orders) % 2 == 1
        for _ in range(100):
            program.run(1)
            seen.append(program.on())
        orders.append(seen)
        facts: Any = program.alternation.facts()
        assert ("slower" in facts["ratios"]) == program.changes["slower"].took_effect
    assert orders[0] == orders[1] != orders[2]


def test_a_change_that_takes_effect_late_leaves_the_others_known() -> None:
    program = Played(200)
    program.run(20)
    program.changes["absent"].took_effect = True
    program.run(30)
    facts: Any = program.alternation.facts()
    assert set(facts["ratios"]) == {"faster", "slower"}
    program.run(100)
    facts = program.alternation.facts()
    assert facts["ratios"]["absent"] == pytest.approx(1.0, rel=0.01)


def test_steps_of_another_kind_are_no_part_of_the_ratios() -> None:
    """As calls of a model before its training."""
    program = Played(100)
    program.run(50)
    program.alternation.begin()
    assert program.on() == []
    assert program.alternation.facts() is None
    program.run(99)
    assert program.on()
    program.run(1)
    assert program.on() == []


def test_all_are_off_after_an_error() -> None:
    def fail(on: bool) -> None:
        if program.done:
            raise RuntimeError

    program = Played(100)
    program.changes["faster"].follow(fail)
    with pytest.raises(RuntimeError):
        program.run(20)
    program.alternation.end()
    assert program.on() == []


class Queued(Played):
    """A program whose host launches work ahead of its device, which takes 10 ms a step, 4 ms if faster."""

    LAUNCHES, HOST_NS = 10, 8_000_000

    def __init__(self, steps: int) -> None:
        self.host = 0
        super().__init__(steps)

    def wait(self) -> None:
        self.host = max(self.host, self.now)

    def run(self, steps: int, *, pause_at: int = -1) -> None:
        for _ in range(steps):
            for _ in range(self.LAUNCHES):
                self.host += self.HOST_NS // self.LAUNCHES
                device_ns = 4_000_000 if self.on() == ["faster"] else 10_000_000
                self.now = max(self.now, self.host) + device_ns // self.LAUNCHES
            self.alternation.end_step()


def test_work_that_waits_on_a_device_is_none_of_the_next_turn() -> None:
    """A change that takes 6 of 10 ms from the device saves 2, as the host launches for 8 ms."""
    program = Queued(200)
    program.run(200)
    facts: Any = program.alternation.facts()
    assert facts["ratios"]["faster"] == pytest.approx(0.8, rel=0.02)
