"""What `tracekit bisect` is asked: the search, the program and the subjects, from options and arguments."""

from __future__ import annotations

import re
import shlex
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekit.errors import UnusableInputError
from tracekit.experiments import bisect_model
from tracekit.experiments.bisect_model import Search, Subject
from tracekit.experiments.bisect_runner import VERSION, Cache, Runner, open_cache, open_runner
from tracekit.experiments.checkouts import changes, repository_root
from tracekit.experiments.measure import UNITS, Program, Reading, program
from tracekit.runs import metrics, revisions
from tracekit.runs.store import Store


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
    name, unit_of_name = _metric(measured, metric, signature)
    search = Search(
        subjects=subjects,
        metric=metrics.metric(name, unit=unit_of_name),
        exact=bool(signature),
        counts_first=measured.collects and metric is None and not signature,
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
        return signature, bisect_model.count_metric(signature).unit
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
