"""Request of `tracekit bisect`: the search, the program and the subjects, from options and arguments."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekit.errors import UnusableInputError
from tracekit.experiments.bisect_model import Search, Subject, count_metric
from tracekit.experiments.bisect_runner import VERSION, Record, SubjectRunner
from tracekit.experiments.checkouts import changes, repository_root, worktrees
from tracekit.experiments.measure import Program, Reading, program
from tracekit.experiments.options import UNITS, BisectOptions
from tracekit.experiments.state import StateFile, question_key
from tracekit.runs import environment, metrics, revisions
from tracekit.runs.store import Store

FOLDER = ".bisect"
RANGE = ".."


@dataclass(frozen=True, kw_only=True)
class BisectRequest:
    """A search with all that it needs."""

    search: Search
    program: Program
    options: BisectOptions
    cache_key: tuple[Any, ...] = ()  # what changes the measurements, beside the subject: it names the cache
    store: str | None = None  # address of the store, where it is not the usual one

    @classmethod
    def create(cls, words: tuple[str, ...], options: BisectOptions, *, store: str | None) -> BisectRequest:
        """Resolve the subjects and the program.

        Args:
            words: A range of commits and the command; the command alone if versions are searched.
            options: Options of the command.
            store: Address of the store, where it is not the usual one.

        Raises:
            RunNotFoundError: A revision is unknown.
            UnusableInputError: They name nothing to search, or the options contradict each other.
        """
        _check(words, options)
        reading = Reading.parse(options.value, options.unit)
        if options.dep:
            subjects, command = _versions(options.dep, options.versions or ""), words
            root = revisions.root() or Path.cwd()
        else:
            root = repository_root()
            subjects = _commits(words[0], paths=options.paths, first_parent=not options.all_parents)
            command = words[1:]
        measured = program(command, root, reading=reading)
        name, unit = _metric(measured, options.metric, options.signature)
        return cls(
            search=Search(
                subjects=subjects,
                metric=metrics.metric(name, unit=unit),
                exact=bool(options.signature),
                counts_first=measured.collects and options.metric is None and not options.signature,
                repeats=options.reps,
                threshold=options.threshold,
                skipped=_resolve_skipped(subjects, options.skip, git=not options.dep),
                notes=_notes(options),
            ),
            program=measured,
            options=options,
            cache_key=_cache_key(measured, options, root),
            store=store,
        )

    @contextmanager
    def open_runner(self, store: Store) -> Iterator[SubjectRunner]:
        """Open what measures the subjects; worktrees of commits are removed at the end."""
        options, program = self.options, self.program
        with ExitStack() as stack:
            trees = None if options.dep else stack.enter_context(worktrees(store, program.repository))
            yield SubjectRunner(
                program,
                store,
                scratch=stack.enter_context(store.draft()).path / "scratch",
                setup=options.prepare if options.dep else options.setup,
                signature=options.signature or "",
                warmup=0 if options.signature else options.warmup,
                trees=trees,
            )

    def open_cache(self, store: Store, *, fresh: bool = False) -> StateFile[Record]:
        """Open the cache of measurements on this machine; `fresh` empties it."""
        cache = StateFile(
            store.folder(FOLDER) / f"{question_key([*self.cache_key, _machine()])}.jsonl", Record
        )
        if fresh:
            cache.delete()
        return cache

    def explain(self, before: Subject, after: Subject) -> tuple[str, ...]:
        """Return the commands that compare one subject with another."""
        if self.options.dep:
            return ()
        reading, name = self.program.reading, self.search.metric.name
        store = ["--store", self.store] if self.store else []
        words = ["tracekit", "ab", before.short, after.short, *store]
        words += ["--setup", self.options.setup] if self.options.setup else []
        words += ["--value", reading.pattern, "--unit", reading.unit] if reading else []
        words += ["--metric", name] if name != self.program.metrics[0] and not self.search.exact else []
        again = shlex.join([*words, "--", *self.program.command])
        if not self.program.collects:
            return (again,)
        return (shlex.join(["tracekit", "diff", f"{before.short}..{after.short}", *store]), again)


def _check(words: tuple[str, ...], options: BisectOptions) -> None:
    """Refuse options that contradict each other, and a call without anything to search."""
    dep, prepare = options.dep, options.prepare
    if not words:
        raise UnusableInputError("nothing to search", hint="give a range and a command: GOOD..BAD -- CMD")
    if bool(dep) != bool(options.versions) or bool(prepare) > bool(dep) or bool(dep and options.setup):
        raise UnusableInputError(
            "--dep PACKAGE needs --versions LIST and --prepare CMD, and excludes --setup",
            hint="see `tracekit bisect --help`",
        )
    if dep and VERSION not in f"{prepare} {shlex.join(words)}":
        raise UnusableInputError(
            "neither --prepare nor the command contains {version}",
            hint=f'use --prepare "venv/bin/pip install {dep}=={VERSION}"',
        )


def _machine() -> dict[str, Any]:
    """Return the properties of the machine that measurements depend on."""
    captured = environment.capture()
    gpus = [(gpu.get("name"), gpu.get("uuid")) for gpu in captured["gpus"]]
    return {**{name: captured[name] for name in ("cpu", "os", "driver", "python", "packages")}, "gpus": gpus}


def _cache_key(measured: Program, options: BisectOptions, root: Path) -> tuple[Any, ...]:
    # Versions of a package are measured in the user's tree, whose state then decides as well.
    state = (revisions.state(), changes(root).sha256) if options.dep and revisions.root() else ()
    return (
        options.warmup,
        measured.command,
        str(measured.place),
        options.value,
        options.unit,
        options.setup,
        options.prepare,
        options.dep,
        options.signature or "",
        *map(str, state),
    )


def _notes(options: BisectOptions) -> tuple[str, ...]:
    """Return notes on the limits of the search."""
    notes: list[str] = []
    if options.paths:
        notes.append(
            f"only commits that change {', '.join(options.paths)} were searched; another commit between the "
            "culprit and the commit before it may be the cause"
        )
    if options.all_parents:
        notes.append(
            "commits of merged branches were searched as a linear history: if a culprit is a merge or the "
            "first commit of a branch, compare it with each parent"
        )
    if options.prepare:
        notes.append("--prepare installed the version measured last; reinstall the version you use")
    return tuple(notes)


def _commits(named: str, *, paths: Sequence[str], first_parent: bool) -> tuple[Subject, ...]:
    """Return the ends of `GOOD..BAD` and the commits between that change one of the paths, good first."""
    good, dots, bad = named.partition(RANGE)
    if not good or not dots or bad.startswith("."):
        raise UnusableInputError(f"{named!r} is not a range of commits", hint="use GOOD..BAD")
    old, new = revisions.commit(good), revisions.commit(bad or "HEAD")
    # Following first parents only, a merge counts as one commit.
    later = revisions.between(old, new, paths=paths, first_parent=first_parent)
    return tuple(
        Subject(commit.sha, commit.subject, commit.author, commit.author_date)
        for commit in (*revisions.describe([old]), *later)
    )


def _versions(package: str, named: str) -> tuple[Subject, ...]:
    """Parse comma-separated versions of a package, from good to bad."""
    versions = [version.strip() for version in named.split(",") if version.strip()]
    if len(versions) < 2 or len(set(versions)) < len(versions):
        raise UnusableInputError(
            f"--versions {named!r} are not two or more different versions",
            hint='list versions from good to bad: --versions "2.11.0,2.12.0,2.13.0"',
        )
    return tuple(Subject(version, f"{package} {version}") for version in versions)


def _resolve_skipped(subjects: Sequence[Subject], named: Sequence[str], *, git: bool) -> frozenset[str]:
    """Return the keys of the subjects to skip."""
    keys = {subject.key for subject in subjects}
    skipped = frozenset(revisions.commit(name) if git else name for name in named)
    if not git and not skipped <= keys:
        raise UnusableInputError(
            f"--skip {', '.join(sorted(skipped - keys))}: no such version", hint="use one of --versions"
        )
    return skipped & keys


def _metric(measured: Program, metric: str | None, signature: str | None) -> tuple[str, str]:
    """Return the name and unit of the searched metric."""
    if signature:
        if not measured.collects:
            raise UnusableInputError(
                "--signature needs a profile", hint="use `-- tracekit collect ...` as the command"
            )
        return signature, count_metric(signature).unit
    reading = measured.reading
    if metric == metrics.VALUE and reading is None:
        raise UnusableInputError("--metric value needs a pattern", hint="add --value REGEX")
    if reading and metric in {None, metrics.VALUE, reading.metric}:
        return reading.metric, UNITS[reading.unit][0]
    chosen = metric or measured.metrics[0]
    if not measured.collects and chosen not in {metrics.WALL, metrics.HOST_PEAK}:
        raise UnusableInputError(
            f"{shlex.join(measured.command)[:80]} does not measure {chosen}",
            hint="read a number that it prints with --value, or use `tracekit collect`",
        )
    return chosen, "ns"
