"""Find the commit or package version that changed a metric (`tracekit bisect`).

Reads the arguments, and runs the search: `bisect_model` defines its states, `bisect_runner` measures.
"""

from __future__ import annotations

import math
import re
import secrets
import shlex
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import UnusableInputError
from tracekit.experiments import bisect_model
from tracekit.experiments.bisect_model import TOTALS, Bisection, Changed, Culprit, Measured, Search
from tracekit.experiments.bisect_runner import (
    VERSION,
    Cache,
    Runner,
    Session,
    open_cache,
    open_runner,
)
from tracekit.experiments.checkouts import changes, repository_root
from tracekit.experiments.measure import UNITS, Program, Reading, program
from tracekit.runs import metrics, revisions
from tracekit.stats import samples
from tracekit.stats.compare import compare
from tracekit.stats.decide import quantile
from tracekit.stats.noise import Noise
from tracekit.stats.search import Found, Jump, Options, level, next_step, pooled, posterior_jump
from tracekit.stats.tests import compare_exact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from tracekit.experiments.bisect_model import Subject
    from tracekit.runs.store import Store
    from tracekit.stats.comparison import Comparison

__all__ = ["Bisection", "Search", "bisect"]


@dataclass(frozen=True, kw_only=True)
class Question:
    """A search with all that it needs.

    Attributes:
        program: What is measured.
        setup: Shell command that builds a worktree, or that prepares a version.
        signature: Name of the count that is searched, if one is.
        warmup: Measurements that do not count, of each subject.
        package: Whose versions are searched; None for commits.
        words: What changes the measurements, beside the subject: they find the cache.
        place: The store, where it is not the usual one.
    """

    search: Search
    program: Program
    setup: str = ""
    signature: str = ""
    warmup: int = 0
    package: str | None = None
    words: tuple[Any, ...] = ()
    place: str | None = None

    def runner(self, store: Store) -> AbstractContextManager[Runner]:
        """Open what measures the subjects."""
        return open_runner(
            self.program,
            store,
            setup=self.setup,
            signature=self.signature,
            warmup=self.warmup,
            versions=bool(self.package),
        )

    def cache(self, store: Store, *, fresh: bool = False) -> Cache:
        """Open the cache of measurements; `fresh` empties it."""
        cache = open_cache(store, self.words)
        if fresh:
            cache.path.unlink(missing_ok=True)
        return cache

    def explain(self, before: Subject, after: Subject) -> tuple[str, ...]:
        """Return the commands that compare one subject with another."""
        if self.package:
            return ()
        store = ["--store", self.place] if self.place else []
        words = ["tracekit", "ab", before.short, after.short, *store, *self._judged()]
        again = shlex.join([*words, "--", *self.program.command])
        if not self.program.collects:
            return (again,)
        return (shlex.join(["tracekit", "diff", f"{before.short}..{after.short}", *store]), again)

    def _judged(self) -> list[str]:
        """Return the options of `ab` for the searched metric."""
        reading, name = self.program.reading, self.search.metric.name
        judged = ["--setup", self.setup] if self.setup else []
        judged += ["--value", reading.pattern, "--unit", reading.unit] if reading else []
        return judged + (
            ["--metric", name] if name != self.program.metrics[0] and not self.search.exact else []
        )


def asked(
    words: tuple[str, ...],
    *,
    metric: str | None,
    value: str | None,
    unit: str,
    reps: int,
    warmup: int,
    threshold: float,
    skip: tuple[str, ...],
    paths: tuple[str, ...],
    all_parents: bool,
    signature: str | None,
    setup: str,
    dep: str | None,
    versions: str | None,
    prepare: str,
    place: str | None = None,
) -> Question:
    """Create the search for options and arguments.

    Raises:
        RunNotFoundError: A revision is unknown.
        UnusableInputError: They contradict each other, or name nothing to search.
    """
    _require(dep, versions, prepare, setup, words)
    reading = _reading(value, unit)
    if dep:
        subjects, command = bisect_model.versions(dep, versions or ""), words
        root = revisions.root() or Path.cwd()
    else:
        root = repository_root()
        subjects = bisect_model.commits(words[0], paths=paths, first_parent=not all_parents)
        command = words[1:]
    measured = program(command, root, reading=reading)
    name, kept_in = _metric(measured, metric, signature)
    search = Search(
        subjects=subjects,
        metric=metrics.metric(name, unit=kept_in),
        exact=bool(signature),
        repeats=reps,
        threshold=threshold,
        skipped=bisect_model.skipped(subjects, skip, git=not dep),
        notes=_limits(paths, all_parents=all_parents, prepare=prepare),
    )
    inputs = (
        warmup,
        measured.command,
        str(measured.place),
        value,
        unit,
        setup,
        prepare,
        dep,
        signature or "",
    )
    state = (revisions.state(), changes(root).sha256) if dep and revisions.root() else ()
    return Question(
        search=search,
        program=measured,
        setup=prepare if dep else setup,
        signature=signature or "",
        warmup=0 if signature else warmup,
        package=dep,
        words=(*inputs, *map(str, state)),
        place=place,
    )


def _limits(paths: tuple[str, ...], *, all_parents: bool, prepare: str) -> tuple[str, ...]:
    """Return notes on the limits of the search."""
    notes: list[str] = []
    if paths:
        notes.append(
            f"only commits that change {', '.join(paths)} were searched; another commit between the culprit "
            "and the commit before it may be the cause"
        )
    if all_parents:
        notes.append(
            "commits of merged branches were searched as a linear history: if a culprit is a merge or the "
            "first commit of a branch, compare it with each parent"
        )
    if prepare:
        notes.append("--prepare installed the version measured last; reinstall the version you use")
    return tuple(notes)


def _reading(pattern: str | None, unit: str) -> Reading | None:
    if pattern is None:
        return None
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise UnusableInputError(
            f"--value {pattern!r}: {error}", hint="use a valid regular expression"
        ) from error
    if not groups:
        raise UnusableInputError(
            f"--value {pattern!r} has no group", hint="put parentheses around the number: 'step: ([0-9.]+)'"
        )
    return Reading(pattern, unit)


def _require(dep: str | None, versions: str | None, prepare: str, setup: str, words: tuple[str, ...]) -> None:
    if not words:
        raise UnusableInputError("nothing to search", hint="give a range and a command: GOOD..BAD -- CMD")
    if bool(dep) != bool(versions) or bool(prepare) > bool(dep) or bool(dep and setup):
        raise UnusableInputError(
            "--dep PACKAGE needs --versions LIST and --prepare CMD, and excludes --setup",
            hint="see `tracekit bisect --help`",
        )
    if dep and VERSION not in f"{prepare} {shlex.join(words)}":
        raise UnusableInputError(
            "neither --prepare nor the command contains {version}",
            hint=f'use --prepare "venv/bin/pip install {dep}=={VERSION}"',
        )


def _metric(measured: Program, metric: str | None, signature: str | None) -> tuple[str, str]:
    """Return the name and unit of the searched metric."""
    if signature:
        if not measured.collects:
            raise UnusableInputError(
                "--signature needs a profile", hint="use `-- tracekit collect ...` as the command"
            )
        return signature, "count"
    read = measured.reading
    if metric == metrics.VALUE and read is None:
        raise UnusableInputError("--metric value needs a pattern", hint="add --value REGEX")
    if read and metric in {None, metrics.VALUE, read.metric}:
        return read.metric, UNITS[read.unit][0]
    chosen = metric or measured.metrics[0]
    if not measured.collects and chosen not in {metrics.WALL, metrics.HOST_PEAK}:
        raise UnusableInputError(
            f"{shlex.join(measured.command)[:80]} does not measure {chosen}",
            hint="read a number that it prints with --value, or use `tracekit collect`",
        )
    return chosen, "ns"


UNSURE = "alternating measurements do not confirm the change: the machine may have drifted"
LEAST = 0.5
"""Share of the change that alternating measurements must confirm."""


def confirmed(session: Session, found: Found) -> Found:
    """Confirm the culprits by alternating measurements; unconfirmed ones become undecided.

    A jump between the ends themselves needs none: they were measured in turn.
    """
    sure: list[Jump] = []
    doubtful = list(found.undecided)
    for jump in found.jumps:
        full = (jump.after, jump.at) == (0, session.search.last)
        again = jump if full else _in_turn(session, jump)
        (sure if again and again.posterior >= Options().confidence else doubtful).append(again or jump)
    return Found(tuple(sure), tuple(doubtful), found.reason or ("" if sure else UNSURE * bool(doubtful)))


def _in_turn(session: Session, jump: Jump) -> Jump | None:
    """Estimate the change from alternating measurements alone; None if one side fails."""
    sides = [session.search.subjects[at] for at in (jump.after, jump.at)]
    starts = [len(session.own[one.key]) for one in sides]
    most, repeats = Options().most, session.search.repeats
    taken, again = 0, jump
    while taken < most:
        count = min(repeats, most - taken)
        for side in samples.order(count):
            session.measure(sides[side == "B"])
            if session.problems.keys() & {one.key for one in sides}:
                return None
        taken += count
        own = [session.own[one.key][start:] for one, start in zip(sides, starts, strict=True)]
        again = _judged(session, jump, own)
        if again.posterior >= Options().confidence:
            break
    return again


def _judged(session: Session, jump: Jump, own: list[list[float]]) -> Jump:
    numbers = [np.log(np.array(values)) for values in own]
    a, b = map(level, numbers)
    sides = {session.search.subjects[at].key for at in (jump.after, jump.at)}
    others = [np.log(np.array(values)) for key, values in session.own.items() if values and key not in sides]
    spread = pooled([*numbers, *others])
    least, sign = LEAST * abs(jump.effect), math.copysign(1, jump.effect)
    half = float(quantile(0.975, spread.df)) * spread.sigma * (1 / a.count + 1 / b.count) ** 0.5
    effect = b.mean - a.mean
    posterior = posterior_jump(a, b, spread, sign=sign) if sign * effect >= least else 0.0
    return replace(jump, effect=effect, low=effect - half, high=effect + half, posterior=posterior)


def bisect(
    search: Search,
    runner: Runner,
    cache: Cache,
    *,
    report: Callable[[Subject, str], None] = lambda _subject, _problem: None,
    command: Sequence[str] = (),
    explain: Callable[[Subject, Subject], tuple[str, ...]] = lambda _before, _after: (),
) -> Bisection:
    """Find the subjects at which a metric changes.

    Args:
        search: What to search.
        runner: Where subjects are measured.
        cache: Cache of measurements.
        report: Called after each measurement with the problem, if there was one.
        command: The words that search the same again.
        explain: The commands that show how one subject differs from another.

    Raises:
        CollectionError: An end cannot be measured.
        UnusableInputError: An end is to be skipped.
    """
    if search.skipped & {one.key for one in (search.subjects[0], search.subjects[-1])}:
        raise UnusableInputError("an end of the range is skipped", hint="choose another end, or skip others")
    session = Session(_name(), search, runner, cache, report)
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
    for side in samples.order(search.repeats):
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
