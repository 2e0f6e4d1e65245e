"""Measure a command or `tracekit collect` at a commit: a new process in a worktree, one value per metric.

One measurement of a command at a commit:

    with worktrees(store) as trees:
        made = program(("python", "train.py"), trees.repository)
        sample = measure(made, trees.add("HEAD~1"), scratch=trees.folder / "runs")
"""

from __future__ import annotations

import math
import os
import re
import shutil
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from tracekit.errors import CollectionError, UnusableInputError
from tracekit.experiments import process
from tracekit.experiments.checkouts import git
from tracekit.experiments.options import UNITS
from tracekit.runs import meta as run_meta
from tracekit.runs.conditions import Contention, find_contention
from tracekit.runs.metrics import DEVICE_PEAK, HOST_PEAK, STEP_TIME, VALUE, WALL, of_run, step_distribution
from tracekit.runs.revisions import environment
from tracekit.runs.run import Run
from tracekit.runs.store import ENVIRONMENT_VARIABLE, Store

MAIN = "from tracekit.cli.main import main; main()"


@dataclass(frozen=True)
class Reading:
    """Pattern of a value in a program's output."""

    pattern: str  # regular expression whose first group is the number; the mean of all matches is used
    unit: str = "ms"  # one of `UNITS`

    @classmethod
    def parse(cls, pattern: str | None, unit: str) -> Reading | None:
        """Check a pattern given by the user; None without one.

        Raises:
            UnusableInputError: It is no regular expression, or has no group.
        """
        if pattern is None:
            return None
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise UnusableInputError(
                f"--value {pattern!r} is not a valid regular expression: {error}"
            ) from error
        if not groups:
            raise UnusableInputError(
                f"--value {pattern!r} has no group",
                hint="put parentheses around the number: 'step: ([0-9.]+)'",
            )
        return cls(pattern, unit)

    @property
    def metric(self) -> str:
        """Name of the metric; a time is a step time."""
        return STEP_TIME if UNITS[self.unit][0] == "ns" else VALUE

    def read(self, output: str) -> float:
        """Read the value from an output.

        Raises:
            CollectionError: Nothing matches, or what matches is no number above 0.

        Example:
            >>> Reading("step: ([0-9.]+) ms").read("step: 2.5 ms")
            2500000.0
        """
        matches = [match[1] for match in re.finditer(self.pattern, output, re.MULTILINE)]
        try:
            value = statistics.fmean(map(float, matches)) * UNITS[self.unit][1]
        except (statistics.StatisticsError, ValueError, TypeError) as error:
            what = "matches nothing in its output"
            if matches:
                what = f"matches {matches[0]!r}, which is not a number"
            raise self._error(what) from error
        if not 0 < value < math.inf:
            raise self._error(f"matches {matches[0]!r}, which is not above 0")
        return value

    def _error(self, what: str) -> CollectionError:
        return CollectionError(
            f"--value {self.pattern!r} {what}",
            hint="print the value on standard output, or change the pattern",
        )


Say: TypeAlias = Callable[[str], None]
"""Receives a message."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program to measure."""

    command: tuple[str, ...]
    repository: Path  # root of the user's tree
    place: Path = field(default_factory=Path)  # working directory, relative to the root of the worktree
    reading: Reading | None = None  # how to read a value from its output, if it prints one
    # environment variables that it gets in addition
    variables: Mapping[str, str] = field(default_factory=dict)
    in_place: bool = False  # whether it runs in the user's tree, and imports what it does without tracekit

    @property
    def collects(self) -> bool:
        """Whether it is `tracekit collect`, measured by unprofiled step times and peak memory."""
        return Path(self.command[0]).name == "tracekit" and self.command[1:2] == ("collect",)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics compared by default."""
        if self.collects:
            return STEP_TIME, HOST_PEAK, DEVICE_PEAK
        return (self.reading.metric if self.reading else WALL), HOST_PEAK


@dataclass(frozen=True)
class Sample:
    """Measurement of a program."""

    values: dict[str, float]  # metrics by name, in ns and bytes, without missing ones
    run: Run | None = None  # run stored by `tracekit collect`, in the scratch folder
    contention: Contention | None = None  # what kept it from the CPU; None if nothing did, or unknown
    output: str = ""  # what `tracekit collect` wrote to standard output


def program(
    command: tuple[str, ...], repository: Path, *, folder: Path | None = None, reading: Reading | None = None
) -> Program:
    """Create the program for a command typed in a folder of the repository.

    Args:
        command: The program and its arguments.
        repository: Root of the user's tree.
        folder: Folder in which it is typed; by default the current folder.
        reading: How to read a value from its output.

    Raises:
        UnusableInputError: There is no command, or it names files of the user's tree by absolute path, which
            are the same at every commit.
    """
    if not command:
        raise UnusableInputError("no command to measure", hint="give a command after --")
    here, root = (folder or Path.cwd()).resolve(), repository.resolve()
    place = here.relative_to(root) if here.is_relative_to(root) else Path()
    for word in command:
        inside = Path(word).is_absolute() and Path(os.path.normpath(word)).is_relative_to(root)
        if inside and _is_tracked(root, Path(word)):
            raise UnusableInputError(
                f"{word} is an absolute path, the same at every commit", hint="use a relative path"
            )
    words = (_executable(command[0], here, root), *command[1:])
    measured = Program(command=words, repository=root, place=place, reading=reading)
    refuse_store(measured)
    return measured


def refuse_store(program: Program) -> None:
    """Refuse a `tracekit collect` that names a store; each measurement has its own.

    Raises:
        UnusableInputError: It names one.
    """
    if program.collects and any(word.split("=")[0] == "--store" for word in program.command):
        raise UnusableInputError(
            "the measured command must not have a --store", hint="give --store before --"
        )


def measure(program: Program, tree: Path, *, scratch: Path) -> Sample:
    """Measure a program once, in a new process, in a worktree.

    Imports and relative paths are those of the worktree: its root and `src` come first in PYTHONPATH, and
    what PYTHONPATH names in the user's tree is taken from the worktree. Other variables pass unchanged.

    Args:
        program: The program.
        tree: Root of the worktree.
        scratch: Folder for the run of `tracekit collect`; emptied first.

    Raises:
        ProgramError: It failed.
        CollectionError: It measured nothing.
        UnusableInputError: It cannot be started here.

    Example:
        >>> sample = measure(program, trees.add("HEAD~1"), scratch=folder)  # doctest: +SKIP
        >>> sample.values["wall"]  # doctest: +SKIP
        1250000000.0
    """
    folder = tree / program.place
    if not folder.is_dir():
        raise UnusableInputError(
            f"the commit has no folder {program.place}", hint="run from a folder that exists at the commit"
        )
    shutil.rmtree(scratch, ignore_errors=True)
    finished = process.run(_words(program), folder=folder, environment=_variables(program, tree, scratch))
    if program.collects:
        return replace(_read_run(Store(scratch)), output=finished.output)
    values = {WALL: float(finished.wall_ns), HOST_PEAK: float(finished.peak_bytes)}
    if program.reading:
        values[program.reading.metric] = program.reading.read(finished.output)
    return Sample(values, contention=find_contention([finished.load]))


def store_run(store: Store, run: Run, *, label: str | None) -> Run:
    """Move a run from a local store into another store, with a label.

    Args:
        store: The other store.
        run: The run.
        label: Its label there.
    """
    with store.draft() as draft:
        with store.convert_write_errors():
            for path in Path(str(run.path)).iterdir():
                if path.name != run_meta.FILE_NAME:
                    shutil.move(path, draft.path / path.name)
        return draft.commit(replace(run.meta, label=label))


def prepare(program: Program, tree: Path, setup: str, *, scratch: Path) -> None:
    """Run a shell command once in a worktree, to build it.

    Args:
        program: The program to measure there.
        tree: Root of the worktree.
        setup: The command.
        scratch: Folder for runs of `tracekit collect`.

    Raises:
        ProgramError: It failed.
    """
    process.run(["/bin/sh", "-c", setup], folder=tree, environment=_variables(program, tree, scratch))


def _variables(program: Program, tree: Path, scratch: Path) -> dict[str, str]:
    """Return the environment of the measured process: the user's, importing from the worktree."""
    inherited = {**environment(), **program.variables, ENVIRONMENT_VARIABLE: str(scratch.resolve())}
    if program.in_place:
        return inherited
    user_paths = [Path(word) for word in os.environ.get("PYTHONPATH", "").split(os.pathsep) if word]
    moved = [
        tree / path.resolve().relative_to(program.repository)
        if path.resolve().is_relative_to(program.repository)
        else path
        for path in user_paths
    ]
    paths = [str(path) for path in (tree, tree / "src", *moved) if path.is_dir() or path in moved]
    return {**inherited, "PYTHONPATH": os.pathsep.join(paths)}


def _words(program: Program) -> tuple[str, ...]:
    if program.collects:  # -P: as an installed command, it imports nothing from the working directory
        return (sys.executable, "-P", "-c", MAIN, *program.command[1:])
    return program.command


def _read_run(store: Store) -> Sample:
    runs = store.runs()
    if len(runs) != 1:
        raise CollectionError(
            f"`tracekit collect` stored {len(runs)} runs instead of one",
            hint="remove --repeat, and measure a command that runs one program",
        )
    run = runs[0]
    return Sample(of_run(run) | step_distribution(run), run, find_contention(run.meta.cpu_loads))


def _executable(word: str, here: Path, root: Path) -> str:
    """Resolve a program outside the commit, such as .venv/bin/python, to its path in the user's tree."""
    path = here / word
    if os.sep not in word or not path.is_file() or _is_tracked(root, path):
        return word
    return os.path.abspath(path)  # noqa: PTH100 (a link, as an interpreter of an environment is, stays one)


def _is_tracked(root: Path, path: Path) -> bool:
    try:
        return bool(git(root, "ls-files", "--", os.path.normpath(path)))
    except UnusableInputError:  # outside of the repository
        return False
