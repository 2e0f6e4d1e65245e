"""The loop: measure a block, look, stop or go on. It knows no git, no process and no store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from tracekit.errors import CollectionError
from tracekit.measuring.metrics import EXACT, TOLERANCE_BYTES
from tracekit.stats.blocks import order
from tracekit.stats.compare import compare
from tracekit.stats.comparison import Verdict, overall
from tracekit.stats.exact import compare_exact
from tracekit.stats.multiple import gate

if TYPE_CHECKING:
    from tracekit.ab.design import Design
    from tracekit.stats.comparison import Comparison, Metric
    from tracekit.stats.sequential import Look

Side: TypeAlias = Literal["base", "head"]
Values: TypeAlias = Mapping[str, float]
SIDES: dict[str, Side] = {"A": "base", "B": "head"}
OPEN = frozenset({Verdict.CANNOT_TELL, Verdict.NONE})


@dataclass(frozen=True)
class Block:
    """Two measurements right after one another, one of each side; values by metric."""

    base: Values
    head: Values


@dataclass(frozen=True)
class Outcome:
    """What was found.

    Attributes:
        metrics: One comparison per metric, each as of the look that decided it.
        blocks: All blocks.
    """

    metrics: tuple[Comparison, ...]
    blocks: tuple[Block, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict over all metrics."""
        return overall(one.verdict for one in self.metrics)


@dataclass(frozen=True)
class Listener:
    """Told how the session goes.

    Attributes:
        block: After each block, with all blocks so far.
        look: After each look, with its runs per side and the metrics it left open.
    """

    block: Callable[[Sequence[Block]], None]
    look: Callable[[Look, Sequence[Comparison]], None]


def hold(
    design: Design,
    metrics: Sequence[Metric],
    measure: Callable[[Side, int, int], Values],
    listener: Listener,
    *,
    before: Sequence[Block] = (),
) -> Outcome:
    """Measure blocks until every metric is decided, or the plan ends.

    Args:
        design: The plan.
        metrics: What may be judged; those the design names must be measured.
        measure: Measures a side, told which measurement of how many it is up to the next look, from 1.
        listener: Told how it goes.
        before: Blocks that were measured earlier, with which it goes on.

    Returns:
        The outcome. A metric that a look decided keeps that verdict, as every look has spent its level.

    Raises:
        CollectionError: A metric that was asked for is not measured.
    """
    blocks, decided = list(before), dict[str, "Comparison"]()
    current: tuple[Comparison, ...] = ()
    for look in design.looks:
        for number in range(len(blocks), look.k):
            sides = [SIDES[letter] for letter in order(1, start=number)]
            found = {
                side: measure(side, 2 * number + place, 2 * look.k) for place, side in enumerate(sides, 1)
            }
            blocks.append(Block(**found))
            listener.block(blocks)
        judged = judge(design, metrics, blocks[: look.k], look)
        current = tuple(decided.get(one.name, one) for one in judged)
        decided |= {one.name: one for one in current if one.verdict not in OPEN}
        listener.look(look, [one for one in current if one.verdict in OPEN])
        if len(decided) == len(current):
            break
    return Outcome(current, tuple(blocks))


def judge(
    design: Design, metrics: Sequence[Metric], blocks: Sequence[Block], look: Look
) -> tuple[Comparison, ...]:
    """Compare the sides in every metric that was measured, all together (Holm).

    Raises:
        CollectionError: Nothing was measured, or not what the design names.
    """
    measured = [one for one in metrics if any(one.name in side for block in blocks for side in _both(block))]
    missing = set(design.metrics) - {one.name for one in measured}
    if missing or not measured:
        raise CollectionError(
            f"the program has no {' and no '.join(sorted(missing)) or 'metric'}",
            hint="name another --metric, or read it with --value",
        )
    return gate([_compared(design, one, blocks, look) for one in measured])


def _compared(design: Design, metric: Metric, blocks: Sequence[Block], look: Look) -> Comparison:
    base = [block.base.get(metric.name) for block in blocks]
    head = [block.head.get(metric.name) for block in blocks]
    if metric.name in EXACT:
        return compare_exact(metric, base, head, threshold=design.threshold, tolerance=TOLERANCE_BYTES)
    return compare(metric, base, head, paired=True, threshold=design.threshold, alpha=look.alpha)


def _both(block: Block) -> tuple[Values, Values]:
    return block.base, block.head
