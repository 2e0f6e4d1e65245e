"""Turn changes of a recorded program on and off between its steps, and compare the times of these.

Two runs of a program differ by more than most changes save, but two steps that follow each other hardly do.
So changes that can be turned off again take turns with the unchanged program inside one process: in each
cycle, a few steps with none and a few with each, in random order. The order is the same in all ranks of a
job, which have to agree, and another in the next process, so that what it does to the ratios is not the same
in all of them. Imports nothing of tracekit, as the other modules of the agent.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from .device import CUDA, DeviceClock, HostClock, is_capturing

UNTIMED_STEPS, TIMED_STEPS = 1, 2
"""Steps in a row with the same changes. The first of them begins with caches that others have filled."""
FIRST_STEPS = 2
"""Steps of the program before the first cycle."""
MIN_CYCLES = 3
NONE = ""
"""Name of the unchanged program."""


class Applied:
    """Tells whether a change is on, and whether it ever took effect.

    Args:
        name: Name of the change.
        count: Called whenever it takes effect.
        is_on: Whether it is on.
    """

    def __init__(self, name: str, count: Callable[[], None], *, is_on: bool = True) -> None:
        self.name, self.is_on = name, is_on
        self.took_effect = False
        self._count = count
        self._turns: list[Callable[[bool], None]] = []

    def __call__(self) -> None:
        """Count that the change took effect, or will as soon as it is on."""
        self.took_effect = True
        self._count()

    def follow(self, turn: Callable[[bool], None]) -> None:
        """Call a function now and whenever the change is turned on or off, with whether it is on."""
        self._turns.append(turn)
        turn(self.is_on)

    def turn(self, *, on: bool) -> None:
        """Turn the change on or off."""
        if on != self.is_on:
            self.is_on = on
            for turn in self._turns:
                turn(on)


class Alternation:
    """Turns changes on and off, and times the steps between.

    Args:
        torch: The program's torch.
        changes: The changes, which are off.
        steps: Steps of the program that may be used, from its first; all changes are off after them.
        seed: Decides the order; the same in all ranks of a job.
    """

    def __init__(self, torch: Any, changes: Sequence[Applied], steps: int, *, seed: str = "") -> None:
        self._torch, self._steps, self._seed = torch, steps, seed
        self._changes = {change.name: change for change in changes}
        self.begin()

    def begin(self) -> None:
        """Begin, or begin again, at a step of the program from which on its steps count."""
        self.end()
        self._left = self._steps
        self._clock: HostClock | DeviceClock = HostClock()
        self._cycles: list[dict[str, tuple[Any, Any]]] = []
        self._turns = self._take_turns()

    def end(self) -> None:
        """Turn all changes off, also where one raises an error, and count no more steps."""
        self._left = 0
        for change in self._changes.values():
            with suppress(Exception):
                change.turn(on=False)

    def end_step(self) -> None:
        """Tell that a step of the program has ended."""
        if self._left <= 0 or is_capturing(self._torch):
            return
        self._left -= 1
        next(self._turns)
        if not self._left:
            self.end()

    def _take_turns(self) -> Iterator[None]:
        """Go on at the end of each step."""
        random, names = Random(self._seed), [NONE, *self._changes]  # noqa: S311 (of an order)
        yield from [None] * (FIRST_STEPS - 1)
        if self._torch.cuda.is_initialized():
            self._clock = DeviceClock(self._torch, CUDA)
        while True:
            cycle = {}
            for name in random.sample(names, len(names)):
                self._clock.wait()  # else the host is ahead by what the former changes let it
                self._turn_on(name)
                yield from [None] * UNTIMED_STEPS
                began = self._clock.now()
                yield from [None] * TIMED_STEPS
                cycle[name] = began, self._clock.now()
            self._cycles.append(cycle)
            names = [NONE, *(name for name in self._changes if self._may_take_effect(name))]

    def _may_take_effect(self, name: str) -> bool:
        """Whether a change took effect; in several ranks, which may differ in that, it may in another one."""
        distributed = self._torch.distributed
        has_ranks = distributed.is_available() and distributed.is_initialized()
        return has_ranks or self._changes[name].took_effect

    def _turn_on(self, wanted: str) -> None:
        """Turn one change on, and the others off before it."""
        for name, change in self._changes.items():
            if name != wanted:
                change.turn(on=False)
        if wanted:
            self._changes[wanted].turn(on=True)

    def facts(self) -> dict[str, Any] | None:
        """Return how long a step took in the unchanged program, ns, and times that with each change.

        The ratio of a change is the median of those of the cycles, so that a pause of the machine, which
        falls into one of them, counts little. The first cycle, in which much happens for the first time, is
        left out, and so are changes that found nothing to change in it, or too late. None if there
        were too few cycles.
        """
        cycles = list(filter(None, map(self._read, self._cycles[1:])))
        if len(cycles) < MIN_CYCLES:
            return None
        ratios = {}
        for name, change in self._changes.items():
            own = [cycle[name] / cycle[NONE] for cycle in cycles if name in cycle]
            if change.took_effect and len(own) >= MIN_CYCLES:
                ratios[name] = statistics.median(own)
        unchanged = statistics.fmean(cycle[NONE] for cycle in cycles)
        return {"step_ns": unchanged, "ratios": ratios, "cycles": len(cycles)}

    def _read(self, cycle: dict[str, tuple[Any, Any]]) -> dict[str, float]:
        """Return the time of a step by change, ns; empty if the clock lacks one."""
        times, _ = self._clock.elapsed_ns(cycle.values())
        if len(times) < len(cycle):
            return {}
        return {name: ns / TIMED_STEPS for name, ns in zip(cycle, times, strict=True)}
