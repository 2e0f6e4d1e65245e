"""The search: measures both ends in every call, then one subject after another."""

from __future__ import annotations

import math
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tracekit.bisecting.model import Bisection, Changed, Culprit, Measured
from tracekit.bisecting.session import Session
from tracekit.bisecting.signature import TOTALS
from tracekit.bisecting.turns import confirmed
from tracekit.errors import UnusableInputError
from tracekit.stats import blocks
from tracekit.stats.compare import compare
from tracekit.stats.exact import compare_exact
from tracekit.stats.noise import Noise
from tracekit.stats.search import next_step
from tracekit.stats.steps import Found, Options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.bisecting.cache import Cache
    from tracekit.bisecting.lab import Lab
    from tracekit.bisecting.model import Search, Subject
    from tracekit.stats.comparison import Comparison
    from tracekit.stats.steps import Jump


def silent(_subject: Subject, _problem: str) -> None:
    """Ignore progress."""


def bisect(
    search: Search,
    lab: Lab,
    cache: Cache,
    *,
    told: Callable[[Subject, str], None] = silent,
    command: Sequence[str] = (),
    explain: Callable[[Subject, Subject], tuple[str, ...]] = lambda _before, _after: (),
) -> Bisection:
    """Find the subjects at which a metric changes.

    Args:
        search: What to search.
        lab: Where subjects are measured.
        cache: What was measured before, and where measurements are kept.
        told: Called after each measurement with the problem, if there was one.
        command: The words that search the same again.
        explain: The commands that show how one subject differs from another.

    Raises:
        CollectionError: An end cannot be measured.
        UnusableInputError: An end is to be skipped.
    """
    if search.skipped & {one.key for one in (search.subjects[0], search.subjects[-1])}:
        raise UnusableInputError("an end of the range is skipped", hint="choose another end, or skip others")
    session = Session(_name(), search, lab, cache, told)
    left_out = _start(session, cache)
    ends = _compared(session)
    small = "" if search.exact else _too_small(ends)
    found = Found((), reason=small) if small else _search(session)
    found = found if search.exact else confirmed(session, found)
    ends = _compared(session)
    culprits, undecided = (
        tuple(_culprit(session, jump, explain) for jump in jumps) for jumps in (found.jumps, found.undecided)
    )
    return Bisection(
        metric=search.metric,
        exact=search.exact,
        good=session.ends[0],
        bad=session.ends[1],
        subjects=search.last,
        ends=ends,
        culprits=culprits,
        undecided=undecided,
        log=_log(session),
        reason=found.reason,
        changed=() if search.exact else _changed(session),
        notes=(*search.notes, *_notes(left_out)),
        command=tuple(command),
    )


def _name() -> str:
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def _start(session: Session, cache: Cache) -> int:
    """Measure the ends, alternating; counts are taken from earlier calls."""
    search = session.search
    records = cache.records()
    if search.exact:
        left_out = session.recall(records)
        for one in session.ends:
            if not session.of(one):
                session.measure(one)
        return left_out
    for side in blocks.order(search.repeats):
        session.measure(session.ends[side == "B"])
    return session.recall(records)


def _compared(session: Session) -> Comparison:
    search = session.search
    a, b = (session.of(one) for one in session.ends)
    if search.exact:
        return compare_exact(search.metric, a, b)
    return compare(search.metric, a, b, paired=False, threshold=search.threshold)


def _too_small(ends: Comparison) -> str:
    """Return the reason if the ends differ by less than the threshold with certainty."""
    if ends.ci95 is None:
        return ""
    most = max(abs(math.log(bound)) for bound in ends.ci95)
    if most >= math.log1p(ends.threshold):
        return ""
    return f"the ends differ by less than the threshold of {100 * ends.threshold:g}%"


def _search(session: Session) -> Found:
    search = session.search
    options = Options(repeats=1 if search.exact else search.repeats)
    while True:
        step = next_step(
            session.values(),
            last=search.last,
            broken=session.broken(),
            history=Noise(0.0) if search.exact else None,
            options=options,
            logarithms=not search.exact,
        )
        if isinstance(step, Found):
            return step
        for _ in range(step.repeats):
            subject = search.subjects[step.commit]
            if subject.key not in session.problems:
                session.measure(subject)


def _culprit(session: Session, jump: Jump, explain: Callable[[Subject, Subject], tuple[str, ...]]) -> Culprit:
    subjects = session.search.subjects
    before, after = subjects[jump.after], subjects[jump.at]
    effect, low, high = (
        one if session.search.exact else math.exp(one) for one in (jump.effect, jump.low, jump.high)
    )
    suspects = tuple(subjects[at] for at in jump.suspects)
    return Culprit(suspects, before, effect, low, high, jump.posterior, explain(before, after))


def _log(session: Session) -> tuple[Measured, ...]:
    found = []
    for at, one in enumerate(session.search.subjects):
        values, cached = tuple(session.of(one)), len(session.earlier.get(one.key, ()))
        skipped = "skipped by --skip" if one.key in session.search.skipped else ""
        problem = session.problems.get(one.key, "") or skipped
        if values or problem:
            found.append(Measured(at, one, values, cached if values else 0, problem))
    return tuple(found)


def _changed(session: Session) -> tuple[Changed, ...]:
    """Return counts that are constant within each end and differ between the ends."""
    good, bad = (session.others[one.key] for one in session.ends)
    found = []
    for name in TOTALS:
        a, b = ({values.get(name) for values in own} for own in (good, bad))
        if len(a) == len(b) == 1 and a != b and None not in a | b:
            found.append(Changed(name, float(a.pop() or 0), float(b.pop() or 0)))
    return tuple(found)


def _notes(left_out: int) -> tuple[str, ...]:
    if not left_out:
        return ()
    return (
        f"{left_out} measurements of earlier calls were ignored: the ends measure differently now, for "
        "example because the machine is slower",
    )
