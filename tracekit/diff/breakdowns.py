"""Amounts and terms of a difference, groups of matched work, and the breakdowns of steps and of work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from tracekit.diff.naming import PATH_ARROW


@dataclass(frozen=True, order=True)
class Amount:
    """Number of intervals and the sum of their durations."""

    count: int
    total_ns: int

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.count + other.count, self.total_ns + other.total_ns)


NOTHING = Amount(0, 0)
Range: TypeAlias = tuple[int, int]
"""Least and most."""
NO_OP = "(no op recorded)"


@dataclass(frozen=True)
class Terms:
    """Terms of a difference in ns: `delta = added − removed + count + rate`, exactly."""

    added: int = 0  # time of what only the head has
    removed: int = 0  # time of what only the base has
    count: int = 0  # change of the number times the mean of both mean durations, rounded to whole ns
    rate: int = 0  # the rest of what both have: change of the mean duration times the mean number

    @property
    def delta(self) -> int:
        """The whole difference."""
        return self.added - self.removed + self.count + self.rate

    def __add__(self, other: Terms) -> Terms:
        return Terms(
            self.added + other.added,
            self.removed + other.removed,
            self.count + other.count,
            self.rate + other.rate,
        )


@dataclass(frozen=True)
class Group:
    """Work of both runs that was matched, or work that only one has."""

    # names of the ops from the outermost to the launching one; of work of several paths the names with which
    # all begin and, after `…`, those with which all end; empty where no op is known
    path: tuple[str, ...]
    shapes: str  # input shapes of the launching op of its longest interval; empty where unknown
    module: str  # module of that op; empty where unknown
    name_a: str  # canonical name of its longest work in the base; empty where it has none
    name_b: str  # the same in the head
    sort: str  # kernel, memset, graph, op, or memcpy with its direction
    role: str
    match_level: str  # how it was matched; empty where only one side has it
    a: Amount
    b: Amount
    terms: Terms
    # rows of the longest intervals of the base (`a`) and the head (`b`)
    evidence: dict[str, list[int]] = field(default_factory=dict)
    number: int = -1  # number of the group in `matching.match`; -1 where it was not matched there

    @property
    def what(self) -> str:
        """Name of the work, or both names if they differ."""
        if self.name_a and self.name_b and self.name_a != self.name_b:
            return f"{self.name_a} → {self.name_b}"
        return self.name_b or self.name_a

    @property
    def label(self) -> str:
        """The ops that lead to the work in one text; the work itself where no op is known."""
        return PATH_ARROW.join(self.path) if self.path else f"{self.what} {NO_OP}"


@dataclass(frozen=True)
class Cause:
    """Line of the work ledger: groups summed by op, module or kernel."""

    label: str  # the op path, module or kernel
    detail: str  # what ran: names of the base and of the head where they differ
    a: Amount
    b: Amount
    terms: Terms
    match_levels: tuple[str, ...]  # how its groups were matched
    evidence: dict[str, list[int]]  # rows of the longest intervals of the base (`a`) and the head (`b`)
    modules: tuple[str, ...] = ()  # modules of its groups, the largest difference first, a few of them
    # least and most time in a compared step, of the base and of the head; None where unknown
    steps: tuple[Range, Range] | None = None

    @property
    def change(self) -> Range | None:
        """Least and most difference between any compared step of the head and any of the base."""
        if self.steps is None:
            return None
        (a_least, a_most), (b_least, b_most) = self.steps
        return b_least - a_most, b_most - a_least

    @property
    def noisy(self) -> bool:
        """Whether the steps of both sides overlap, so that the change may be noise."""
        return self.change is not None and self.change[0] <= 0 <= self.change[1]


@dataclass(frozen=True)
class WorkBreakdown:
    """The work ledger: Σ of durations on both sides, and the terms of their difference."""

    a_ns: int
    b_ns: int
    terms: Terms

    @property
    def residual(self) -> int:
        """Remainder of the terms; zero by construction."""
        return self.b_ns - self.a_ns - self.terms.delta


@dataclass(frozen=True)
class BreakdownLine:
    """Line of the wall ledger: time of the compared steps, ns.

    Attributes:
        changed: Op path, or kernel without one, whose time changed most in this part; empty if unknown. Of
            idle time it is the op that the host was in; without device work, the op or function.
        changed_ns: That change, head minus base: of time in the part, or of a device's work, exposed or not.
    """

    name: str
    meaning: str
    a_ns: int
    b_ns: int
    changed: str = ""
    changed_ns: int = 0

    @property
    def delta(self) -> int:
        """Head minus base."""
        return self.b_ns - self.a_ns


@dataclass(frozen=True)
class StepTimeBreakdown:
    """The wall ledger: the compared steps cut into parts that sum to them exactly on both sides."""

    lines: tuple[BreakdownLine, ...]
    total: BreakdownLine
    overlap: BreakdownLine  # work minus the time in which any of it ran: what joins the two ledgers

    @property
    def main(self) -> BreakdownLine | None:
        """The part that changed most as the step did; None if the step did not change."""
        sign = (self.total.delta > 0) - (self.total.delta < 0)
        changed = [line for line in self.lines if sign * line.delta > 0]
        return max(changed, key=lambda line: abs(line.delta), default=None)


@dataclass(frozen=True)
class MatchLevel:
    """Time matched by one matching rule."""

    name: str
    groups: int
    a_ns: int
    b_ns: int


@dataclass(frozen=True)
class Matched:
    """Coverage of the matching."""

    share_a: float | None  # matched share of the base's work; None where it has none
    share_b: float | None  # matched share of the head's work
    # time matched on each level, the strongest first; the last has no name and is not matched
    by_level: tuple[MatchLevel, ...]
    rules: int  # version of the rules for names


@dataclass(frozen=True)
class OneSided:
    """Work of a name that only one of the two runs has."""

    name: str  # its canonical name
    kind: str  # kernel, memcpy, memset, graph or op
    role: str  # what most of it does
    count: int
    total_ns: int
    matched_ns: int  # time of it that was matched with work of other names; the rest is added or removed
    instead: tuple[str, ...]  # names that it was matched with, those of most time first, a few of them


@dataclass(frozen=True)
class Changed:
    """Work with a changed count: exact counts over the compared steps."""

    label: str
    name: str
    a: int
    b: int
