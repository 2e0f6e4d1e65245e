"""Measure a commit in its own worktree, or a version of a package, in a new process.

Measurements are cached by commit, command and machine in a file with one appended line each, so an
interrupted search resumes.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tracekit.errors import CollectionError, UnusableInputError
from tracekit.experiments.bisect_model import Search, Subject, counts, format_value
from tracekit.experiments.checkouts import Worktrees
from tracekit.experiments.measure import Program, measure, prepare, store_run
from tracekit.experiments.state import StateFile
from tracekit.runs.store import Store
from tracekit.runs.text import duration

VERSION = "{version}"
"""Placeholder in commands for the version to install or measure."""


@dataclass
class SubjectRunner:
    """Measures commits in worktrees, or versions of a package; runs of `tracekit collect` are stored."""

    program: Program
    store: Store
    scratch: Path  # folder for the run of a measurement
    # shell command that builds a worktree, or that installs a version, for which `{version}` stands
    setup: str
    signature: str  # name to count in the stored runs
    warmup: int  # measurements of a subject just prepared that do not count: they fill caches
    trees: Worktrees | None  # worktrees of commits; None for versions, which are installed in the user's tree
    # trees of the prepared subjects, by key; of versions only the installed one
    ready: dict[str, Path] = field(default_factory=dict)

    def measure(self, subject: Subject) -> dict[str, float]:
        """Measure a subject once; return the values by metric, times in ns.

        Raises:
            TracekitError: It does not build or run, or measured nothing.
        """
        program = self.program
        if self.trees is None:
            words = tuple(word.replace(VERSION, subject.key) for word in program.command)
            program = replace(program, command=words)
        if subject.key not in self.ready:
            self._prepare(program, subject.key)
        sample = measure(program, self.ready[subject.key], scratch=self.scratch)
        if sample.run is None:
            return sample.values
        values = {**sample.values, **counts(sample.run, self.signature)}
        store_run(self.store, sample.run, label=sample.run.meta.label)
        return values

    def _prepare(self, program: Program, key: str) -> None:
        """Check out and build a commit, or install a version, and run what only fills caches."""
        if self.trees is None:
            tree, setup = program.repository, self.setup.replace(VERSION, key)
            self.ready.clear()  # what was installed before is replaced
        else:
            tree, setup = self.trees.folder / key, self.setup
            if not tree.exists():
                tree = self.trees.add(key)
        if setup:
            prepare(program, tree, setup, scratch=self.scratch)
        for _ in range(self.warmup):
            measure(program, tree, scratch=self.scratch)
        self.ready[key] = tree


@dataclass(frozen=True)
class Record:
    """A measurement of a subject in a session, or the reason for its failure."""

    session: str
    key: str
    values: dict[str, float] = field(default_factory=dict)
    problem: str = ""


DRIFT = 0.25
"""Share of the change by which the ends may drift before measurements of earlier calls are ignored."""


@dataclass
class Session:
    """Measures subjects of a search, and keeps the measurements: one call of `tracekit bisect`."""

    name: str  # name in the cache, which tells its records from those of earlier sessions
    search: Search
    runner: SubjectRunner  # runs and measures subjects
    cache: StateFile[Record]  # records of all sessions of the same question
    report: Callable[[str], None]  # receives a line after each measurement
    # every metric of what was measured in this session, by key
    made: defaultdict[str, list[dict[str, float]]] = field(default_factory=lambda: defaultdict(list))
    # values of the searched metric that hold of earlier sessions, by key
    earlier: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    problems: dict[str, str] = field(default_factory=dict)  # why subjects cannot be measured, by key
    planned: int = 0  # expected number of further measurements
    failed: int = 0  # number of measurements that failed, of any subject
    # how many of the planned ones confirm a culprit, where not this session measures them: if a count is
    # searched, that of the asked metric does. 0: as many as the search itself needs
    confirming: int = 0
    began: float = field(default_factory=time.monotonic)  # when it began, seconds of the monotonic clock

    @property
    def ends(self) -> tuple[Subject, Subject]:
        """The good and the bad end."""
        return self.search.subjects[0], self.search.subjects[-1]

    def values_now(self, subject: Subject) -> list[float]:
        """Return the values of the searched metric of a subject in this session."""
        name = self.search.metric.name
        return [values[name] for values in self.made.get(subject.key, ()) if name in values]

    def values(self) -> dict[int, list[float]]:
        """Return all valid values by position."""
        measured = (
            (position, self.values_of(subject)) for position, subject in enumerate(self.search.subjects)
        )
        return {position: values for position, values in measured if values}

    def values_of(self, subject: Subject) -> list[float]:
        """Return the values of a subject, those of earlier calls first."""
        if subject.key in self.problems:
            return []
        return [*self.earlier.get(subject.key, ()), *self.values_now(subject)]

    def unmeasurable(self) -> frozenset[int]:
        """Return positions that failed or are skipped."""
        excluded = self.problems.keys() | self.search.skipped
        return frozenset(
            position for position, subject in enumerate(self.search.subjects) if subject.key in excluded
        )

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
            self._record_failure(subject, error)
            return
        self.cache.append(Record(self.name, subject.key, values))
        self.made[subject.key].append(values)
        value = format_value(values[metric], self.search.metric.unit)
        self._report(subject, f"{metric} {value} (n={len(self.values_of(subject))})")

    def _report(self, subject: Subject, outcome: str) -> None:
        """Report the outcome of a measurement, what is left and for how long."""
        self.planned = max(0, self.planned - 1)
        seconds = time.monotonic() - self.began
        left_s = self.planned * seconds / (self.failed + sum(map(len, self.made.values())))
        left = f", about {self.planned} more in {duration(left_s)}" if self.planned else ""
        title = (
            f"{self.search.subjects.index(subject)}/{self.search.last} {subject.short} {subject.title[:60]}"
        )
        self.report(f"{title}: {outcome}, {duration(seconds)} elapsed{left}")

    def _record_failure(self, subject: Subject, error: CollectionError | UnusableInputError) -> None:
        """Leave a subject out of the search, which no end can be."""
        tail = str(getattr(error, "tail", "")).strip().splitlines()
        problem = f"{error.message}: {tail[-1]}" if tail else error.message
        self.failed += 1
        self._report(subject, f"skipped: {problem}")
        if subject in self.ends:
            which = "good" if subject == self.ends[0] else "bad"
            hint = error.hint or f"choose another {which} end that builds and runs"
            raise CollectionError(
                f"the {which} end {subject.short} cannot be measured: {problem}", hint=hint
            ) from error
        self.problems[subject.key] = problem
        self.cache.append(Record(self.name, subject.key, problem=problem))

    def recall(self, records: Sequence[Record]) -> int:
        """Take over valid measurements of earlier sessions; return how many are not valid any more.

        Those of an earlier session are valid if its ends measured what they measure now, to within a share
        (`DRIFT`) of the difference between them; counts always are. The ends are measured again in every
        session, also if one could not be measured in an earlier one.
        """
        ends = {subject.key for subject in self.ends}
        between = {subject.key for subject in self.search.subjects} - ends
        left_out = 0
        sessions: dict[str, list[Record]] = {}
        for record in records:
            sessions.setdefault(record.session, []).append(record)
        sessions.pop(self.name, None)
        for session in sessions.values():
            holds = self.search.exact or self._measures_as_now(session)
            for record in session:
                # Counts repeat exactly, so that even those of an end need not be measured again.
                is_count_of_end = self.search.exact and record.key in ends and not record.problem
                if record.key not in between and not is_count_of_end:
                    continue
                value = record.values.get(self.search.metric.name)
                if record.problem:
                    problem = f"{record.problem} (in an earlier call; use --restart to retry)"
                    self.problems[record.key] = problem
                elif not holds:
                    left_out += 1
                elif value is not None:
                    self.earlier[record.key].append(value)
        return left_out

    def _measures_as_now(self, records: Sequence[Record]) -> bool:
        """Tell whether the ends measured the same in an earlier session."""
        metric = self.search.metric.name
        now = [_level(self.values_now(end)) for end in self.ends]
        moved = []
        for end, level in zip(self.ends, now, strict=True):
            earlier = [
                record.values[metric]
                for record in records
                if record.key == end.key and metric in record.values
            ]
            if earlier:
                moved.append(abs(_level(earlier) - level))
        return bool(moved) and max(moved) <= DRIFT * abs(now[1] - now[0])


def _level(values: Sequence[float]) -> float:
    """Return the mean logarithm, so that differences of levels are relative changes."""
    return sum(map(math.log, values)) / len(values)
