"""Contenders take turns, so that a machine whose speed drifts treats them alike."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.runner.cost import Cost, Failure
from benchmarks.runner.measure import Limits, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


def _nothing(_: Path) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A command that is measured.

    Attributes:
        name: How tables call it.
        does: What a run of it consists of.
        command: Program and arguments, given an empty folder that is this run's own.
        against: Name of the contender by whose cost its own is divided; empty for none.
        environment: Variables it gets besides this process's own.
        prepare: Done in the empty folder before the clock starts.
        missing: Why it cannot run here; empty where it can.
    """

    name: str
    does: str
    command: Callable[[Path], Sequence[str]]
    against: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[Path], None] = _nothing
    missing: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A contender, and what its runs took.

    Attributes:
        contender: What ran.
        costs: One for each round that it finished.
        failed: Why there is none, or none after these; empty where every round was finished.
    """

    contender: Contender
    costs: tuple[Cost, ...] = ()
    failed: str = ""


def interleaved(
    contenders: Sequence[Contender],
    *,
    rounds: int,
    scratch: Path,
    limits: Limits | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Measure every contender once, then every one again, and so on; who fails is not asked again.

    Args:
        contenders: Who takes part.
        rounds: How often each is measured.
        scratch: A folder that is emptied before each run and removed after the last.
        limits: Where a run is ended.
        tell: Told of each run.
    """
    costs: dict[str, list[Cost]] = {one.name: [] for one in contenders}
    failed = {one.name: one.missing for one in contenders}
    for number in range(rounds):
        for one in contenders:
            if failed[one.name]:
                continue
            done = _once(one, scratch, limits)
            if isinstance(done, Failure):
                failed[one.name] = done.why
                tell(f"round {number + 1}: {one.name}: failed: {done.why}")
            else:
                costs[one.name].append(done)
                tell(f"round {number + 1}: {one.name}: {done.wall_s:.2f} s, CPU {done.cpu_s:.2f} s")
    return [Row(contender=one, costs=tuple(costs[one.name]), failed=failed[one.name]) for one in contenders]


def _once(contender: Contender, scratch: Path, limits: Limits | None) -> Cost | Failure:
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        contender.prepare(scratch)
        os.sync()  # what others left to be written is not this one's to wait for
        return measure(contender.command(scratch), limits=limits, environment=contender.environment)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
