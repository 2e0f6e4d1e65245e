"""Request, design, measuring loop and report of `tracekit ab`; independent of git and processes."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tracekit.errors import CollectionError, UnusableInputError
from tracekit.experiments.checkouts import Changes
from tracekit.experiments.measure import Reading
from tracekit.experiments.options import AbOptions, Design
from tracekit.runs.metrics import EXACT, STEP_MEDIAN, TOLERANCE_BYTES
from tracekit.stats.compare import compare
from tracekit.stats.comparison import ALPHA, Comparison, Metric, Verdict, exit_code, overall
from tracekit.stats.samples import order
from tracekit.stats.tests import Look, compare_exact, with_holm

Side: TypeAlias = Literal["base", "head"]
Values: TypeAlias = Mapping[str, float]
SIDES: dict[str, Side] = {"A": "base", "B": "head"}
INCONCLUSIVE = frozenset({Verdict.CANNOT_TELL, Verdict.NONE})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True)
class Commit:
    """Side of a comparison."""

    revision: str  # revision as given by the user
    sha: str  # commit id; that of HEAD for the working tree
    changes: Changes | None = None  # uncommitted changes on top of it, if it is the working tree

    @property
    def dirty(self) -> bool:
        """Whether it has uncommitted changes."""
        return self.changes is not None

    @property
    def name(self) -> str:
        """Name for display.

        Example:
            >>> Commit("main", "1a2b3c4d5e6f").name
            'main (1a2b3c4d5)'
        """
        short = self.sha[:9] + "+" * self.dirty
        return short if self.sha.startswith(self.revision) else f"{self.revision} ({short})"

    def entry(self) -> dict[str, object]:
        """Convert to JSON values."""
        sha256 = self.changes.sha256 if self.changes else None
        return {
            "revision": self.revision,
            "commit": self.sha,
            "dirty": self.dirty,
            "diff_sha256": sha256,
            "changed_files": len(self.changes.paths) if self.changes else 0,
        }


@dataclass(frozen=True)
class Setting:
    """Side of a comparison of settings, measured in the current folder."""

    text: str  # the setting as given by the user
    command: tuple[str, ...]  # the program and its arguments
    variables: dict[str, str]  # environment variables that it gets in addition
    dirty, changes = False, None  # as of `Commit`

    @classmethod
    def parse(cls, text: str, command: tuple[str, ...]) -> Setting:
        """Parse variables and a command, as in a shell.

        Args:
            text: The setting.
            command: The command of both sides, if the settings are only variables.

        Raises:
            UnusableInputError: There is no command, or there are two.

        Example:
            >>> Setting.parse("OMP_NUM_THREADS=2 python 'my train.py'", ()).command
            ('python', 'my train.py')
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UnusableInputError(f"{text!r} cannot be split into words: {error}") from error
        count = next((place for place, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
        variables = dict(word.split("=", 1) for word in words[:count])
        program = tuple(words[count:])
        if bool(program) == bool(command):
            message = f"{text!r} and -- both name a command" if program else f"{text!r} names no command"
            hint = "give the command in --a and --b, or after -- with only variables in --a and --b"
            raise UnusableInputError(message, hint=hint)
        return cls(text, program or command, variables)

    @property
    def name(self) -> str:
        """Name for display."""
        return f"`{self.text}`" if self.text else "no variables"

    def entry(self) -> dict[str, object]:
        """Convert to JSON values."""
        return {"setting": self.text, "command": list(self.command), "variables": self.variables}


@dataclass(frozen=True)
class Block:
    """Two consecutive measurements, one per side; values by metric."""

    base: Values
    head: Values


@dataclass(frozen=True)
class Outcome:
    """Outcome of a session: all blocks, and per metric the comparison of the test that decided it.

    Metrics that only one side measured are in `one_sided`: no number of runs decides them.
    """

    metrics: tuple[Comparison, ...]
    blocks: tuple[Block, ...]
    one_sided: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict over all metrics."""
        verdicts = [metric.verdict for metric in self.metrics]
        return overall([*verdicts, *(Verdict.CANNOT_TELL for _ in self.one_sided)])


def compare_until_decided(
    design: Design,
    metrics: Sequence[Metric],
    measure: Callable[[Side, int, int], Values],
    *,
    on_block: Callable[[Sequence[Block]], None],
    on_test: Callable[[Look, Sequence[Comparison]], None],
    before: Sequence[Block] = (),
) -> Outcome:
    """Measure blocks until a metric regressed, every metric is decided or the maximum is reached.

    Args:
        design: The design.
        metrics: Metrics to compare; those named in the design must be measured.
        measure: Measures a side, given the number from 1, and the total until the next test.
        on_block: Called after each block, with all blocks so far.
        on_test: Called after each test, with its runs per side and the inconclusive metrics.
        before: Blocks of an interrupted session.

    Returns:
        The outcome. A metric keeps the verdict of the test that decided it, as each test spends its alpha.

    Raises:
        CollectionError: A requested metric is not measured.
    """
    blocks, decided = list(before), dict[str, Comparison]()
    current: tuple[Comparison, ...] = ()
    for look in design.looks:
        for number in range(len(blocks), look.k):
            sides = [SIDES[letter] for letter in order(1, start=number)]
            values = {
                side: measure(side, 2 * number + place, 2 * look.k) for place, side in enumerate(sides, 1)
            }
            blocks.append(Block(**values))
            on_block(blocks)
        # Blocks beyond the look, of an earlier call with another design, would spend its alpha twice.
        comparisons = _compare_blocks(design, metrics, blocks[: look.k], look)
        current = tuple(decided.get(metric.name, metric) for metric in comparisons)
        decided |= {metric.name: metric for metric in current if metric.verdict not in INCONCLUSIVE}
        on_test(look, [metric for metric in current if metric.verdict in INCONCLUSIVE])
        if len(decided) == len(current) or any(metric.verdict is Verdict.REGRESSION for metric in current):
            break
    return Outcome(current, tuple(blocks), _find_one_sided(metrics, blocks))


def _compare_blocks(
    design: Design, metrics: Sequence[Metric], blocks: Sequence[Block], look: Look
) -> tuple[Comparison, ...]:
    """Compare the sides in all measured metrics, with Holm's correction."""
    one_sided, (base, head) = _find_one_sided(metrics, blocks), _find_measured(blocks)
    measured = [metric for metric in metrics if metric.name in base & head]
    missing = set(design.metrics) - (base | head)
    if one_sided and not measured and not missing:
        side = "head" if one_sided[0] in base else "base"
        raise CollectionError(
            f"no run of the {side} measured {one_sided[0]}", hint="compare a metric that both sides measure"
        )
    if missing or not measured:
        raise CollectionError(
            f"the program did not measure {' or '.join(sorted(missing)) or 'any metric'}",
            hint="choose another --metric, or read the value with --value",
        )
    return with_holm([_compare(design, metric, blocks, look) for metric in measured])


def _find_measured(blocks: Sequence[Block]) -> tuple[set[str], set[str]]:
    """Return the metrics that any run of the base measured, and those of the head."""
    base = {name for block in blocks for name in block.base}
    return base, {name for block in blocks for name in block.head}


def _find_one_sided(metrics: Sequence[Metric], blocks: Sequence[Block]) -> tuple[str, ...]:
    base, head = _find_measured(blocks)
    return tuple(metric.name for metric in metrics if metric.name in base ^ head)


def _compare(design: Design, metric: Metric, blocks: Sequence[Block], look: Look) -> Comparison:
    base = [block.base.get(metric.name) for block in blocks]
    head = [block.head.get(metric.name) for block in blocks]
    if metric.name in EXACT:
        return compare_exact(metric, base, head, threshold=design.threshold, tolerance=TOLERANCE_BYTES)
    return compare(metric, base, head, paired=True, threshold=design.threshold, alpha=look.alpha)


@dataclass(frozen=True, kw_only=True)
class AbRequest(AbOptions):
    """The comparison to make; head `.` is the working tree, and `reading` reads a value from the output.

    With `settings`, these are compared instead of commits, and `command` may be empty.
    """

    base: str
    head: str
    command: tuple[str, ...]
    design: Design
    reading: Reading | None = None
    settings: tuple[Setting, Setting] | None = None


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of a comparison; `runs` has the ids of stored profiles, and `seconds` is of all calls."""

    request: AbRequest
    base: Commit | Setting
    head: Commit | Setting
    outcome: Outcome
    runs: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The verdict over all metrics."""
        return self.outcome.verdict

    @property
    def undecided(self) -> list[Comparison]:
        """The metrics that keep the verdict open; none if another one decides it."""
        if self.verdict is not Verdict.CANNOT_TELL:
            return []
        return [metric for metric in self.outcome.metrics if metric.verdict is Verdict.CANNOT_TELL]

    @property
    def needed_runs(self) -> int:
        """About how many runs per side would decide all that more runs can decide; 0 if there is nothing."""
        needed = [metric.k + metric.more_runs for metric in self.undecided if metric.more_runs]
        return max(*needed, self.request.design.max_k + 1) if needed else 0

    @property
    def reproduce(self) -> str:
        """The command that repeats the comparison for the same commits or settings.

        The working tree stays `.`, as its changes are in no commit.
        """
        request, design = self.request, self.request.design
        words = ["tracekit", "ab"]
        if isinstance(self.base, Commit) and isinstance(self.head, Commit):
            words += [self.base.sha, "." if self.head.dirty else self.head.sha]
        else:
            words += ["--a", request.a or "", "--b", request.b or ""]
        words += ["--repeat", str(design.k), "--max-repeat", str(design.max_k)]
        words += ["--threshold", f"{100 * design.threshold:g}%", "--warmup", str(design.warmup)]
        words += [word for name in design.metrics for word in ("--metric", name)]
        if request.reading:
            words += ["--value", request.reading.pattern, "--unit", request.reading.unit]
        words += ["--setup", request.setup] if request.setup else []
        words += ["--higher-is-better"] * request.higher_is_better + ["--allow-dirty"] * self.head.dirty
        return shlex.join([*words, *(["--", *request.command] if request.command else [])])

    @property
    def median_change(self) -> float | None:
        """Logarithm of the ratio of median steps, head over base; None where a block lacks one."""
        pairs = [(block.base.get(STEP_MEDIAN), block.head.get(STEP_MEDIAN)) for block in self.outcome.blocks]
        changes = [math.log(head / base) for base, head in pairs if base and head]
        return sum(changes) / len(changes) if changes and len(changes) == len(pairs) else None

    def content(self) -> dict[str, Any]:
        """Convert to JSON values, without the schema name."""
        blocks, design = self.outcome.blocks, self.request.design
        return {
            "verdict": str(self.verdict),
            "exit_code": int(exit_code(self.verdict)),
            "base": self.base.entry(),
            "head": self.head.entry(),
            "command": list(self.request.command),
            "design": {
                "k": len(blocks),
                "order": order(len(blocks)),
                "paired": True,
                "alpha": ALPHA,
                "theta": design.threshold,
                "looks": [{"k": look.k, "alpha": look.alpha} for look in design.looks],
                "warmup": design.warmup,
            },
            "metrics": [metric.entry() for metric in self.outcome.metrics],
            "one_sided": list(self.outcome.one_sided),
            "values": {
                "base": [dict(block.base) for block in blocks],
                "head": [dict(block.head) for block in blocks],
            },
            "runs": self.runs,
            "warnings": list(self.warnings),
            "seconds": round(self.seconds, 3),
            "reproduce": self.reproduce,
        }
