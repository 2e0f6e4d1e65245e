"""Engine of `tracekit ab`: git, processes, session and state."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracekit.ab import surroundings
from tracekit.ab.keeping import keep
from tracekit.ab.report import Question, Report
from tracekit.ab.session import Block, Listener, Side, hold
from tracekit.ab.sides import Commit, base_commit, check_out, commit
from tracekit.ab.state import FOLDER, StateFile, block_values, given_variables, key
from tracekit.errors import TracekitError, UnusableInputError
from tracekit.measuring.locks import only_one
from tracekit.measuring.metrics import OF_RUNS, metric
from tracekit.measuring.program import Program, measure, prepare, program
from tracekit.measuring.submodules import missing
from tracekit.measuring.worktrees import Worktrees, repository_root, worktrees
from tracekit.stats.comparison import Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tracekit.stats.comparison import Comparison, Metric
    from tracekit.stats.sequential import Look
    from tracekit.store import Store


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
        looked: Receives each test with its inconclusive metrics.
    """

    say: Callable[[str], None] = lambda _text: None
    measuring: Callable[[Moment], None] = lambda _moment: None
    looked: Callable[[Look, Sequence[Comparison]], None] = lambda _look, _open: None


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
    warned = surroundings.warnings()
    with _alone(store), worktrees(store, root) as trees:
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
        listener = Listener(self.remember, self.watcher.looked)
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
        values = tuple(block_values(block.base, block.head) for block in blocks)
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
    """Return the metrics to compare, in the order of the report."""
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


@contextmanager
def _alone(store: Store) -> Iterator[None]:
    """Allow only one measuring call at a time, as two would disturb each other."""
    with only_one(store.folder(FOLDER) / "lock") as alone:
        if not alone:
            raise UnusableInputError(
                f"another `tracekit ab` is measuring in {store.path}", hint="wait until it is finished"
            )
        yield
