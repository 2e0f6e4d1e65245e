"""Measure a commit in its own worktree, or a version of a package, in a new process.

Measurements are cached by commit, command and machine in a file with one appended line each, so an
interrupted search resumes.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tracekit.errors import CollectionError, UnusableInputError
from tracekit.experiments.ab_model import keep
from tracekit.experiments.bisect_model import Moment, Search, Subject, counts
from tracekit.experiments.checkouts import Worktrees, worktrees
from tracekit.experiments.measure import Program, measure, prepare
from tracekit.runs import environment
from tracekit.runs.store import Store

VERSION = "{version}"


class Runner(Protocol):
    """Measures subjects."""

    def measure(self, subject: Subject) -> dict[str, float]:
        """Measure once; return the values by metric, times in ns.

        Raises:
            TracekitError: It does not build or run, or measured nothing.
        """
        ...


@dataclass
class SubjectRunner:
    """Measures commits in worktrees, or versions of a package; runs of `tracekit collect` are stored.

    Attributes:
        scratch: Folder for the run of a measurement.
        setup: Shell command that builds a worktree, or that installs a version, for which `{version}` stands.
        signature: Name to count in the stored runs.
        warmup: Measurements of a subject just prepared that do not count: they fill caches.
        trees: Worktrees of commits; None for versions, which are installed in the user's tree.
        ready: Trees of the prepared subjects, by key; of versions only the installed one.
    """

    program: Program
    store: Store
    scratch: Path
    setup: str
    signature: str
    warmup: int
    trees: Worktrees | None
    ready: dict[str, Path] = field(default_factory=dict)

    def measure(self, subject: Subject) -> dict[str, float]:
        """Measure a subject once."""
        program = self.program
        if self.trees is None:
            words = tuple(word.replace(VERSION, subject.key) for word in program.command)
            program = replace(program, command=words)
        if subject.key not in self.ready:
            self._prepare(program, subject.key)
        sample = measure(program, self.ready[subject.key], scratch=self.scratch)
        if sample.run is None:
            return sample.values
        found = {**sample.values, **counts(sample.run, self.signature)}
        keep(self.store, sample.run, label=sample.run.meta.label)
        return found

    def _prepare(self, program: Program, key: str) -> None:
        if self.trees is None:
            tree, setup = program.repository, self.setup.replace(VERSION, key)
            self.ready.clear()
        else:
            tree, setup = self.trees.folder / key, self.setup
            if not tree.exists():
                tree = self.trees.add(key)
        if setup:
            prepare(program, tree, setup, scratch=self.scratch)
        for _ in range(self.warmup):
            measure(program, tree, scratch=self.scratch)
        self.ready[key] = tree


@contextmanager
def open_runner(
    program: Program, store: Store, *, setup: str = "", signature: str = "", warmup: int = 0, versions: bool
) -> Iterator[SubjectRunner]:
    """Open a runner for commits, whose worktrees are removed at the end, or for versions of a package."""
    with ExitStack() as stack:
        trees = None if versions else stack.enter_context(worktrees(store, program.repository))
        draft = stack.enter_context(store.draft())
        yield SubjectRunner(program, store, draft.path / "scratch", setup, signature, warmup, trees)


FOLDER = ".bisect"


@dataclass(frozen=True)
class Record:
    """A measurement of a subject in a session, or the reason for its failure."""

    session: str
    key: str
    values: dict[str, float] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Cache:
    """The measurements of one command on one machine."""

    path: Path

    def records(self) -> list[Record]:
        """Return all measurements, oldest first; skips a truncated line."""
        found = []
        text = self.path.read_text(encoding="utf-8", errors="replace") if self.path.is_file() else ""
        for line in text.splitlines():
            with suppress(ValueError, TypeError):
                found.append(Record(**json.loads(line)))
        return found

    def add(self, record: Record) -> None:
        """Append a measurement."""
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write("\n" * self._cut() + json.dumps(asdict(record)) + "\n")

    def _cut(self) -> bool:
        """Whether the last line is truncated."""
        if not self.path.is_file() or not self.path.stat().st_size:
            return False
        with self.path.open("rb") as stream:
            stream.seek(-1, 2)
            return stream.read() != b"\n"


def open_cache(store: Store, command: Sequence[Any]) -> Cache:
    """Open the cache of a command, with all that affects its measurements, on this machine."""
    key = json.dumps([*command, machine()], sort_keys=True, default=str)
    return Cache(store.folder(FOLDER) / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.jsonl")


def machine() -> dict[str, Any]:
    """Return the properties of the machine that measurements depend on."""
    found = environment.capture()
    gpus = [(gpu.get("name"), gpu.get("uuid")) for gpu in found["gpus"]]
    return {**{name: found[name] for name in ("cpu", "os", "driver", "python", "packages")}, "gpus": gpus}


DRIFT = 0.25
"""Share of the change by which the ends may drift before measurements of earlier calls are ignored."""


@dataclass
class Session:
    """Measures, and keeps the measurements.

    Attributes:
        report: Called after each measurement.
        made: Every metric of what was measured in this session, by key.
        earlier: Values of the searched metric that hold of earlier sessions, by key.
        problems: Why subjects cannot be measured, by key.
        planned: Expected number of further measurements.
        failed: Number of measurements that failed.
        confirming: How many of them a culprit will need, where that depends on another session.
        began: When it began, seconds of the monotonic clock.
    """

    name: str
    search: Search
    runner: Runner
    cache: Cache
    report: Callable[[Moment], None]
    made: defaultdict[str, list[dict[str, float]]] = field(default_factory=lambda: defaultdict(list))
    earlier: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    problems: dict[str, str] = field(default_factory=dict)
    planned: int = 0
    failed: int = 0
    confirming: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def ends(self) -> tuple[Subject, Subject]:
        """The good and the bad end."""
        return self.search.subjects[0], self.search.subjects[-1]

    def searching(self, search: Search) -> Session:
        """Return a session of another search over the same measurements."""
        return replace(self, search=search, earlier=defaultdict(list))

    def own(self, subject: Subject) -> list[float]:
        """Return what was measured of a subject in this session."""
        name = self.search.metric.name
        return [values[name] for values in self.made.get(subject.key, ()) if name in values]

    def values(self) -> dict[int, list[float]]:
        """Return all valid values by position."""
        found = {at: self.of(one) for at, one in enumerate(self.search.subjects)}
        return {at: own for at, own in found.items() if own}

    def of(self, subject: Subject) -> list[float]:
        """Return the values of a subject, those of earlier calls first."""
        if subject.key in self.problems:
            return []
        return [*self.earlier.get(subject.key, ()), *self.own(subject)]

    def broken(self) -> frozenset[int]:
        """Return positions that failed or are skipped."""
        without = self.problems.keys() | self.search.skipped
        return frozenset(at for at, one in enumerate(self.search.subjects) if one.key in without)

    def measure(self, subject: Subject) -> None:
        """Measure once and store the result.

        Raises:
            CollectionError: An end cannot be measured.
        """
        metric = self.search.metric.name
        try:
            values = self.runner.measure(subject)
            if metric not in values:
                raise CollectionError(f"{metric} was not measured, only {', '.join(sorted(values))}")
        except (CollectionError, UnusableInputError) as error:
            self._failed(subject, error)
            return
        self.cache.add(Record(self.name, subject.key, values))
        self.made[subject.key].append(values)
        self._report(subject, value=values[metric])

    def _report(self, subject: Subject, *, value: float | None = None, problem: str = "") -> None:
        self.planned = max(0, self.planned - 1)
        self.failed += value is None
        spent = time.monotonic() - self.began
        each = spent / (self.failed + sum(map(len, self.made.values())))
        self.report(
            Moment(
                subject=subject,
                metric=self.search.metric,
                value=value,
                problem=problem,
                number=len(self.of(subject)),
                left=self.planned,
                seconds=spent,
                left_seconds=each * self.planned,
            )
        )

    def _failed(self, subject: Subject, error: CollectionError | UnusableInputError) -> None:
        tail = str(getattr(error, "tail", "")).strip().splitlines()
        problem = f"{error.message}: {tail[-1]}" if tail else error.message
        self._report(subject, problem=problem)
        if subject in self.ends:
            which = "good" if subject == self.ends[0] else "bad"
            hint = error.hint or f"choose another {which} end that builds and runs"
            raise CollectionError(
                f"the {which} end {subject.short} cannot be measured: {problem}", hint=hint
            ) from error
        self.problems[subject.key] = problem
        self.cache.add(Record(self.name, subject.key, problem=problem))

    def recall(self, records: Sequence[Record]) -> int:
        """Take over valid measurements of earlier sessions; return the number of the others.

        The ends are measured again in every session. What an earlier one measured holds where the ends lay
        then where they lie now, to within a share of the jump; counts hold always.
        """
        ends = {one.key for one in self.ends}
        between = {one.key for one in self.search.subjects} - ends
        left_out = 0  # a problem of what is an end now is left out: it is measured anyway
        for session, own in _by_session(records).items():
            if session == self.name:
                continue
            holds = self.search.exact or self._as_now(own)
            for record in own:
                again = self.search.exact and record.key in ends and not record.problem
                if record.key not in between and not again:
                    continue
                left_out += not (holds or record.problem)
                self._take(record, holds=holds)
        return left_out

    def _take(self, record: Record, *, holds: bool) -> None:
        value = record.values.get(self.search.metric.name)
        if record.problem:
            self.problems[record.key] = f"{record.problem} (in an earlier call; use --restart to retry)"
        elif holds and value is not None:
            self.earlier[record.key].append(value)

    def _as_now(self, records: Sequence[Record]) -> bool:
        """Tell whether the ends measured the same in an earlier session."""
        metric = self.search.metric.name
        now = [_level(self.own(one)) for one in self.ends]
        moved = [
            abs(_level([record.values[metric] for record in own]) - level)
            for one, level in zip(self.ends, now, strict=True)
            if (own := [record for record in records if record.key == one.key and metric in record.values])
        ]
        return bool(moved) and max(moved) <= DRIFT * abs(now[1] - now[0])


def _level(values: Sequence[float]) -> float:
    return sum(map(math.log, values)) / len(values)


def _by_session(records: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.session, []).append(record)
    return found
