"""Try changes inside a program, each against the unchanged program (`tracekit try`).

Changes that can be turned on and off between steps take turns inside one process per block, see
`trial_plan`; those that help are then run as a whole. For the others, a block runs the unchanged
program once, and every change that is not decided yet, each in a new process:
forward in one block, backward in the next, so that drift of the machine affects all alike. One run of the
unchanged program serves all changes of its block. Measurements are stored one by one: a call that was
interrupted goes on where it ended.

Each change is tested after fixed numbers of its own blocks, so that how time is shared between changes,
by what is known of them, leaves the probability of false claims as it is.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tracekit.analysis.findings import Advice, advise
from tracekit.analysis.savings import TRIALS
from tracekit.errors import TracekitError, UnusableInputError
from tracekit.experiments import trial_plan
from tracekit.experiments.bisect_model import counts
from tracekit.experiments.measure import Program, Say, measure, refuse_store, store_run
from tracekit.experiments.options import TryOptions
from tracekit.experiments.process import ProgramError
from tracekit.experiments.source_edit import diff_sources
from tracekit.experiments.state import StateFile, code_of, lock_measuring
from tracekit.experiments.trial_log import log_outcomes
from tracekit.experiments.trial_model import (
    UNCHANGED,
    UNDECIDED,
    Candidate,
    Measurement,
    Names,
    Outcome,
    Schedule,
    Status,
    add_whole_runs,
    check_pattern,
    count_pairs,
    has_ended,
    is_forward,
)
from tracekit.recording import changes
from tracekit.runs.conditions import contention_warnings
from tracekit.runs.display import Displayed
from tracekit.runs.environment import program_settings
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.runs.text import duration

FOLDER = str(TRIALS.parent)
LABEL, BASE = "try-{}", "base"
"""Labels of the runs that are kept: one of the unchanged program, and one with each change."""
PART = 10_000
FIRST_SET, FIRST_ALTERNATING, FIRST_WHOLE = PART, 2 * PART, 3 * PART
"""Numbers of the first blocks of changes that are tried together, of those that take turns inside a process,
and of whole runs of these."""
SHARE_OF_SETS, SHARE_OF_FIRST = 1 / 3, 2 / 3
"""Share of the time that is left to sets, and share of the rest for all but the last candidates."""


@dataclass(frozen=True, kw_only=True)
class TryRequest(TryOptions):
    """What to try: the program, and the time for all runs, in s; None for no limit."""

    command: tuple[str, ...]
    budget_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class TryReport(Displayed):
    """Outcomes, those that help most first."""

    request: TryRequest  # what was asked
    run: str  # id of the run of the unchanged program that the changes were chosen by
    outcomes: tuple[Outcome, ...]  # of each change, and of those that were tried together
    blocks: int  # runs of the unchanged program that were compared with runs of changes
    turns: int = 0  # processes in which changes took turns with the unchanged program
    disturbed: tuple[str, ...] = ()  # what kept runs from the CPU
    seconds: float = 0.0  # time of this call
    # unified diff of the program that makes the best outcome; empty if its lines are not known
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
            "turns": self.turns,
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
    on_report: Callable[[TryReport], None] = lambda _: None,
) -> TryReport:
    """Try changes in a program.

    Args:
        store: Store of the run of the unchanged program, and of the measurements.
        request: What to try.
        run: A run of the program, by which changes are chosen; one is recorded by default.
        say: Receives messages.
        progress: Receives a line before each run.
        on_report: Receives the report before the measurements are deleted: what is not told is not lost.

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
    with lock_measuring(store, FOLDER, "another `tracekit try`"):
        bench = _Bench(store, request, say, progress)
        try:
            return bench.report(run, on_report)
        finally:
            shutil.rmtree(bench.scratch, ignore_errors=True)


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
        self.recorded_s = self.turns_s = 0.0
        self.was_cut = False
        self.advice: Advice
        folder, here = self.store.folder(FOLDER), Path.cwd()
        self.scratch = folder / "runs"
        self.file = StateFile.of_call(
            folder,
            Measurement,
            restart=self.request.restart,
            code=code_of(here, self.request.command),
            command=self.request.command,
            change=self.request.change,
            folder=str(here),
            check_value=self.request.check_value,
        )
        self.measured = self.file.records()

    @property
    def seconds(self) -> float:
        """Time since this call began, s."""
        return time.monotonic() - self.began

    def report(self, run: Run | None, on_report: Callable[[TryReport], None]) -> TryReport:
        """Choose changes, try them alone and then together, and report what is known."""
        run = run or self.record_unchanged()
        candidates = self.choose(run)
        if self.measured:
            self.say(f"resuming after {len(self.measured)} runs")
        limit, is_last = self.request.budget_s, not self.request.combine
        outcomes = self.decide_singles(
            run, candidates, limit if is_last or limit is None else limit * (1 - SHARE_OF_SETS)
        )
        helpful = [outcome for outcome in trial_plan.sort(outcomes) if outcome.status is Status.HELPS]
        if self.request.combine and len(helpful) > 1:
            sets = [trial_plan.join(helpful[: count + 1]) for count in range(1, len(helpful))]
            outcomes += self.decide(sets, limit, first=FIRST_SET)
        parts = [item.block // PART * PART for item in self.measured if item.names == UNCHANGED]
        turns = parts.count(FIRST_ALTERNATING)
        report = TryReport(
            request=self.request,
            run=run.id,
            outcomes=tuple(trial_plan.sort(outcomes)),
            blocks=len(parts) - turns - parts.count(FIRST_WHOLE),
            turns=turns,
            disturbed=tuple(contention_warnings("program", [item.contention for item in self.measured])),
            seconds=self.seconds,
        )
        if (best := report.best) is not None:
            chosen = best.candidate
            diff = diff_sources(chosen.changes, best.places, chosen.names, Path.cwd())
            report = replace(report, diff=diff)
        on_report(report)
        log_outcomes(self.store, run, outcomes, self.advice)
        if not self.was_cut:
            self.file.delete()
        return report

    def record_unchanged(self) -> Run:
        """Record the unchanged program once, also as a warm-up."""
        self.progress("recording the unchanged program, by which changes are chosen")
        program = self._program(UNCHANGED, timed=trial_plan.KNOWN_STEPS)
        sample = measure(program, Path.cwd(), scratch=self.scratch)
        if sample.run is None:
            raise UnusableInputError("the program recorded no run", hint="see `tracekit collect --help`")
        self.recorded_s = self.seconds
        return store_run(self.store, sample.run, label=LABEL.format(BASE))

    def choose(self, run: Run) -> list[Candidate]:
        """Return the candidates: the named changes, or those that fit the run."""
        known = changes.available()
        settings = program_settings(run.meta.environment)
        self.advice = advise(run)
        has_device = run.rows("device_intervals") > 0
        fitting = trial_plan.choose(self.advice, settings, has_device=has_device, known=known)
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

    def decide_singles(
        self, run: Run, candidates: Sequence[Candidate], limit_s: float | None
    ) -> list[Outcome]:
        """Measure the candidates that can take turns in one process, then the others.

        If what findings recommend most cannot take turns, it comes first, with all else that they recommend,
        and goes on at the end if it is not decided by then.
        """
        looks = self.request.design.looks
        process_s = math.inf if limit_s is None else (limit_s - self.seconds) / looks[0].k
        together, steps = trial_plan.plan_turns(self.request.command, run, candidates, process_s=process_s)
        self.turns_s = trial_plan.expect_turns(run, steps, self.recorded_s)
        apart = [candidate for candidate in candidates if candidate not in together]
        first = (
            [candidate for candidate in apart if candidate.predicted]
            if candidates[0] in apart and together
            else []
        )
        later = len(candidates) - len(first)
        outcomes = self.decide(first, limit_s and limit_s * SHARE_OF_FIRST, others=later) if first else []
        self.was_cut = False
        share = 1.0 if len(first) == len(apart) else SHARE_OF_FIRST
        turned = []
        for starts_slowly in (False, True):
            chosen = [candidate for candidate in together if candidate.starts_slowly == starts_slowly]
            others = len(candidates) - len(chosen)
            turned += self.alternate(chosen, steps, limit_s and limit_s * share, others)
        turned = self.run_whole(turned, helpful=True)
        outcomes = [outcome for outcome in outcomes if outcome.status not in UNDECIDED]
        known = {outcome.candidate.key for outcome in turned + outcomes}
        rest = [candidate for candidate in candidates if candidate.key not in known]
        outcomes += self.decide(rest, limit_s, others=len(candidates) - len(rest))
        if limit_s is None:  # what changes do that do not help is worth no time that others may need
            turned = self.run_whole(turned, helpful=False)
        return turned + outcomes

    def alternate(
        self, candidates: Sequence[Candidate], steps: int, limit_s: float | None, others: int
    ) -> list[Outcome]:
        """Measure candidates that take turns in one process; return what is known of those that did.

        If a process fails, those that have had no test yet are left to processes of their own.
        """
        schedule = self._plan_tests(candidates, others, in_turns=True)
        block = 1 + max((item.block for item in self.select(FIRST_ALTERNATING)), default=-1)
        while True:
            measured = self.select(FIRST_ALTERNATING)
            schedule.judge(measured)
            active = schedule.find_active(measured)
            late = limit_s is not None and self.seconds + self.expect(UNCHANGED, in_turns=True) > limit_s
            self.was_cut |= bool(active) and late
            if not active or late:
                break
            if not self.measure_alternating(active, steps, FIRST_ALTERNATING + block):
                candidates = [
                    candidate
                    for candidate in candidates
                    if candidate not in active or candidate.key in schedule.tested
                ]
                break
            block += 1
        return [
            outcome
            for outcome in schedule.conclude(measured)
            if outcome.status is not Status.NOT_TRIED and outcome.candidate in candidates
        ]

    def measure_alternating(self, candidates: Sequence[Candidate], steps: int, block: int) -> bool:
        """Measure candidates in one process; return whether any could be."""
        names = tuple(name for candidate in candidates for name in candidate.names)
        what = f"{', '.join(names)} in turns"
        self.progress(f"block {block % PART + 1}: {what}, {duration(self.seconds)} elapsed")
        began = self.seconds
        try:
            sample = measure(self._program(names, steps=steps), Path.cwd(), scratch=self.scratch)
        except UnusableInputError:
            raise
        except TracekitError as error:  # the others are measured in processes of their own
            self.say(f"changes could not take turns in one process: {error.message}")
            return False
        measured = trial_plan.read_turns(sample, candidates, block, self.seconds - began)
        for item in measured:
            self._keep(item)
        if not measured[1:]:
            self.say("changes could not take turns in one process: too few of its steps could be compared")
        return bool(measured[1:])

    def run_whole(self, outcomes: Sequence[Outcome], *, helpful: bool) -> list[Outcome]:
        """Run the program once with each change that helps, or each other one, and add what that tells."""
        chosen = [
            outcome.candidate
            for outcome in trial_plan.sort(outcomes)
            if outcome.step_time and (outcome.status is Status.HELPS) == helpful
        ]
        if not chosen:
            return list(outcomes)
        self.measure_block(chosen, FIRST_WHOLE, FIRST_WHOLE, self.request.budget_s)
        whole = [add_whole_runs(outcome, self.select(FIRST_WHOLE)) for outcome in outcomes]
        if any(outcome.alters for outcome in whole):  # or the program does by itself
            self.measure_block([], FIRST_WHOLE + 1, FIRST_WHOLE, self.request.budget_s)
        return [add_whole_runs(outcome, self.select(FIRST_WHOLE)) for outcome in outcomes]

    def decide(
        self, candidates: Sequence[Candidate], limit_s: float | None, *, first: int = 0, others: int = 0
    ) -> list[Outcome]:
        """Measure until every candidate is decided, the runs are used up, or the time is.

        Args:
            candidates: What to measure.
            limit_s: Time since the begin of this call after which no run ends; None for no limit.
            first: Number of the first block; candidates that are measured later get blocks of their own.
            others: Candidates that are judged apart, and count for the probability of a false claim.
        """
        schedule = self._plan_tests(candidates, others, in_turns=False)
        block = first + max((item.block for item in self.select(first)), default=0)
        while True:
            schedule.judge(self.select(first))
            active = schedule.find_active(self.select(first))
            chosen = self.share(active, schedule, limit_s, first)
            self.was_cut |= bool(active) and not chosen
            if not chosen or not self.measure_block(chosen, block, first, limit_s):
                return schedule.conclude(self.select(first))
            block += 1

    def _plan_tests(self, candidates: Sequence[Candidate], others: int, *, in_turns: bool) -> Schedule:
        looks, threshold = self.request.design.looks, self.request.threshold
        return Schedule(candidates, looks, threshold, self.progress, others=others, in_turns=in_turns)

    def select(self, first: int) -> list[Measurement]:
        """Return the measurements of one part; the numbers of its blocks begin at 0."""
        return [
            replace(item, block=item.block - first)
            for item in self.measured
            if first <= item.block < first + PART
        ]

    def share(
        self, active: Sequence[Candidate], schedule: Schedule, limit_s: float | None, first: int
    ) -> Sequence[Candidate]:
        """Return what the next block measures: all, or what the time left can bring to its next test.

        See `Schedule.rank` for the order. The first block measures all, or those that leave time to test one.
        """
        if limit_s is None:
            return active
        measured, left, unchanged_s = self.select(first), limit_s - self.seconds, self.expect(UNCHANGED)
        pairs = {candidate.key: count_pairs(candidate.names, measured) for candidate in active}
        if not any(pairs.values()):
            others = 2 * schedule.looks[0].k - 1  # runs that the first test of one needs beside its own here
            return active[: max(1, int(left / unchanged_s) - others)] if unchanged_s else active
        chosen, blocks = [], 0
        for candidate in sorted(active, key=lambda candidate: schedule.rank(candidate, measured)):
            needed = schedule.find_next(pairs[candidate.key]).k - pairs[candidate.key]
            further = max(0, needed - blocks)
            cost = needed * self.expect(candidate.names) + further * self.expect(UNCHANGED)
            if cost <= left:
                chosen.append(candidate)
                blocks, left = blocks + further, left - cost
        return chosen

    def expect(self, names: Names, *, in_turns: bool = False) -> float:
        """Return how long a process takes, s: as the longest so far, or as one of the unchanged program.

        Args:
            names: The changes in it.
            in_turns: Whether these take turns in it: such a process may have more steps than others.
        """
        timed = [item for item in self.measured if item.seconds and not item.error]
        turns = [item.seconds for item in timed if item.block // PART == FIRST_ALTERNATING // PART]
        if in_turns:
            return max(turns or [self.turns_s])
        apart = [item for item in timed if item.block // PART != FIRST_ALTERNATING // PART]
        own = [item.seconds for item in apart if item.names == names]
        others = [item.seconds for item in apart if item.names == UNCHANGED]
        return max(own or others or [self.recorded_s or max(turns, default=0.0)])

    def measure_block(
        self, active: Sequence[Candidate], block: int, first: int, limit_s: float | None
    ) -> bool:
        """Measure what a block lacks; return whether it was, as it is not where its time does not suffice.

        Args:
            active: Candidates to measure; none to measure the unchanged program.
            block: Number of the block.
            first: Number of the first block of these candidates.
            limit_s: Time since the begin of this call after which no run ends; None for no limit.
        """
        order = [UNCHANGED, *(candidate.names for candidate in active)]
        for names in order if is_forward(block - first) else reversed(order):
            done = [item for item in self.measured if item.names == names and item.block >= first]
            if has_ended(names, done) or any(item.block == block for item in done):
                continue
            if (
                names == UNCHANGED
                and active
                and all(has_ended(candidate.names, self.measured) for candidate in active)
            ):
                continue
            if limit_s is not None and self.seconds + self.expect(names) > limit_s:
                self.was_cut = True
                return False
            self._measure(names, block)
        return True

    def _measure(self, names: Names, block: int) -> None:
        what = "+".join(names) or "unchanged"
        self.progress(f"block {block % PART + 1}: {what}, {duration(self.seconds)} elapsed")
        began = self.seconds
        try:
            sample = measure(self._program(names), Path.cwd(), scratch=self.scratch)
            measurement = trial_plan.read_run(names, block, sample, self.request.check_value)
            alike = (item for item in self.select(block // PART * PART) if item.names == names)
            if sample.run and not any(item.work for item in alike):
                steps = float(sample.run.rows("steps"))
                measurement = replace(measurement, work={"steps": steps, **counts(sample.run)})
                if names and measurement.applied:
                    run = store_run(self.store, sample.run, label=LABEL.format(what))
                    measurement = replace(measurement, run=run.id)
        except TracekitError as error:
            if names == UNCHANGED or isinstance(error, UnusableInputError):
                raise
            tail = error.tail.splitlines() if isinstance(error, ProgramError) else []
            reason = ": ".join([error.message, *tail[-1:]])
            measurement = Measurement(names, block, error=reason)
        self._keep(replace(measurement, seconds=self.seconds - began))

    def _keep(self, measurement: Measurement) -> None:
        self.measured.append(measurement)
        self.file.append(measurement)

    def _program(self, names: Names, **steps: int) -> Program:
        program = trial_plan.collect_program(self.request.command, names, **steps)
        refuse_store(program)
        return program
