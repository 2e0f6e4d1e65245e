"""Try changes inside a program, each against the unchanged program (`tracekit try`).

A block runs the unchanged program once, and every change that is not decided yet, each in a new process:
forward in one block, backward in the next, so that drift of the machine affects all alike. One run of the
unchanged program serves all changes of its block. Measurements are stored one by one: a call that was
interrupted goes on where it ended.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from tracekit.analysis.findings import Advice, advise
from tracekit.analysis.savings import TRIALS
from tracekit.errors import TracekitError, UnusableInputError
from tracekit.experiments.measure import Program, Sample, Say, measure, refuse_store, store_run
from tracekit.experiments.options import TryOptions
from tracekit.experiments.process import ProgramError
from tracekit.experiments.source_edit import diff_sources
from tracekit.experiments.state import StateFile, exclusive_lock, question_key, variables_of_question
from tracekit.experiments.trial_log import log_outcomes
from tracekit.experiments.trial_model import (
    UNCHANGED,
    UNDECIDED,
    Candidate,
    Measurement,
    Names,
    Outcome,
    Status,
    check_pattern,
    compare_candidates,
    is_forward,
    read_numbers,
)
from tracekit.recording import changes
from tracekit.runs import environment, revisions
from tracekit.runs.conditions import contention_warnings
from tracekit.runs.environment import PROGRAM
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.runs.text import duration
from tracekit.schema import C, HostKind

FOLDER = str(TRIALS.parent)
LABEL = "try-base"
MAX_CANDIDATES = 12
"""Changes that are tried if none are named."""


@dataclass(frozen=True, kw_only=True)
class TryRequest(TryOptions):
    """What to try: the program, and the time after which no block is begun, in s; None for no limit."""

    command: tuple[str, ...]
    budget_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class TryReport:
    """Outcomes, those that help most first.

    Attributes:
        request: What was asked.
        run: Id of the run of the unchanged program that the changes were chosen by.
        outcomes: Of each change, and of those that were tried together.
        blocks: Runs of the unchanged program.
        disturbed: What kept runs from the CPU.
        seconds: Time of this call.
        diff: Unified diff of the program that makes the best outcome; empty if its lines are not known.
    """

    request: TryRequest
    run: str
    outcomes: tuple[Outcome, ...]
    blocks: int
    disturbed: tuple[str, ...] = ()
    seconds: float = 0.0
    diff: str = ""

    @property
    def best(self) -> Outcome | None:
        """The fastest outcome that leaves the printed numbers as they may be."""
        helpful = (outcome for outcome in self.outcomes if outcome.status is Status.HELPS)
        return next((outcome for outcome in helpful if not outcome.alters), None)

    def content(self) -> dict[str, Any]:
        """Convert to JSON values, without the schema name."""
        return {
            "run": self.run,
            "command": list(self.request.command),
            "threshold": self.request.threshold,
            "blocks": self.blocks,
            "outcomes": [outcome.entry() for outcome in self.outcomes],
            "disturbed": list(self.disturbed),
            "seconds": round(self.seconds, 3),
            "diff": self.diff,
        }


def try_changes(
    store: Store,
    request: TryRequest,
    *,
    run: Run | None = None,
    say: Say = lambda _: None,
    progress: Say = lambda _: None,
) -> TryReport:
    """Try changes in a program.

    Args:
        store: Store of the run of the unchanged program, and of the measurements.
        request: What to try.
        run: A run of the program, by which changes are chosen; one is recorded by default.
        say: Receives messages.
        progress: Receives a line before each run.

    Returns:
        The report. The stored measurements are deleted, unless the time was over: a later call goes on.

    Raises:
        ProgramError: The unchanged program failed.
        CollectionError: Its steps were not measured.
        UnusableInputError: A change does not exist, none fits, or another call is measuring in this store.
    """
    for name in request.change:
        changes.find(name)
    check_pattern(request.check_value)
    _ = request.design.looks  # refuses an invalid design before anything starts
    busy = f"another `tracekit try` is measuring in {store.path}"
    with exclusive_lock(store.folder(FOLDER) / "lock", busy, hint="wait until it is finished"):
        bench = _Bench(store, request, say, progress)
        try:
            return bench.report(run)
        finally:
            shutil.rmtree(bench.scratch, ignore_errors=True)


def choose(
    advice: Advice, settings: Mapping[str, Any], *, has_device: bool, known: Mapping[str, changes.Change]
) -> list[Candidate]:
    """Choose changes that answer findings, largest saving first, then those that fit the program.

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
            chosen.append((not shares, Candidate(names=(name,), changes=(change,), predicted=predicted)))
    chosen.sort(key=lambda item: (item[0], -(item[1].predicted or 0.0)))
    return [candidate for _, candidate in chosen[:MAX_CANDIDATES]]


@dataclass
class _Bench:
    """The measurements so far."""

    store: Store
    request: TryRequest
    say: Say
    progress: Say
    measured: list[Measurement] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.advice: Advice
        self.scratch = self.store.folder(FOLDER) / "runs"
        question = {
            "machine": environment.identity(),
            "code": [revisions.state(), _hash_sources(self.request.command)],
            "command": self.request.command,
            "change": self.request.change,
            "folder": str(Path.cwd()),
            "check_value": self.request.check_value,
            "variables": variables_of_question(),
        }
        path = self.store.folder(FOLDER) / f"{question_key(question)}.json"
        self.file = StateFile(path, Measurement)
        if self.request.restart:
            self.file.delete()
        self.measured = self.file.records()

    @property
    def seconds(self) -> float:
        """Time since this call began, s."""
        return time.monotonic() - self.began

    def report(self, run: Run | None) -> TryReport:
        """Choose changes, try them alone and then together, and return what is known."""
        run = run or self.record_unchanged()
        candidates = self.choose(run)
        if self.measured:
            self.say(f"resuming after {len(self.measured)} runs")
        outcomes = self.decide(candidates)
        helpful = [outcome for outcome in _sort(outcomes) if outcome.status is Status.HELPS]
        if self.request.combine and len(helpful) > 1:
            sets = [_join(helpful[: count + 1]) for count in range(1, len(helpful))]
            outcomes += self.decide(sets, first=self.request.design.looks[-1].k)
        if not self._is_over():
            self.file.delete()
        log_outcomes(self.store, run, outcomes, self.advice)
        report = TryReport(
            request=self.request,
            run=run.id,
            outcomes=tuple(_sort(outcomes)),
            blocks=sum(item.names == UNCHANGED for item in self.measured),
            disturbed=tuple(contention_warnings("program", [item.contention for item in self.measured])),
            seconds=self.seconds,
        )
        best = report.best
        return report if best is None else replace(report, diff=_diff(best))

    def record_unchanged(self) -> Run:
        """Record the unchanged program once, also as a warm-up."""
        self.progress("recording the unchanged program, by which changes are chosen")
        sample = measure(self._program(UNCHANGED), Path.cwd(), scratch=self.scratch)
        if sample.run is None:
            raise UnusableInputError("the program recorded no run", hint="see `tracekit collect --help`")
        return store_run(self.store, sample.run, label=LABEL)

    def choose(self, run: Run) -> list[Candidate]:
        """Return the candidates: the named changes, or those that fit the run."""
        known = changes.available()
        settings = run.meta.environment.get(PROGRAM) or {}
        self.advice = advise(run)
        fitting = choose(self.advice, settings, has_device=run.rows("device_intervals") > 0, known=known)
        if not self.request.change:
            if not fitting:
                hint = f"name some with --change: {', '.join(known)}"
                raise UnusableInputError("no change fits this program", hint=hint)
            self.say(f"trying {', '.join(candidate.key for candidate in fitting)}")
            return fitting
        predicted = {candidate.key: candidate.predicted for candidate in fitting}
        return [
            Candidate(names=(name,), changes=(known[name],), predicted=predicted.get(name))
            for name in dict.fromkeys(self.request.change)
        ]

    def decide(self, candidates: Sequence[Candidate], *, first: int = 0) -> list[Outcome]:
        """Measure until every candidate is decided, the runs are used up, or the time is.

        Args:
            candidates: What to measure.
            first: Number of the first block; candidates that are measured later get blocks of their own.
        """
        design = self.request.design
        decided: dict[str, Outcome] = {}
        for look in design.looks:
            active = [candidate for candidate in candidates if candidate.key not in decided]
            for block in range(first, first + look.k):
                if not self.measure_block(active, block, first):
                    break
            outcomes = compare_candidates(candidates, self.select(first), look, design.threshold)
            for key, outcome in outcomes.items():
                if key not in decided:
                    self.progress(f"after {look.k} runs, {key}: {outcome.status} {outcome.effect}".rstrip())
                    if outcome.status not in UNDECIDED:
                        decided[key] = outcome
            if len(decided) == len(candidates) or self._is_over():
                break
        return [decided.get(candidate.key, outcomes[candidate.key]) for candidate in candidates]

    def select(self, first: int) -> list[Measurement]:
        """Return the measurements from a block on, whose numbers begin at 0."""
        return [replace(item, block=item.block - first) for item in self.measured if item.block >= first]

    def measure_block(self, active: Sequence[Candidate], block: int, first: int) -> bool:
        """Measure what a block lacks; return whether it was, as it is not after the end of the time.

        Args:
            active: Candidates to measure.
            block: Number of the block.
            first: Number of the first block of these candidates.
        """
        order = [UNCHANGED, *(candidate.names for candidate in active)]
        for names in order if is_forward(block - first) else reversed(order):
            done = [item for item in self.measured if item.names == names]
            has_ended = any(item.error or not item.applied for item in done) and names != UNCHANGED
            if has_ended or any(item.block == block for item in done):
                continue
            if self._is_over():
                return False
            self._measure(names, block)
        return True

    def _is_over(self) -> bool:
        return self.request.budget_s is not None and self.seconds > self.request.budget_s

    def _measure(self, names: Names, block: int) -> None:
        what = "+".join(names) or "unchanged"
        self.progress(f"block {block + 1}: {what}, {duration(self.seconds)} elapsed")
        try:
            sample = measure(self._program(names), Path.cwd(), scratch=self.scratch)
            measurement = _describe(names, block, sample, self.request.check_value)
        except TracekitError as error:
            if names == UNCHANGED or isinstance(error, UnusableInputError):
                raise
            tail = error.tail.splitlines() if isinstance(error, ProgramError) else []
            reason = ": ".join([error.message, *tail[-1:]])
            measurement = Measurement(names, block, error=reason)
        self.measured.append(measurement)
        self.file.append(measurement)

    def _program(self, names: Names) -> Program:
        program = _collect_program(self.request.command, names)
        refuse_store(program)
        return program


def _collect_program(command: tuple[str, ...], names: Names) -> Program:
    """Return `tracekit collect` of a program with changes; the command may be a `tracekit collect` itself."""
    program = Program(command=command, repository=Path.cwd(), in_place=True)
    words = command[2:] if program.collects else ("--", *command)
    flags = [word for name in names for word in ("--change", name)]
    return replace(program, command=("tracekit", "collect", *flags, *words))


def _hash_sources(command: Sequence[str]) -> dict[str, str]:
    """Return hashes of sources that a commit does not tell: files of the command, and untracked modules."""
    root = revisions.root() or Path.cwd()
    listed = revisions.output("ls-files", "--others", "--exclude-standard", "-z", "--", "*.py", cwd=root)
    untracked = [*Path.cwd().glob("*.py")] if listed is None else map(os.fsdecode, listed.split(b"\0"))
    files = {root / name for name in untracked if name} | {Path.cwd() / word for word in command}
    return {str(file): sha256(file.read_bytes()).hexdigest() for file in sorted(files) if file.is_file()}


def _describe(names: Names, block: int, sample: Sample, pattern: str) -> Measurement:
    settings = (sample.run.meta.environment.get(PROGRAM) or {}) if sample.run else {}
    counts = settings.get("changes", {})
    return Measurement(
        names,
        block,
        values=dict(sample.values),
        applied=min((counts.get(name, 0) for name in names), default=0),
        numbers=read_numbers(pattern, sample.output),
        ops=_count_ops(sample.run) if sample.run else 0,
        contention=sample.contention,
        places={name: place for name, place in settings.get("change_places", {}).items() if name in names},
    )


def _count_ops(run: Run) -> int:
    """Return the ops of a profiled step."""
    is_op = (pc.field(C.KIND) == str(HostKind.OP)) & pc.field(C.STEP).is_valid()
    ops: int = run.arrow("host_intervals", columns=[C.ROW_ID], where=is_op).num_rows
    return ops // max(1, run.rows("steps"))


def _diff(outcome: Outcome) -> str:
    candidate = outcome.candidate
    return diff_sources(candidate.changes, outcome.places, candidate.names, Path.cwd())


def _join(outcomes: Sequence[Outcome]) -> Candidate:
    candidates = [outcome.candidate for outcome in outcomes]
    return Candidate(
        names=tuple(name for candidate in candidates for name in candidate.names),
        changes=tuple(change for candidate in candidates for change in candidate.changes),
    )


def _sort(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Sort by status, then by step time."""
    order = list(Status)
    return sorted(
        outcomes,
        key=lambda outcome: (
            order.index(outcome.status),
            (outcome.step_time.ratio if outcome.step_time else None) or 1.0,
        ),
    )
