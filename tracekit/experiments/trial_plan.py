"""What a trial measures: which changes, which of them take turns inside one process, and what that gave.

Step times of two processes differ by more than most changes save; those of steps that follow each other
hardly differ. So one process measures all changes that can be turned on and off between steps, each against
the unchanged steps beside its own; `tracekit.recording.agent.alternation` turns them. The ratios of several
processes are compared as those of pairs of runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from tracekit.analysis.findings import Advice
from tracekit.experiments.measure import Program, Sample
from tracekit.experiments.trial_model import (
    UNCHANGED,
    Candidate,
    Measurement,
    Names,
    Outcome,
    Status,
    read_numbers,
)
from tracekit.recording import changes
from tracekit.recording.agent.alternation import FIRST_STEPS, MIN_CYCLES, TIMED_STEPS, UNTIMED_STEPS
from tracekit.recording.changes import TOLERANCE
from tracekit.runs.environment import program_settings
from tracekit.runs.metrics import STEP_TIME
from tracekit.runs.run import Run

KNOWN_STEPS = 1_000
"""Steps after the profile that are timed to know how many a program has."""
_MOST_CYCLES, _CYCLES_NS = 20, 20 * 10**9
"""Cycles from which more make the ratios hardly more precise, and time that those of a process may take."""
_WINDOW = UNTIMED_STEPS + TIMED_STEPS
MAX_CANDIDATES = 12
"""Changes that are tried if none are named."""


def choose(
    advice: Advice, settings: Mapping[str, Any], *, has_device: bool, known: Mapping[str, changes.Change]
) -> list[Candidate]:
    """Choose changes that answer findings, largest saving first, then those that fit the program.

    Of the latter come first those that fit settings of its own, and those that leave its numbers as they are.

    Args:
        advice: Findings of the run.
        settings: Settings of the program.
        has_device: Whether the program used a GPU.
        known: Changes by name.
    """
    saved, chosen = advice.shares, []
    for name, change in known.items():
        shares = [saved[code] for code in change.answers if code in saved]
        if (shares or change.fits(settings)) and (has_device or not change.needs_device):
            predicted = max(shares, default=0.0) or None
            rank = (not shares, -(predicted or 0.0), change.fits_defaults, TOLERANCE[change.results])
            chosen.append((rank, Candidate(names=(name,), changes=(change,), predicted=predicted)))
    chosen.sort(key=lambda item: item[0])
    return [candidate for _, candidate in chosen[:MAX_CANDIDATES]]


def is_workload(command: Sequence[str]) -> bool:
    """Whether a command collects a built-in workload, which runs as many steps as it is told to."""
    program = Program(command=tuple(command), repository=Path())
    return program.collects and any(word.split("=")[0] == "--workload" for word in _split(command)[0])


def _split(command: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the words before the first `--`, and the others."""
    place = command.index("--") if "--" in command else len(command)
    return command[:place], command[place:]


def collect_program(command: tuple[str, ...], names: Names, *, steps: int = 0, timed: int = 0) -> Program:
    """Return `tracekit collect` of a program with changes.

    Args:
        command: The program, or `tracekit collect` of it, whose options count, except for where turns end.
        names: The changes.
        steps: Steps in which the changes take turns; 0 if they do not.
        timed: Steps to time after the profile, if `command` does not say how many.
    """
    program = Program(command=command, repository=Path.cwd(), in_place=True)
    options, words = _split(command[2:]) if program.collects else ((), ("--", *command))
    first = [word for name in names for word in ("--change", name)]
    last: list[str] = []
    if is_workload(command):
        last += ["--alternate", "--no-profile", "--steps", str(steps)] if steps else []
    else:
        first += ["--timed-steps", str(timed)] if timed else []
        last += ["--alternate", "--start-step", str(steps)] if steps else []
    collect = ("tracekit", "collect", "--format", "csv", *first, *options, *last, *words)
    return replace(program, command=collect)


def plan_turns(
    command: Sequence[str], run: Run, candidates: Sequence[Candidate], *, process_s: float = math.inf
) -> tuple[list[Candidate], int]:
    """Choose the candidates that take turns in each process, and the number of its steps for them.

    Args:
        command: The program, or `tracekit collect` of it.
        run: A run of it.
        candidates: What is to be measured, the most important first.
        process_s: Time that there is for each process, s.

    Returns:
        The candidates, fewer where the program has few steps, and the steps.
    """
    device = "cuda" if run.rows("device_intervals") else "cpu"
    settings = program_settings(run.meta.environment)
    able = [
        candidate
        for candidate in candidates
        if all(
            device in change.alternates_on and change.alternates_in(settings) for change in candidate.changes
        )
    ]
    step_ns = run.meta.timings.step_ns if run.meta.timings else []
    if not is_workload(command):  # whose steps are not known to be more
        able = able[: max(0, (len(step_ns) - FIRST_STEPS - 1) // (_WINDOW * (1 + MIN_CYCLES)) - 1)]
    if not able or not step_ns:
        return [], 0
    cycle = _WINDOW * (1 + len(able))
    most_ns = min(_CYCLES_NS, 1e9 * process_s)
    cycles = min(_MOST_CYCLES, max(MIN_CYCLES, int(most_ns / (cycle * fmean(step_ns)))))
    steps = FIRST_STEPS + cycle * (1 + cycles) + 1
    return able, steps if is_workload(command) else min(steps, len(step_ns))


def expect_turns(run: Run, steps: int, recorded_s: float) -> float:
    """Return how long a process with turns takes, s, before there was one.

    Args:
        run: A run of the unchanged program.
        steps: Steps of the process.
        recorded_s: Time in which the run was recorded, s; 0 if it is not known.
    """
    step_ns = (run.meta.timings.step_ns if run.meta.timings else []) or [0]
    start_s = max(0.0, recorded_s - sum(step_ns) / 1e9)
    return max(recorded_s, start_s + steps * fmean(step_ns) / 1e9)


def join(outcomes: Sequence[Outcome]) -> Candidate:
    """Return the candidate that makes the changes of several."""
    candidates = [outcome.candidate for outcome in outcomes]
    return Candidate(
        names=tuple(name for candidate in candidates for name in candidate.names),
        changes=tuple(change for candidate in candidates for change in candidate.changes),
    )


def sort(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Sort by status, then by step time."""
    order = list(Status)
    return sorted(
        outcomes,
        key=lambda outcome: (
            order.index(outcome.status),
            (outcome.step_time.ratio if outcome.step_time else None) or 1.0,
        ),
    )


def read_run(names: Names, block: int, sample: Sample, pattern: str) -> Measurement:
    """Return what a process measured in which changes were on all the time.

    Args:
        names: The changes.
        block: Number of the block.
        sample: The process.
        pattern: Expression for numbers that it prints, as `read_numbers` takes it.
    """
    settings = program_settings(sample.run.meta.environment) if sample.run else {}
    counts = settings.get("changes", {})
    return Measurement(
        names,
        block,
        values=dict(sample.values),
        applied=min((counts.get(name, 0) for name in names), default=0),
        numbers=read_numbers(pattern, sample.output),
        contention=sample.contention,
        places={name: place for name, place in settings.get("change_places", {}).items() if name in names},
    )


def read_turns(
    sample: Sample, candidates: Sequence[Candidate], block: int, seconds: float
) -> list[Measurement]:
    """Return what a process measured of its candidates; empty if its steps were too few.

    Args:
        sample: The process.
        candidates: What took turns in it.
        block: Number of the block.
        seconds: Time that the process took.
    """
    settings = program_settings(sample.run.meta.environment) if sample.run else {}
    alternation, counts = settings.get("alternation"), settings.get("changes", {})
    places = settings.get("change_places", {})
    if not alternation:
        return []
    step_ns = float(alternation["step_ns"])
    base = {STEP_TIME: step_ns}
    measured = [Measurement(UNCHANGED, block, base, contention=sample.contention, seconds=seconds)]
    for candidate in candidates:
        (name,) = candidate.names
        ratio, applied = alternation["ratios"].get(name), counts.get(name, 0)
        if ratio is not None:
            at = {name: places[name]} if name in places else {}
            values = {STEP_TIME: step_ns * ratio}
            measured.append(Measurement(candidate.names, block, values, applied, places=at))
        elif not applied:
            measured.append(Measurement(candidate.names, block))
    return measured
