"""The measuring loop: measure a block, test, stop or continue; independent of git, processes and store."""

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
    """Two consecutive measurements, one per side; values by metric."""

    base: Values
    head: Values


@dataclass(frozen=True)
class Outcome:
    """Outcome of a session.

    Attributes:
        metrics: One comparison per metric, each from the test that decided it.
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
    """Callbacks of a session.

    Attributes:
        block: Called after each block, with all blocks so far.
        look: Called after each test, with its runs per side and the inconclusive metrics.
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
    """Measure blocks until every metric is decided or the maximum is reached.

    Args:
        design: The design.
        metrics: Metrics to compare; those named in the design must be measured.
        measure: Measures a side, given the number from 1, and the total until the next test.
        listener: Callbacks.
        before: Blocks of an interrupted session.

    Returns:
        The outcome. A metric keeps the verdict of the test that decided it, as each test spends its alpha.

    Raises:
        CollectionError: A requested metric is not measured.
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
    """Compare the sides in all measured metrics, with Holm's correction.

    Raises:
        CollectionError: No metric, or not every metric of the design, was measured.
    """
    measured = [one for one in metrics if any(one.name in side for block in blocks for side in _both(block))]
    missing = set(design.metrics) - {one.name for one in measured}
    if missing or not measured:
        raise CollectionError(
            f"the program did not measure {' or '.join(sorted(missing)) or 'any metric'}",
            hint="choose another --metric, or read the value with --value",
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
