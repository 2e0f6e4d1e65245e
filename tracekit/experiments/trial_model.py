"""Measurements and outcomes of `tracekit try`; independent of processes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias

from tracekit.errors import UnusableInputError
from tracekit.recording.changes import TOLERANCE, Change
from tracekit.runs.conditions import Contention
from tracekit.runs.metrics import STEP_TIME, metric
from tracekit.stats.compare import compare
from tracekit.stats.comparison import Comparison, Verdict, format_ratio
from tracekit.stats.tests import Look, with_holm

Names: TypeAlias = tuple[str, ...]
UNCHANGED: Names = ()
SAME_WORK = 0.005
"""Relative difference of counts that is none: steps differ by themselves, as with their batches."""


class Status(StrEnum):
    """What is known of a change."""

    HELPS = "helps"
    SLOWER = "slower"
    NO_EFFECT = "no effect"
    CANNOT_TELL = "cannot tell"
    NOT_APPLIED = "not applied"
    FAILED = "failed"
    NOT_TRIED = "not tried"


UNDECIDED = frozenset({Status.CANNOT_TELL, Status.NOT_TRIED})


@dataclass(frozen=True)
class Measurement:
    """One run of the program."""

    names: Names  # the changes in it; none in the unchanged program
    block: int  # number of the block
    values: dict[str, float] = field(default_factory=dict)  # metrics by name, in ns and bytes
    applied: int = 0  # how often the change took effect that did least
    numbers: tuple[float, ...] = ()  # numbers that the program printed
    # profiled steps, and ops, kernels, bytes and others of one, of the first run with these changes
    work: dict[str, float] = field(default_factory=dict)
    error: str = ""  # why it failed; empty if it did not
    contention: Contention | None = None  # what kept it from the CPU; None if nothing did, or unknown
    # where each change took effect first, as file:line, by name
    places: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0  # time that it took
    run: str = ""  # id of the run in the store, if it was kept


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """Changes to try together, most often one, and the share of the step that findings say it saves."""

    names: Names
    changes: tuple[Change, ...]
    predicted: float | None = None

    @property
    def key(self) -> str:
        """The names in one word."""
        return "+".join(self.names)

    @property
    def starts_slowly(self) -> bool:
        """Whether a process first spends seconds on a change."""
        return any(change.starts_slowly for change in self.changes)

    @property
    def tolerance(self) -> float:
        """Largest relative difference of printed numbers that the changes may make."""
        return max((TOLERANCE[change.results] for change in self.changes), default=0.0)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What is known of a candidate."""

    candidate: Candidate  # the changes
    status: Status  # the conclusion
    # its step time against that of the unchanged program; None if it was not compared
    step_time: Comparison | None = None
    reason: str = ""  # why, in one sentence
    numbers: str = ""  # what became of the numbers that the program prints; empty if none are compared
    alters: bool = False  # whether these differ by more than such a change may make
    # what the profiled steps do otherwise, by name: of the unchanged program, and with the change
    work: dict[str, tuple[float, float]] | None = None
    # where each change took effect first, as file:line, by name
    places: dict[str, str] = field(default_factory=dict)
    run: str = ""  # id of a run with the change; empty if none is kept

    @property
    def effect(self) -> str:
        """The measured change of the step time with its interval; what could have been seen, if none was."""
        comparison = self.step_time
        if comparison is None or not comparison.ratio or not comparison.ci95:
            return ""
        low, high = (math.log(bound) for bound in comparison.ci95)
        if self.status is Status.NO_EFFECT:
            return f"less than {100 * math.expm1(max(abs(low), abs(high))):.1f}%"
        return f"{format_ratio(comparison.ratio)} ({' to '.join(map(format_ratio, comparison.ci95))})"

    def entry(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return {
            "changes": list(self.candidate.names),
            "status": str(self.status),
            "predicted_share": self.candidate.predicted,
            "step_time": self.step_time.entry() if self.step_time else None,
            "reason": self.reason,
            "numbers": self.numbers,
            "alters_numbers": self.alters,
            "work": self.work,
            "run": self.run,
            "code": [change.code for change in self.candidate.changes],
            "places": self.places,
        }


def check_pattern(pattern: str) -> None:
    """Refuse what cannot read numbers, before a program runs for minutes.

    Raises:
        UnusableInputError: The pattern is no regular expression, or has no group.
    """
    try:
        if pattern and not re.compile(pattern).groups:
            raise IndexError("it has no group")
    except (re.error, IndexError) as error:
        raise _unreadable(pattern, error) from error


def read_numbers(pattern: str, output: str) -> tuple[float, ...]:
    """Return the numbers that a program printed.

    Args:
        pattern: Regular expression whose first group is a number; empty for none.
        output: What it printed.

    Raises:
        UnusableInputError: The pattern is no regular expression, or a match is no number.

    Example:
        >>> read_numbers("loss: ([0-9.]+)", "loss: 2.5, loss: 2.25")
        (2.5, 2.25)
    """
    if not pattern:
        return ()
    try:
        return tuple(float(match[1]) for match in re.finditer(pattern, output))
    except (re.error, IndexError, TypeError, ValueError) as error:
        raise _unreadable(pattern, error) from error


def _unreadable(pattern: str, error: Exception) -> UnusableInputError:
    return UnusableInputError(
        f"--check-value {pattern!r} reads no numbers: {error}",
        hint="put parentheses around a number: 'loss: ([0-9.]+)'",
    )


def compare_candidates(
    candidates: Sequence[Candidate],
    measured: Sequence[Measurement],
    look: Look,
    threshold: float,
    *,
    others: int = 0,
    in_turns: bool = False,
) -> dict[str, Outcome]:
    """Judge candidates by their step times, all together: Holm limits the probability of any false claim.

    Args:
        candidates: What was measured.
        measured: All measurements.
        look: The test.
        threshold: Smallest relative change that counts.
        others: Candidates that are judged apart, and count for that probability.
        in_turns: Whether the measurements of a block are of one process, in which the order is random. A
            candidate without any is then judged apart.
    """
    outcomes: dict[str, Outcome] = {}
    compared: list[tuple[Candidate, Comparison]] = []
    left_out = others
    for candidate in candidates:
        changed = [item for item in measured if item.names == candidate.names]
        if failure := _explain_missing(changed):
            left_out += in_turns and not changed
            outcomes[candidate.key] = Outcome(candidate=candidate, status=failure[0], reason=failure[1])
        elif comparison := _compare_steps(candidate.names, measured, look, threshold, in_turns=in_turns):
            compared.append((candidate, comparison))
        else:
            left_out += 1  # by the share of time, which depends on its first run
            reason = "its steps, or those of the unchanged program, were not timed"
            outcomes[candidate.key] = Outcome(candidate=candidate, status=Status.CANNOT_TELL, reason=reason)
    adjusted = with_holm([comparison for _, comparison in compared], further=left_out)
    for (candidate, _), comparison in zip(compared, adjusted, strict=True):
        status = _judge(comparison, threshold)
        outcomes[candidate.key] = _describe(candidate, status, comparison, measured)
    return outcomes


def _explain_missing(changed: Sequence[Measurement]) -> tuple[Status, str] | None:
    """Return why a change cannot be judged: it was not tried, failed, or never took effect."""
    if not changed:
        return Status.NOT_TRIED, "the time ended before"
    if error := next((item.error for item in changed if item.error), ""):
        return Status.FAILED, error
    if not all(item.applied for item in changed):
        return Status.NOT_APPLIED, "the program has nothing that it changes, or has it already"
    return None


def _compare_steps(
    names: Names, measured: Sequence[Measurement], look: Look, threshold: float, *, in_turns: bool
) -> Comparison | None:
    """Compare step times in the first blocks that have both; None with fewer than two."""
    pairs = _pair_steps(names, measured)[: look.k]
    if len(pairs) < 2:
        return None
    return compare(
        metric(STEP_TIME),
        [base for _, base, _ in pairs],
        [changed for _, _, changed in pairs],
        paired=True,
        base_first=[] if in_turns else [is_forward(block) for block, _, _ in pairs],
        threshold=threshold,
        alpha=look.alpha,
    )


def _pair_steps(names: Names, measured: Sequence[Measurement]) -> list[tuple[int, float, float]]:
    """Return the blocks with both step times: of the unchanged program, and with the changes."""
    steps: dict[Names, dict[int, float]] = {UNCHANGED: {}, names: {}}
    for item in measured:
        if item.names in steps and STEP_TIME in item.values:
            steps[item.names][item.block] = item.values[STEP_TIME]
    base, changed = steps[UNCHANGED], steps[names]
    return [(block, base[block], changed[block]) for block in sorted(base.keys() & changed.keys())]


def is_forward(block: int) -> bool:
    """Whether the unchanged program is the first of a block; else it is the last, so that drift cancels."""
    return block % 2 == 0


def _judge(comparison: Comparison, threshold: float) -> Status:
    if comparison.verdict is Verdict.IMPROVEMENT:
        return Status.HELPS
    if comparison.verdict is Verdict.REGRESSION:
        return Status.SLOWER
    low, high = comparison.ci95 or (0.0, math.inf)
    is_small = 1 / (1 + threshold) < low and high < 1 + threshold
    return Status.NO_EFFECT if is_small else Status.CANNOT_TELL


def _describe(
    candidate: Candidate, status: Status, comparison: Comparison, measured: Sequence[Measurement]
) -> Outcome:
    base = [item for item in measured if item.names == UNCHANGED]
    changed = [item for item in measured if item.names == candidate.names]
    numbers, alters = _compare_numbers(candidate, [item.numbers for item in base], changed[0].numbers)
    reason = comparison.reason
    if status is Status.CANNOT_TELL and comparison.verdict is Verdict.PASS:  # that of a gate
        reason = "the interval reaches beyond the threshold; more runs would tell"
    return Outcome(
        candidate=candidate,
        status=status,
        step_time=comparison,
        reason=reason,
        numbers=numbers,
        alters=alters,
        work=_compare_work(base, changed),
        places=changed[0].places,
        run=next((item.run for item in changed if item.run), ""),
    )


def add_whole_runs(outcome: Outcome, measured: Sequence[Measurement]) -> Outcome:
    """Return an outcome with what whole runs tell beside the step time: numbers, work, a run, or a failure.

    Args:
        outcome: What is known of steps with the change.
        measured: Runs of the program with the change and without; the outcome is as it was if there are none.
    """
    changed = [item for item in measured if item.names == outcome.candidate.names]
    if not changed or outcome.step_time is None:
        return outcome
    if failure := _explain_missing(changed):
        return replace(outcome, status=failure[0], reason=failure[1])
    return _describe(outcome.candidate, outcome.status, outcome.step_time, measured)


def _compare_work(
    base: Sequence[Measurement], changed: Sequence[Measurement]
) -> dict[str, tuple[float, float]] | None:
    """Return the counts that differ by more than steps do by themselves; None if they are not known."""
    before, after = (next((item.work for item in side if item.work), {}) for side in (base, changed))
    if not before or not after:
        return None
    pairs = {name: (before[name], after[name]) for name in before.keys() & after.keys()}
    return {
        name: (old, new)
        for name, (old, new) in sorted(pairs.items())
        if abs(new - old) > SAME_WORK * max(old, new)
    }


def uncertainty(comparison: Comparison | None, threshold: float) -> float:
    """Return how open the answer is: half of the interval over the distance of the estimate to a decision.

    An effect of at least the threshold is decided where the interval excludes no change, a smaller one where
    it lies within the threshold: below 1 the answer is known, at 2 about four times the runs would tell it.

    Args:
        comparison: The step time against that of the unchanged program; None if there is none yet.
        threshold: Smallest relative change that counts.

    Example:
        >>> uncertainty(None, 0.03)
        inf
    """
    if comparison is None or not comparison.ratio or not comparison.ci95:
        return math.inf
    effect, limit = abs(math.log(comparison.ratio)), math.log1p(threshold)
    low, high = (math.log(bound) for bound in comparison.ci95)
    return (high - low) / 2 / max(effect if effect >= limit else limit - effect, 1e-9)


class Schedule:
    """When candidates are tested, each after fixed numbers of its own blocks, and which gets time first.

    Args:
        candidates: What is compared with the unchanged program.
        looks: The tests, in order.
        threshold: Smallest relative change that counts.
        progress: Receives a line for each candidate that is tested.
        others: Candidates with a schedule of their own.
        in_turns: Whether the candidates take turns in one process.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        looks: Sequence[Look],
        threshold: float,
        progress: Callable[[str], None],
        *,
        others: int = 0,
        in_turns: bool = False,
    ) -> None:
        self.candidates, self.looks, self.threshold, self.progress = candidates, looks, threshold, progress
        self._compare = partial(
            compare_candidates, candidates, threshold=threshold, others=others, in_turns=in_turns
        )
        self.tested: dict[str, tuple[int, Outcome]] = {}

    def judge(self, measured: Sequence[Measurement]) -> None:
        """Test the candidates that have as many blocks as their next test needs."""
        for look in self.looks:
            due = [
                candidate
                for candidate in self.candidates
                if not self._is_decided(candidate)
                and self.tested.get(candidate.key, (0,))[0] < look.k <= count_pairs(candidate.names, measured)
            ]
            outcomes = self._compare(measured, look=look) if due else {}
            for candidate in due:
                outcome = outcomes[candidate.key]
                text = f"after {look.k} runs, {candidate.key}: {outcome.status} {outcome.effect}"
                self.progress(text.rstrip())
                self.tested[candidate.key] = look.k, outcome

    def _is_decided(self, candidate: Candidate) -> bool:
        _, outcome = self.tested.get(candidate.key, (0, None))
        return outcome is not None and outcome.status not in UNDECIDED

    def find_active(self, measured: Sequence[Measurement]) -> list[Candidate]:
        """Return the candidates that further runs may decide."""
        return [
            candidate
            for candidate in self.candidates
            if not self._is_decided(candidate)
            and not has_ended(candidate.names, measured)
            and count_pairs(candidate.names, measured) < self.looks[-1].k
        ]

    def find_next(self, pairs: int) -> Look:
        """Return the next test after a number of blocks."""
        return next(look for look in self.looks if look.k > pairs)

    def rank(self, candidate: Candidate, measured: Sequence[Measurement]) -> tuple[int, float]:
        """Return the place of a candidate in the order in which they get time, the lowest first.

        First those that were not tested, what seems to save most before others. Then the most uncertain ones,
        see `uncertainty`. Last those that, by their uncertainty, all further runs would not decide.
        """
        if candidate.key not in self.tested:
            pairs = _pair_steps(candidate.names, measured)
            return 0, sum(math.log(changed / base) for _, base, changed in pairs) / max(1, len(pairs))
        k, outcome = self.tested[candidate.key]
        open_by = uncertainty(outcome.step_time, self.threshold)
        return (1, -open_by) if k * open_by**2 <= self.looks[-1].k else (2, open_by)

    def conclude(self, measured: Sequence[Measurement]) -> list[Outcome]:
        """Return what is known of each candidate: the conclusion of its last test, or why there was none."""
        now = self._compare(measured, look=self.looks[0])
        return [self._conclude(candidate, now[candidate.key], measured) for candidate in self.candidates]

    def _conclude(self, candidate: Candidate, outcome: Outcome, measured: Sequence[Measurement]) -> Outcome:
        if outcome.status in {Status.FAILED, Status.NOT_APPLIED, Status.NOT_TRIED}:
            return outcome
        if candidate.key in self.tested:
            return self.tested[candidate.key][1]
        pairs = count_pairs(candidate.names, measured)
        reason = f"the time ended after {pairs} of the {self.looks[0].k} runs before its first test"
        return replace(outcome, status=Status.CANNOT_TELL, reason=reason)


def has_ended(names: Names, measured: Sequence[Measurement]) -> bool:
    """Whether further runs with these changes tell nothing: one failed, or found nothing to change."""
    return names != UNCHANGED and any(
        item.error or not item.applied for item in measured if item.names == names
    )


def count_pairs(names: Names, measured: Sequence[Measurement]) -> int:
    """Return the blocks in which both the unchanged program and these changes were measured."""
    blocks: dict[Names, set[int]] = {UNCHANGED: set(), names: set()}
    for item in measured:
        if item.names in blocks:
            blocks[item.names].add(item.block)
    return len(blocks[UNCHANGED] & blocks[names])


def _compare_numbers(
    candidate: Candidate, base: Sequence[tuple[float, ...]], changed: tuple[float, ...]
) -> tuple[str, bool]:
    """Compare printed numbers with those of the unchanged program, which may vary by themselves."""
    if not base or not base[0]:
        return "", False
    if len(changed) != len(base[0]):
        return f"{len(changed)} instead of {len(base[0])}", True
    difference = _largest_difference(base[0], changed)
    by_itself = max((_largest_difference(base[0], other) for other in base[1:]), default=0.0)
    alters = difference > max(candidate.tolerance, 2 * by_itself)
    if not difference:
        return "equal", False
    return f"differ by up to {100 * difference:.2g}%" + ", more than it may" * alters, alters


def _largest_difference(first: Sequence[float], second: Sequence[float]) -> float:
    if len(first) != len(second):
        return math.inf
    scale = max(map(abs, first), default=0.0) or 1.0
    differences = (
        abs(one - other) / max(abs(one), 1e-3 * scale)
        for one, other in zip(first, second, strict=True)
        if not (math.isnan(one) and math.isnan(other))
    )
    return max(differences, default=0.0)
