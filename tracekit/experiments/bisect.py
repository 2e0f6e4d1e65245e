"""Find the commit or package version that changed a metric (`tracekit bisect`).

`bisect_request` reads the arguments, `bisect_model` defines the search and its result, and `bisect_runner`
measures. A count that differs between the ends is searched first: it repeats exactly, so that one run per
commit is enough. Its commits are the answer unless measurements of the metric there contradict.
"""

from __future__ import annotations

import math
import secrets
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from tracekit.errors import UnusableInputError
from tracekit.experiments.bisect_model import (
    TOTALS,
    WORK,
    Bisection,
    Changed,
    Culprit,
    Estimate,
    LogEntry,
    Search,
    Subject,
    count_metric,
)
from tracekit.experiments.bisect_runner import Record, Session, SubjectRunner
from tracekit.experiments.state import StateFile
from tracekit.stats import samples
from tracekit.stats.compare import compare
from tracekit.stats.comparison import Comparison
from tracekit.stats.effects import Floats, quantile
from tracekit.stats.search import (
    CONFIDENCE,
    MAX_REPEATS,
    MIN_SHARE,
    Found,
    Jump,
    Spread,
    level,
    next_step,
    pool_spread,
    posterior_jump,
)
from tracekit.stats.tests import compare_exact

__all__ = ["Bisection", "Search", "bisect"]

Explain = Callable[[Subject, Subject], tuple[str, ...]]
UNSURE = "alternating measurements do not confirm the change: the machine may have drifted"
MIN_CONFIRMED = 0.5
"""Share of the change that alternating measurements must confirm."""


def confirm(session: Session, outcome: Found) -> Found:
    """Confirm the culprits by alternating measurements; unconfirmed ones become undecided.

    A jump between the ends themselves needs none: they were measured in turn.
    """
    sure: list[Jump] = []
    doubtful = list(outcome.undecided)
    for jump in outcome.jumps:
        both = _InTurn(session, jump.after, jump.at)
        again = jump if both.are_ends else both.confirm(jump)
        (sure if again and again.posterior >= CONFIDENCE else doubtful).append(again or jump)
    return Found(tuple(sure), tuple(doubtful), outcome.reason or ("" if sure else UNSURE * bool(doubtful)))


@dataclass(frozen=True)
class _Step:
    """Logarithms of a metric at two subjects, and the spread of one measurement."""

    before: Floats
    after: Floats
    spread: Spread

    @property
    def effect(self) -> float:
        """Difference of the levels."""
        return float(self.after.mean() - self.before.mean())

    @property
    def variance(self) -> float:
        """Variance of the effect, in variances of one measurement."""
        return 1 / self.before.size + 1 / self.after.size

    @property
    def half(self) -> float:
        """Half of the 95% interval of the effect."""
        return float(quantile(0.975, self.spread.df)) * self.spread.sigma * math.sqrt(self.variance)


class _InTurn:
    """Two subjects that are measured in turn; what was measured before does not count.

    The ends of the search were measured in turn from the start.
    """

    def __init__(self, session: Session, before: int, after: int) -> None:
        self._session, subjects = session, session.search.subjects
        self._subjects = subjects[before], subjects[after]
        self.are_ends = self._subjects == session.ends
        counts = [len(session.values_now(subject)) for subject in self._subjects]
        self._starts = [0, 0] if self.are_ends else counts

    def measure(self, count: int) -> bool:
        """Measure each subject some times; False if one fails."""
        session = self._session
        session.planned = max(session.planned, 2 * count)
        for side in samples.order(count):
            session.measure(self._subjects[side == "B"])
            if session.problems.keys() & {subject.key for subject in self._subjects}:
                return False
        return True

    def step(self) -> _Step:
        """Return what was measured in turn."""
        session = self._session
        a, b = (
            np.log(np.array(session.values_now(subject)[start:]))
            for subject, start in zip(self._subjects, self._starts, strict=True)
        )
        others = [subject for subject in session.search.subjects if subject not in self._subjects]
        values_of_others = filter(None, map(session.values_now, others))
        return _Step(a, b, pool_spread([a, b, *(np.log(np.array(values)) for values in values_of_others)]))

    def confirm(self, jump: Jump) -> Jump | None:
        """Estimate a jump from alternating measurements alone; None if one side fails."""
        done, again = 0, jump
        while done < MAX_REPEATS and (not done or again.posterior < CONFIDENCE):
            count = min(self._session.search.repeats, MAX_REPEATS - done)
            if not self.measure(count):
                return None
            done += count
            again = _estimate_again(jump, self.step())
        return again


def _estimate_again(jump: Jump, step: _Step) -> Jump:
    least, sign = MIN_CONFIRMED * abs(jump.effect), math.copysign(1, jump.effect)
    effect, half = step.effect, step.half
    posterior = posterior_jump(level(step.before), level(step.after), step.spread, sign=sign)
    return replace(
        jump,
        effect=effect,
        low=effect - half,
        high=effect + half,
        posterior=posterior if sign * effect >= least else 0.0,
    )


def bisect(
    search: Search,
    runner: SubjectRunner,
    cache: StateFile[Record],
    *,
    report: Callable[[str], None] = lambda _: None,
    command: Sequence[str] = (),
    explain: Explain = lambda _before, _after: (),
) -> Bisection:
    """Find the subjects at which a metric changes.

    Args:
        search: What to search.
        runner: Where subjects are measured.
        cache: Cache of measurements.
        report: Receives a line after each measurement, with its value or the problem.
        command: The words that search the same again.
        explain: The commands that show how one subject differs from another.

    Raises:
        CollectionError: An end cannot be measured.
        UnusableInputError: An end is to be skipped.
    """
    if search.skipped & {end.key for end in (search.subjects[0], search.subjects[-1])}:
        raise UnusableInputError("an end of the range is skipped", hint="choose another end, or skip others")
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    session = Session(name, search, runner, cache, report)
    repeats = 1 if search.exact else search.repeats
    session.planned = 2 * repeats + _expect_measurements(session, search.last)
    counted = _by_count(session) if search.counts_first else None
    result = counted if isinstance(counted, Bisection) else _by_metric(session)
    contradiction = (counted,) if isinstance(counted, str) and counted else ()
    return replace(
        result,
        culprits=_with_commands(result.culprits, explain),
        undecided=_with_commands(result.undecided, explain),
        notes=(*search.notes, *contradiction, *result.notes),
        command=tuple(command),
    )


def _with_commands(culprits: Sequence[Culprit], explain: Explain) -> tuple[Culprit, ...]:
    return tuple(
        replace(culprit, commands=explain(culprit.before, culprit.suspects[-1])) for culprit in culprits
    )


def _by_metric(session: Session) -> Bisection:
    """Search the metric itself."""
    search = session.search
    left_out = _start(session)
    ends = _compare_ends(session)
    small = "" if search.exact else _too_small(ends)
    outcome = Found((), reason=small) if small else _search(session)
    outcome = outcome if search.exact else confirm(session, outcome)
    return replace(
        _result(session, outcome),
        changed=() if search.exact else _find_changed(session, TOTALS),
        notes=(
            f"{left_out} measurements of earlier calls were ignored: the ends measure differently now, for "
            "example because the machine is slower",
        )
        * bool(left_out),
    )


ENDS_FIRST = 2
"""Measurements of each end before counts are compared: a count must repeat at each."""


def _by_count(session: Session) -> Bisection | str:
    """Search a count that differs between the ends.

    Returns:
        The result, unless no count differs, the metric of the ends does not, or the metric contradicts: the
        ends surely differ by more than it changes where the count does. Then the reason, which may be empty.
    """
    search = session.search
    # In ABBA order, as these measurements of the metric also decide whether it differs at all.
    for side in samples.order(ENDS_FIRST):
        session.measure(session.ends[side == "B"])
    changed = _find_changed(session, WORK)
    if not changed or _too_small(_compare_ends(session)):
        return ""
    chosen = max(changed, key=lambda count: count.size)
    by_count = replace(search, metric=count_metric(chosen.name), exact=True)
    counting = replace(session, search=by_count, earlier=defaultdict(list))
    counting.confirming = 2 * search.repeats
    counting.recall(session.cache.records())
    outcome = _search(counting)
    if not outcome.jumps:
        return ""
    session.planned = 2 * search.repeats * len(outcome.jumps)
    jumps = [_InTurn(session, jump.after, jump.at) for jump in outcome.jumps]
    measured = [both.measure(search.repeats) for both in jumps]
    steps = [both.step() if done else None for both, done in zip(jumps, measured, strict=True)]
    result = _result(counting, outcome)
    culprits = tuple(
        replace(culprit, asked=_estimate(step)) for culprit, step in zip(result.culprits, steps, strict=True)
    )
    # A count may change at one commit and the time at another: then the count explains nothing.
    if _is_incomplete(session, steps):
        where = " and ".join(culprit.suspects[-1].short for culprit in culprits)
        return (
            f"{chosen.name} per step changed at {where}, but {search.metric.name} changes elsewhere, so "
            f"{search.metric.name} was searched"
        )
    return replace(result, culprits=culprits, asked=_compare_ends(session))


def _estimate(step: _Step | None) -> Estimate | None:
    if step is None:
        return None
    effect, half = step.effect, step.half
    low, high = effect - half, effect + half
    return Estimate(math.exp(effect), math.exp(low), math.exp(high), min(step.before.size, step.after.size))


def _is_incomplete(session: Session, steps: Sequence[_Step | None]) -> bool:
    """Tell whether the ends surely differ by a part worth finding beyond the changes at the jumps."""
    measured = [step for step in steps if step is not None]
    ends = _InTurn(session, 0, session.search.last).step()
    sign = math.copysign(1, ends.effect)
    if len(measured) < len(steps) or abs(ends.effect) < ends.half:
        return False
    # Effects are differences of logarithms, so they add up, and so do the variances of independent ones.
    rest = sign * (ends.effect - sum(jump.effect for jump in measured))
    variance = ends.variance + sum(jump.variance for jump in measured)
    half = float(quantile(0.975, ends.spread.df)) * ends.spread.sigma * math.sqrt(variance)
    return bool(rest - half > MIN_SHARE * abs(ends.effect))


def _start(session: Session) -> int:
    """Measure the ends, alternating; counts are taken from earlier calls."""
    search = session.search
    records = session.cache.records()
    if search.exact:
        left_out = session.recall(records)
        for end in session.ends:
            if not session.values_of(end):
                session.measure(end)
        return left_out
    done = min(len(session.values_now(end)) for end in session.ends)
    for side in samples.order(max(0, search.repeats - done), start=done):
        session.measure(session.ends[side == "B"])
    return session.recall(records)


def _compare_ends(session: Session) -> Comparison:
    search = session.search
    a, b = (session.values_of(end) for end in session.ends)
    if search.exact:
        return compare_exact(search.metric, a, b, agreeing=1)
    return compare(search.metric, a, b, paired=False, threshold=search.threshold)


def _too_small(ends: Comparison) -> str:
    """Return the reason if the ends differ by less than the threshold with certainty."""
    if ends.ci95 is None:
        return ""
    if max(abs(math.log(bound)) for bound in ends.ci95) >= math.log1p(ends.threshold):
        return ""
    return f"the ends differ by less than the threshold of {100 * ends.threshold:g}%"


def _search(session: Session) -> Found:
    search = session.search
    while True:
        step = next_step(
            session.values(),
            last=search.last,
            broken=session.unmeasurable(),
            repeats=1 if search.exact else search.repeats,
            exact=search.exact,
        )
        if isinstance(step, Found):
            return step
        left = _expect_measurements(session, _width_after(session, step.commit))
        session.planned = step.repeats + left
        for _ in range(step.repeats):
            subject = search.subjects[step.commit]
            if subject.key not in session.problems:
                session.measure(subject)


def _expect_measurements(session: Session, width: int) -> int:
    """Return the expected measurements: of a commit per halving of a stretch, and to confirm the change."""
    search = session.search
    repeats = 1 if search.exact else search.repeats
    confirming = 0 if search.exact or search.last == 1 else 2 * repeats  # two ends were measured in turn
    halvings = math.ceil(math.log2(width)) if width > 1 else 0
    return repeats * halvings + (session.confirming or confirming)


def _width_after(session: Session, position: int) -> int:
    """Return the larger stretch on either side of a commit whose measurements are to come."""
    measured = session.values().keys() - {position}
    below = max((other for other in measured if other < position), default=position)
    above = min((other for other in measured if other > position), default=position)
    return max(position - below, above - position)


def _result(session: Session, outcome: Found) -> Bisection:
    search = session.search
    culprits, undecided = (
        tuple(_culprit(session, jump) for jump in jumps) for jumps in (outcome.jumps, outcome.undecided)
    )
    return Bisection(
        metric=search.metric,
        exact=search.exact,
        good=session.ends[0],
        bad=session.ends[1],
        subjects=search.last,
        ends=_compare_ends(session),
        culprits=culprits,
        undecided=undecided,
        log=_log(session),
        reason=outcome.reason,
    )


def _culprit(session: Session, jump: Jump) -> Culprit:
    effect, low, high = (
        log if session.search.exact else math.exp(log) for log in (jump.effect, jump.low, jump.high)
    )
    suspects = tuple(session.search.subjects[position] for position in jump.suspects)
    return Culprit(suspects, session.search.subjects[jump.after], effect, low, high, jump.posterior)


def _log(session: Session) -> tuple[LogEntry, ...]:
    log = []
    for position, subject in enumerate(session.search.subjects):
        values, cached = tuple(session.values_of(subject)), len(session.earlier.get(subject.key, ()))
        skipped = "skipped by --skip" if subject.key in session.search.skipped else ""
        problem = session.problems.get(subject.key, "") or skipped
        if values or problem:
            log.append(LogEntry(position, subject, values, cached if values else 0, problem))
    return tuple(log)


def _find_changed(session: Session, names: Sequence[str]) -> tuple[Changed, ...]:
    """Return counts that are constant within each end and differ between the ends."""
    ends = [session.made[end.key] for end in session.ends]
    changed = []
    for name in names:
        a, b = ({values.get(name) for values in measurements} for measurements in ends)
        if len(a) == len(b) == 1 and a != b and None not in a | b:
            changed.append(Changed(name, float(a.pop() or 0), float(b.pop() or 0)))
    return tuple(changed)
