"""Result of `tracekit ab`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit.stats.blocks import order
from tracekit.stats.comparison import ALPHA, Verdict, exit_code

if TYPE_CHECKING:
    from tracekit.ab.design import Design
    from tracekit.ab.session import Outcome
    from tracekit.ab.sides import Commit
    from tracekit.measuring.program import Reading


@dataclass(frozen=True, kw_only=True)
class Question:
    """The comparison to make.

    Attributes:
        base: Revision to compare with.
        head: Revision to compare; `.` is the working tree.
        command: Program to measure, with its arguments.
        reading: How to read a value from its output.
        higher_is_better: Whether a higher value is better.
        setup: Shell command that builds a worktree.
        allow_dirty: Whether the working tree may have changes.
        restart: Whether to discard results of an interrupted call.
    """

    base: str
    head: str
    command: tuple[str, ...]
    design: Design
    reading: Reading | None = None
    higher_is_better: bool = False
    setup: str | None = None
    allow_dirty: bool = False
    restart: bool = False


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of a comparison.

    Attributes:
        runs: Ids of the stored profiles, by side.
        warnings: Conditions that add noise.
        seconds: Time spent measuring, over all calls.
    """

    question: Question
    base: Commit
    head: Commit
    outcome: Outcome
    runs: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The verdict over all metrics."""
        return self.outcome.verdict

    @property
    def reproduce(self) -> str:
        """The command that repeats the comparison for the same commits.

        The working tree stays `.`, as its changes are in no commit.
        """
        asked, design = self.question, self.question.design
        head = "." if self.head.dirty else self.head.sha
        words = ["tracekit", "ab", self.base.sha, head, "-k", str(design.k), "--max-k", str(design.max_k)]
        words += ["--threshold", f"{100 * design.threshold:g}%", "--warmup", str(design.warmup)]
        words += [word for name in design.metrics for word in ("--metric", name)]
        if asked.reading:
            words += ["--value", asked.reading.pattern, "--unit", asked.reading.unit]
        words += ["--setup", asked.setup] if asked.setup else []
        words += ["--higher-is-better"] * asked.higher_is_better + ["--allow-dirty"] * self.head.dirty
        return shlex.join([*words, "--", *asked.command])

    def content(self) -> dict[str, Any]:
        """Convert to JSON values, without the schema name."""
        blocks, design = self.outcome.blocks, self.question.design
        return {
            "verdict": str(self.verdict),
            "exit_code": int(exit_code(self.verdict)),
            "base": self.base.entry(),
            "head": self.head.entry(),
            "command": list(self.question.command),
            "design": {
                "k": len(blocks),
                "order": order(len(blocks)),
                "paired": True,
                "alpha": ALPHA,
                "theta": design.threshold,
                "looks": [{"k": look.k, "alpha": look.alpha} for look in design.looks],
                "warmup": design.warmup,
            },
            "metrics": [one.entry() for one in self.outcome.metrics],
            "values": {
                "base": [dict(block.base) for block in blocks],
                "head": [dict(block.head) for block in blocks],
            },
            "runs": self.runs,
            "warnings": list(self.warnings),
            "seconds": round(self.seconds, 3),
            "reproduce": self.reproduce,
        }
