"""Compare two commits (`tracekit ab`): blocks of two runs in ABBA order, until the result is conclusive.

Both commits are measured in worktrees. The state after each block is stored (`ab_model`), so that an
interrupted comparison resumes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tracekit.errors import TracekitError, UnusableInputError
from tracekit.experiments import checkouts
from tracekit.experiments.ab_model import (
    FOLDER,
    Block,
    Commit,
    Listener,
    Question,
    Report,
    Side,
    StateFile,
    given_variables,
    hold,
    keep,
    key,
)
from tracekit.experiments.checkouts import Worktrees, missing, only_one, repository_root, worktrees
from tracekit.experiments.measure import Program, measure, prepare, program
from tracekit.runs import revisions
from tracekit.runs.metrics import OF_RUNS, metric
from tracekit.runs.store import Store
from tracekit.stats.comparison import Comparison, Direction, Metric
from tracekit.stats.tests import Look

WORKING_TREE = "."


def commit(revision: str, repository: Path, *, allow_dirty: bool = False) -> Commit:
    """Resolve a revision, or `.` for the working tree.

    Raises:
        RunNotFoundError: There is no such revision.
        UnusableInputError: The working tree has changes, and that is not allowed.
    """
    if revision != WORKING_TREE:
        return Commit(revision, revisions.commit(revision, repository))
    found, sha = checkouts.changes(repository), revisions.commit("HEAD", repository)
    if not found.paths:
        return Commit(revision, sha)
    if not allow_dirty:
        count = len(found.paths)
        raise UnusableInputError(
            f"the working tree has uncommitted changes in {count} file{'s' * (count != 1)}",
            hint="commit them, or use --allow-dirty to measure them uncommitted",
        )
    return Commit(revision, sha, found)


def base_commit(revision: str, repository: Path) -> Commit:
    """Resolve the base, which must be a commit.

    Raises:
        RunNotFoundError: There is no such revision.
        UnusableInputError: It is the working tree, with changes.
    """
    found = commit(revision, repository, allow_dirty=True)
    if found.dirty:
        raise UnusableInputError(
            "the base must be a commit, but the working tree has uncommitted changes",
            hint="use a commit as the base, and `.` as the head",
        )
    return found


def check_out(trees: Worktrees, side: Commit, *, name: str) -> Path:
    """Check out the worktree of a side; return its root.

    Raises:
        UnusableInputError: The working tree changed since the side was resolved.
    """
    if side.changes is None:
        return trees.add(side.sha, name=name)
    tree = checkouts.copy(trees, side.changes, name=name)
    if checkouts.changes(tree) != side.changes:
        raise UnusableInputError("the working tree changed while it was copied", hint="run the command again")
    return tree


BUSY = 0.25
"""Share of the processors that other programs may use without a warning."""
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def warnings(governor: Path = _GOVERNOR) -> list[str]:
    """Return warnings about the conditions at the start."""
    found = []
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if load > cpus:
        found.append(f"the machine is overloaded: other programs want {load:.1f} processors, it has {cpus}")
    elif load > BUSY * cpus:
        found.append(f"other programs use {load:.1f} of {cpus} processors, which adds noise")
    try:
        named = governor.read_text().strip()
    except OSError:
        return found
    if named != "performance":
        found.append(f"the CPU frequency governor is {named!r}; `performance` gives steadier clocks")
    return found


@dataclass(frozen=True)
class Moment:
    """A measurement that starts.

    Attributes:
        side: The side.
        commit: Its commit, for display.
        number: Number of the measurement, from 1; 0 for warm-up.
        total: Number of measurements until the next test.
        seconds: Time since the start of this call.
        left: Estimated time until the next test; None before the first measurement.
    """

    side: Side
    commit: str
    number: int
    total: int
    seconds: float
    left: float | None


@dataclass(frozen=True)
class Watcher:
    """Callbacks for progress.

    Attributes:
        say: Receives messages.
        measuring: Receives each measurement that starts.
        tested: Receives each test with its inconclusive metrics.
    """

    say: Callable[[str], None] = lambda _text: None
    measuring: Callable[[Moment], None] = lambda _moment: None
    tested: Callable[[Look, Sequence[Comparison]], None] = lambda _look, _open: None


def compare_commits(store: Store, question: Question, *, watcher: Watcher | None = None) -> Report:
    """Compare two commits of the current repository.

    Args:
        store: Store of the worktrees, the state of an interrupted call, and the profiles.
        question: The comparison to make.
        watcher: Callbacks for progress.

    Returns:
        The report; the saved state is deleted.

    Raises:
        ProgramError: The program failed on one side, named in the message.
        CollectionError: It measured nothing.
        RunNotFoundError: A revision does not exist.
        UnusableInputError: The command cannot be measured, or another call is measuring in this store.
    """
    watcher, root = watcher or Watcher(), repository_root()
    sides: dict[Side, Commit] = {
        "base": base_commit(question.base, root),
        "head": commit(question.head, root, allow_dirty=question.allow_dirty),
    }
    made = program(question.command, root, reading=question.reading)
    metrics = _metrics(question, made)
    _ = question.design.looks  # refuses an invalid design before anything starts
    warned = warnings()
    busy = f"another `tracekit ab` is measuring in {store.path}"  # two would disturb each other
    alone = only_one(store.folder(FOLDER) / "lock", busy, hint="wait until it is finished")
    with alone, worktrees(store, root) as trees:
        state = StateFile(store.folder(FOLDER) / f"{key(_asked(question, made, sides))}.json")
        if question.restart:
            state.forget()
        bench = _Bench(store, made, sides, trees, state, watcher)
        warned += [] if question.setup else bench.without_submodules()
        for text in warned:
            watcher.say(f"warning: {text}")
        return bench.report(question, metrics, warned)


class _Bench:
    """The worktrees, and the results so far."""

    def __init__(
        self,
        store: Store,
        made: Program,
        sides: dict[Side, Commit],
        trees: Worktrees,
        state: StateFile,
        watcher: Watcher,
    ) -> None:
        self.store, self.made, self.sides, self.watcher, self.state = store, made, sides, watcher, state
        self.start, self.counted = time.monotonic(), 0
        self.first = self.start
        self.measured = state.read().of(store)
        self.scratch = trees.folder / "runs"
        self.trees: dict[Side, Path] = {side: check_out(trees, one, name=side) for side, one in sides.items()}

    def report(self, question: Question, metrics: Sequence[Metric], warned: Sequence[str]) -> Report:
        """Run the session."""
        before = [Block(*values) for values in self.measured.blocks]
        if before:
            self.watcher.say(f"resuming after {len(before)} pairs of runs")
        if question.setup:
            self.set_up(question.setup)
        for side in ("base", "head") * question.design.warmup:
            self.once(side, 0, 0)
        self.first = time.monotonic()
        listener = Listener(self.remember, self.watcher.tested)
        outcome = hold(question.design, metrics, self.counting, listener, before=before)
        self.state.forget()
        return Report(
            question=question,
            base=self.sides["base"],
            head=self.sides["head"],
            outcome=outcome,
            runs=self.measured.runs,
            warnings=tuple(warned),
            seconds=self.measured.seconds + self.spent(),
        )

    def without_submodules(self) -> list[str]:
        """Return a warning about submodules that are not cloned in the user's tree."""
        lacking = sorted({name for tree in self.trees.values() for name in missing(tree)})
        fetch = "run `git submodule update --init` in your tree, or as --setup"
        return [
            f"submodules without a local clone are not checked out: {', '.join(lacking)}; {fetch}"
        ] * bool(lacking)

    def set_up(self, setup: str) -> None:
        """Build both worktrees."""
        for side, tree in self.trees.items():
            self.watcher.say(f"setting up {side}, {self.sides[side].name}")
            with self.named(side, "set up"):
                prepare(self.made, tree, setup, scratch=self.scratch)

    def counting(self, side: Side, number: int, total: int) -> dict[str, float]:
        """Make a measurement that counts."""
        values = self.once(side, number, total)
        self.counted += 1
        return values

    def once(self, side: Side, number: int, total: int) -> dict[str, float]:
        """Make a measurement; the first profile of each side is stored."""
        each = (time.monotonic() - self.first) / self.counted if self.counted else None
        left = each * (total - number + 1) if each is not None else None
        name = self.sides[side].name
        self.watcher.measuring(Moment(side, name, number, total, self.spent(), left))
        with self.named(side, f"measurement {number} of {total}" if number else "warm-up"):
            sample = measure(self.made, self.trees[side], scratch=self.scratch)
        if sample.run and number and side not in self.measured.runs:
            stored = keep(self.store, sample.run, label=f"ab-{side}")
            self.measured = replace(self.measured, runs={**self.measured.runs, side: stored.id})
            self.write()
        return sample.values

    def remember(self, blocks: Sequence[Block]) -> None:
        """Save the blocks, so that an interrupt loses none."""
        values = tuple((dict(block.base), dict(block.head)) for block in blocks)
        self.measured = replace(self.measured, blocks=values)
        self.write()

    def write(self) -> None:
        """Save the state, with the time spent."""
        self.state.write(replace(self.measured, seconds=self.measured.seconds + self.spent()))

    def spent(self) -> float:
        """Time since this call started, s."""
        return time.monotonic() - self.start

    @contextmanager
    def named(self, side: Side, what: str) -> Iterator[None]:
        """Add the side and the activity to an error message."""
        try:
            yield
        except TracekitError as error:
            error.message = f"{side} {self.sides[side].name}, {what}: {error.message}"
            raise


def _metrics(question: Question, made: Program) -> list[Metric]:
    able = OF_RUNS if made.collects else tuple(dict.fromkeys([*made.metrics, "wall"]))
    for name in question.design.metrics:
        if name not in able:
            raise UnusableInputError(
                f"the command does not measure {name}, but {', '.join(able)}",
                hint="use --value and --unit to read a number that it prints",
            )
    if made.collects and question.reading:
        raise UnusableInputError(
            "--value cannot be used with `tracekit collect`", hint="remove --value; its steps are timed"
        )
    direction = Direction.HIGHER if question.higher_is_better else Direction.LOWER
    if question.higher_is_better and "value" not in able:
        raise UnusableInputError("--higher-is-better needs a value", hint="use --value with --unit count")
    unit = "bytes" if question.reading and question.reading.unit.endswith(("B", "bytes")) else "count"
    return [metric(name, unit=unit, direction=direction) for name in question.design.metrics or made.metrics]


def _asked(question: Question, made: Program, sides: dict[Side, Commit]) -> dict[str, object]:
    """Return all that the values depend on, without the design, which may change."""
    reading = question.reading
    return {
        "sides": [[one.sha, one.changes.sha256 if one.changes else None] for one in sides.values()],
        "command": list(made.command),
        "place": str(made.place),
        "reading": [reading.pattern, reading.unit] if reading else None,
        "setup": question.setup,
        "variables": given_variables(),
    }
