"""What a trial measures: which changes, which of them take turns inside one process, and what that gave.

Step times of two processes differ by more than most changes save; those of steps that follow each other
hardly differ. So one process measures all changes that can be turned on and off between steps, each against
the unchanged steps beside its own; `tracekit.recording.agent.alternation` turns them. The ratios of several
processes are compared as those of pairs of runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracekit.analysis.findings import Advice
from tracekit.experiments.measure import Program, Sample
from tracekit.experiments.trial_model import UNCHANGED, Candidate, Measurement, Names
from tracekit.recording import changes
from tracekit.recording.agent.alternation import FIRST_STEPS, MIN_CYCLES, TIMED_STEPS, UNTIMED_STEPS
from tracekit.recording.changes import TOLERANCE
from tracekit.runs.environment import PROGRAM
from tracekit.runs.metrics import STEP_TIME
from tracekit.runs.run import Run

KNOWN_STEPS = 1_000
"""Steps after the profile that are timed to know how many a program has."""
_CYCLES = 20
"""Cycles from which more make the ratios hardly more precise."""
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


def collect_program(command: tuple[str, ...], names: Names, options: tuple[str, ...]) -> Program:
    """Return `tracekit collect` of a program with changes; the command may be a `tracekit collect` itself.

    Args:
        command: The program, or `tracekit collect` of one, whose options count more than these.
        names: The changes.
        options: Further options.
    """
    program = Program(command=command, repository=Path.cwd(), in_place=True)
    words = command[2:] if program.collects else ("--", *command)
    flags = [word for name in names for word in ("--change", name)]
    return replace(program, command=("tracekit", "collect", "--format", "csv", *options, *flags, *words))


def plan_turns(
    command: Sequence[str], run: Run, candidates: Sequence[Candidate]
) -> tuple[list[Candidate], int]:
    """Choose the candidates that take turns in each process, and the number of its steps for them.

    Args:
        command: The program, or `tracekit collect` of one.
        run: A run of it.
        candidates: What is to be measured, the most important first.

    Returns:
        The candidates, fewer where the program has few steps, and the steps; none for a built-in workload.
    """
    device = "cuda" if run.rows("device_intervals") else "cpu"
    able = [one for one in candidates if all(device in change.alternates_on for change in one.changes)]
    timings = run.meta.timings
    steps = len(timings.step_ns) if timings else 0
    most = (steps - FIRST_STEPS) // (_WINDOW * (1 + MIN_CYCLES)) - 1
    if most < 1 or not able or any(word.split("=")[0] == "--workload" for word in command):
        return [], 0
    chosen = able[:most]
    return chosen, min(steps, FIRST_STEPS + _WINDOW * (1 + _CYCLES) * (1 + len(chosen)) + 1)


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
    settings = (sample.run.meta.environment.get(PROGRAM) or {}) if sample.run else {}
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
