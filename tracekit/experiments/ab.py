"""Compare two commits or settings (`tracekit ab`): blocks of two runs in ABBA order, until it is conclusive.

Commits are measured in worktrees, settings in the current folder. The results are stored after each block, so
that an interrupted comparison resumes. Those of one that could not tell are kept for a call that allows more
runs. Each call tests anew, and so may claim a change that is none in up to `ALPHA` of all comparisons.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tracekit.errors import TracekitError, UnusableInputError
from tracekit.experiments import checkouts
from tracekit.experiments.ab_model import (
    SIDES,
    AbRequest,
    Block,
    Commit,
    Report,
    Setting,
    Side,
    compare_until_decided,
)
from tracekit.experiments.checkouts import Worktrees, find_missing_submodules, repository_root, worktrees
from tracekit.experiments.measure import Program, Say, measure, prepare, program, refuse_store, store_run
from tracekit.experiments.state import StateFile, code_of, lock_measuring
from tracekit.runs import revisions
from tracekit.runs.conditions import Contention, contention_warnings
from tracekit.runs.metrics import OF_RUNS, metric
from tracekit.runs.store import Store
from tracekit.runs.text import duration
from tracekit.stats.comparison import Comparison, Direction, Metric
from tracekit.stats.tests import Look

FOLDER = ".ab"
WORKING_TREE = "."


def resolve_commit(revision: str, repository: Path, *, allow_dirty: bool = False) -> Commit:
    """Resolve a revision, or `.` for the working tree.

    Args:
        revision: The revision.
        repository: A folder of the repository.
        allow_dirty: Whether the working tree may have changes.

    Raises:
        RunNotFoundError: There is no such revision.
        UnusableInputError: The working tree has changes, and that is not allowed.
    """
    if revision != WORKING_TREE:
        return Commit(revision, revisions.commit(revision, repository))
    changes, sha = checkouts.changes(repository), revisions.commit("HEAD", repository)
    if not changes.paths:
        return Commit(revision, sha)
    if not allow_dirty:
        count = len(changes.paths)
        raise UnusableInputError(
            f"the working tree has uncommitted changes in {count} file{'s' * (count != 1)}",
            hint="commit them, or use --allow-dirty to measure them uncommitted",
        )
    return Commit(revision, sha, changes)


def _check_out(trees: Worktrees, commit: Commit, *, name: str) -> Path:
    """Check out the worktree of a side; return its root."""
    if commit.changes is None:
        return trees.add(commit.sha, name=name)
    tree = checkouts.copy(trees, commit.changes, name=name)
    if checkouts.changes(tree) != commit.changes:
        raise UnusableInputError("the working tree changed while it was copied", hint="run the command again")
    return tree


_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def warnings(governor: Path = _GOVERNOR) -> list[str]:
    """Return warnings about the settings of the machine."""
    try:
        name = governor.read_text().strip()
    except OSError:
        return []
    if name == "performance":
        return []
    return [f"the CPU frequency governor is {name!r}; `performance` gives steadier clocks"]


@dataclass(frozen=True)
class State:
    """Results of a comparison that was interrupted, or could not tell."""

    blocks: tuple[tuple[dict[str, float], dict[str, float]], ...] = ()  # values of base and head by block
    runs: dict[str, str] = field(default_factory=dict)  # ids of stored runs by side
    seconds: float = 0.0  # time spent, s
    # what disturbed each run, by side
    contention: dict[Side, tuple[Contention | None, ...]] = field(default_factory=dict)
    could_not_tell: bool = False  # whether it was finished, and reported

    def without_deleted_runs(self, store: Store) -> State:
        """Return a copy without profiles that are no longer in the store."""
        stored = {run.id for run in store.readable()} if self.runs else set()
        return replace(self, runs={side: name for side, name in self.runs.items() if name in stored})

    def without_open_block(self) -> State:
        """Return a copy without what disturbed runs of a block that was not completed."""
        completed = {side: runs[: len(self.blocks)] for side, runs in self.contention.items()}
        return replace(self, contention=completed)


def compare(
    store: Store,
    request: AbRequest,
    *,
    say: Say = lambda _: None,
    progress: Say = lambda _: None,
    on_report: Callable[[Report], None] = lambda _: None,
) -> Report:
    """Compare two commits of the current repository, or two settings.

    Args:
        store: Store of worktrees, profiles, and the state of a call that was interrupted or could not tell.
        request: The comparison to make.
        say: Receives messages.
        progress: Receives a line before each measurement, and for each inconclusive metric after a test.
        on_report: Receives the report before the saved state is deleted: what is not told is not lost.

    Returns:
        The report; the saved state is deleted, unless more runs may decide.

    Raises:
        ProgramError: The program failed on one side, named in the message.
        CollectionError: It measured nothing.
        RunNotFoundError: A revision does not exist.
        UnusableInputError: The command cannot be measured, or another call is measuring in this store.
    """
    _ = request.design.looks  # refuses an invalid design before anything starts
    sides = _find_settings(request) if request.settings else _find_commits(request)
    metrics = _metrics(request, sides.programs["base"])
    lock = lock_measuring(store, FOLDER, "another `tracekit ab`")
    with lock, _open_trees(store, sides) as (trees, scratch):
        bench = _Bench(store, request, sides, trees, scratch, say, progress)
        report = bench.report(metrics)
        on_report(report)
        bench.keep_or_delete(report)
        return report


@dataclass(frozen=True)
class _Sides:
    """What is measured on each side, and what identifies the code that it runs."""

    sides: Mapping[Side, Commit | Setting]
    programs: Mapping[Side, Program]
    code: object


def _find_settings(request: AbRequest) -> _Sides:
    if request.settings is None or request.setup:
        raise UnusableInputError("--setup builds worktrees, and settings have none", hint="remove --setup")
    here = Path.cwd()
    sides: dict[Side, Setting] = dict(zip(SIDES.values(), request.settings, strict=True))
    programs = {
        side: Program(
            command=setting.command,
            repository=here,
            reading=request.reading,
            variables=setting.variables,
            in_place=True,
        )
        for side, setting in sides.items()
    }
    for measured in programs.values():
        refuse_store(measured)
    if programs["base"].collects != programs["head"].collects:
        raise UnusableInputError(
            "only one of the settings is `tracekit collect`", hint="use it for both, or for none"
        )
    return _Sides(sides, programs, code_of(here))


def _find_commits(request: AbRequest) -> _Sides:
    root = repository_root()
    base = resolve_commit(request.base, root, allow_dirty=True)
    if base.dirty:
        raise UnusableInputError(
            "the base must be a commit, but the working tree has uncommitted changes",
            hint="use a commit as the base, and `.` as the head",
        )
    head = resolve_commit(request.head, root, allow_dirty=request.allow_dirty)
    sides: dict[Side, Commit] = {"base": base, "head": head}
    code = [[side.sha, side.changes.sha256 if side.changes else None] for side in sides.values()]
    return _Sides(sides, dict.fromkeys(sides, program(request.command, root, reading=request.reading)), code)


@contextmanager
def _open_trees(store: Store, measured: _Sides) -> Iterator[tuple[dict[Side, Path], Path]]:
    """Yield the tree of each side, and a folder for runs; settings are measured in the current folder."""
    commits = {side: commit for side, commit in measured.sides.items() if isinstance(commit, Commit)}
    if commits:
        with worktrees(store, measured.programs["base"].repository) as trees:
            folders = {side: _check_out(trees, commit, name=side) for side, commit in commits.items()}
            yield folders, trees.folder / "runs"
        return
    scratch = store.folder(FOLDER) / "runs"
    try:
        yield dict.fromkeys(measured.sides, Path.cwd()), scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@dataclass
class _Bench:
    """The sides with their trees, and the results so far."""

    store: Store
    request: AbRequest
    measured: _Sides
    trees: Mapping[Side, Path]
    scratch: Path
    say: Say
    progress: Say

    def __post_init__(self) -> None:
        self.start = self.first = time.monotonic()
        self.count = 0
        reading, programs = self.request.reading, self.measured.programs.values()
        # All that the values depend on, without the design, which may change.
        self.file = StateFile.of_call(
            self.store.folder(FOLDER),
            State,
            restart=self.request.restart,
            code=self.measured.code,
            commands=[[list(program.command), dict(program.variables)] for program in programs],
            places=[str(program.repository / program.place) for program in programs],
            reading=[reading.pattern, reading.unit] if reading else None,
            setup=self.request.setup or None,
        )
        self.state = (self.file.read() or State()).without_deleted_runs(self.store).without_open_block()

    @property
    def seconds(self) -> float:
        """Time spent, that of earlier calls included, s."""
        return self.state.seconds + time.monotonic() - self.start

    def report(self, metrics: Sequence[Metric]) -> Report:
        """Measure until the result is conclusive."""
        request, sides = self.request, self.measured.sides
        conditions = self._warn_of_conditions()
        is_answered = self.state.could_not_tell and len(self.state.blocks) >= request.design.max_k
        self.state = State() if is_answered else replace(self.state, could_not_tell=False)
        if is_answered:
            self.say("measuring anew: the last call could not tell, and no more runs are allowed")
        blocks = [Block(*values) for values in self.state.blocks]
        if blocks:
            self.say(f"resuming after {len(blocks)} pairs of runs")
        for side, tree in self.trees.items() if request.setup else ():
            self.say(f"setting up {side}, {sides[side].name}")
            with self._name_errors(side, "set up"):
                prepare(self.measured.programs[side], tree, request.setup, scratch=self.scratch)
        for side in ("base", "head") * request.design.warmup:
            self._measure(side, 0, 0)
        self.first = time.monotonic()
        outcome = compare_until_decided(
            request.design,
            metrics,
            self._measure,
            on_block=self._save_blocks,
            on_test=self._report_test,
            before=blocks,
        )
        return Report(
            request=request,
            base=sides["base"],
            head=sides["head"],
            outcome=outcome,
            runs=self.state.runs,
            warnings=(*conditions, *self._contention_warnings()),
            seconds=self.seconds,
        )

    def keep_or_delete(self, report: Report) -> None:
        """Delete the state once the report is handed over, or keep it where more runs may decide."""
        if report.needed_runs:
            self._save(replace(self.state, could_not_tell=True))
        else:
            self.file.delete()

    def _warn_of_conditions(self) -> list[str]:
        """Return warnings on the settings of the machine, and on submodules that commits lack here."""
        conditions = warnings()
        if not self.request.setup and not self.request.settings:
            missing = sorted({name for tree in self.trees.values() for name in find_missing_submodules(tree)})
            names, fetch = ", ".join(missing), "run `git submodule update --init` in your tree, or as --setup"
            text = f"submodules without a local clone are not checked out: {names}; {fetch}"
            conditions += [text] if missing else []
        for text in conditions:
            self.say(f"warning: {text}")
        return conditions

    def _measure(self, side: Side, number: int, total: int) -> dict[str, float]:
        """Measure a side; number 0 is warm-up. The first profile of each side is stored."""
        now, count = time.monotonic(), f"{number} of {total}" if number else "warm-up"
        left = ""
        if self.count:
            seconds = (now - self.first) / self.count * (total - number + 1)
            left = f", about {duration(seconds)} left"
        elapsed = duration(now - self.start)
        self.progress(f"{count}: {side} {self.measured.sides[side].name}, {elapsed} elapsed{left}")
        with self._name_errors(side, f"measurement {number} of {total}" if number else "warm-up"):
            sample = measure(self.measured.programs[side], self.trees[side], scratch=self.scratch)
        if number:
            self.count += 1
            self._note_contention(side, sample.contention)
        if sample.run and number and side not in self.state.runs:
            run = store_run(self.store, sample.run, label=f"ab-{side}")
            self._save(replace(self.state, runs={**self.state.runs, side: run.id}))
        return sample.values

    def _note_contention(self, side: Side, contention: Contention | None) -> None:
        """Keep what disturbed a measurement; the first one is said at once, as the user may end it."""
        is_first, before = not any(self._contention_warnings()), self.state.contention
        of_side = (*before.get(side, ()), contention)
        self.state = replace(self.state, contention={**before, side: of_side})
        if is_first and contention and contention.is_external:
            self.say(f"warning: {contention.message}")

    def _contention_warnings(self) -> list[str]:
        by_side = self.state.contention
        return [text for side in self.trees for text in contention_warnings(side, by_side.get(side, ()))]

    def _report_test(self, look: Look, undecided: Sequence[Comparison]) -> None:
        for comparison in undecided:
            self.progress(
                f"after {look.k} runs per side, {comparison.name} is inconclusive: {comparison.reason}"
            )

    def _save_blocks(self, blocks: Sequence[Block]) -> None:
        """Save the blocks, so that an interrupt loses none."""
        pairs = tuple((dict(block.base), dict(block.head)) for block in blocks)
        self._save(replace(self.state, blocks=pairs))

    def _save(self, state: State) -> None:
        self.state = state
        self.file.write(replace(state, seconds=self.seconds))

    @contextmanager
    def _name_errors(self, side: Side, activity: str) -> Iterator[None]:
        """Add the side and the activity to an error message."""
        try:
            yield
        except TracekitError as error:
            error.message = f"{side} {self.measured.sides[side].name}, {activity}: {error.message}"
            raise


def _metrics(request: AbRequest, program: Program) -> list[Metric]:
    available = OF_RUNS if program.collects else tuple(dict.fromkeys([*program.metrics, "wall"]))
    for name in request.design.metrics:
        if name not in available:
            raise UnusableInputError(
                f"the command does not measure {name}, but {', '.join(available)}",
                hint="use --value and --unit to read a number that it prints",
            )
    if program.collects and request.reading:
        raise UnusableInputError(
            "--value cannot be used with `tracekit collect`", hint="remove --value; its steps are timed"
        )
    direction = Direction.HIGHER if request.higher_is_better else Direction.LOWER
    if request.higher_is_better and "value" not in available:
        raise UnusableInputError("--higher-is-better needs a value", hint="use --value with --unit count")
    unit = "bytes" if request.reading and request.reading.unit.endswith(("B", "bytes")) else "count"
    names = request.design.metrics or program.metrics
    return [metric(name, unit=unit, direction=direction) for name in names]
